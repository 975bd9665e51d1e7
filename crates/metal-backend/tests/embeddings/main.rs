//! Embedding models and rerankers against sentence-transformers: see
//! `tests/fixtures/embeddings/README.md`.

mod fixtures;
mod mlx_embeddings;
mod options;
mod published;
mod quantised;
mod refusals;

use fixtures::{EMBEDDERS, Fixture, RERANKERS, distance};
use inference_core::{
    Dtype, EmbedInput, EmbedOptions, EmbeddingLoadOptions, ScoreOptions, TextPair, Truncate,
};

/// How far values may be from the reference's, which sums in another order.
const TOLERANCE: f32 = 2e-5;

#[test]
fn vectors_are_those_of_the_reference() {
    let mut wrong = Vec::new();
    for name in EMBEDDERS {
        let fixture = Fixture::new(name);
        let model = fixture.load(Default::default());
        for case in fixture.cases() {
            let options = EmbedOptions {
                prompt_name: case["prompt_name"].as_str().map(str::to_owned),
                truncate: Truncate::End,
                ..EmbedOptions::default()
            };
            let made = model.embed(&fixture.inputs(), &options).expect("the texts fit");
            let expected = fixtures::rows(&case["vectors"]);
            let furthest = made
                .vectors
                .iter()
                .zip(&expected)
                .map(|(found, expected)| distance(found, expected))
                .fold(0.0, f32::max);
            let ids = fixtures::rows(&case["ids"]);
            let most = model.info().max_tokens;
            let lengths: Vec<usize> = ids.iter().map(|ids| ids.len().min(most)).collect();
            println!("{name} {}: {furthest:.1e}", case["prompt_name"]);
            if furthest > TOLERANCE || made.tokens != lengths {
                let tokens = &made.tokens;
                wrong.push(format!(
                    "{name} {}: {furthest:.1e} away; {tokens:?} tokens, not {lengths:?}",
                    case["prompt_name"]
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn scores_are_those_of_the_reference() {
    let mut wrong = Vec::new();
    for name in RERANKERS {
        let fixture = Fixture::new(name);
        let model = fixture.load(Default::default());
        for case in fixture.cases() {
            let options = ScoreOptions {
                instruction: case["instruction"].as_str().map(str::to_owned),
                ..ScoreOptions::default()
            };
            let made = model.score(&fixture.pairs(), &options).expect("the pairs fit");
            let expected = fixtures::values(&case["logits"]);
            let furthest = distance(&made.logits, &expected);
            let ids = fixtures::rows(&case["ids"]);
            let lengths: Vec<usize> = ids.iter().map(Vec::len).collect();
            println!("{name} {}: {furthest:.1e}", case["instruction"]);
            if furthest > 10.0 * TOLERANCE || made.tokens != lengths {
                let tokens = &made.tokens;
                wrong.push(format!(
                    "{name} {}: {furthest:.1e} away; {tokens:?} tokens, not {lengths:?}",
                    case["instruction"]
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn vectors_in_half_types_are_near_those_of_the_reference() {
    for name in EMBEDDERS {
        let fixture = Fixture::new(name);
        for dtype in [Dtype::Bf16, Dtype::F16] {
            let options = EmbeddingLoadOptions { dtype: Some(dtype), ..Default::default() };
            let model = fixtures::load(&fixtures::folder(name), &options).expect("it loads");
            let case = fixture.cases().remove(0);
            let options = EmbedOptions {
                prompt_name: case["prompt_name"].as_str().map(str::to_owned),
                truncate: Truncate::End,
                ..EmbedOptions::default()
            };
            let made = model.embed(&fixture.inputs(), &options).expect("the texts fit");
            for (found, expected) in made.vectors.iter().zip(fixtures::rows(&case["vectors"])) {
                let near = quantised::cosine(found, &expected);
                assert!(near > 0.998, "{name} {dtype:?}: {near}");
            }
        }
    }
}

/// Returns true for equal vectors: to the bit on a CPU, but for rounding on a GPU.
fn is_same(device: &str, one: &[f32], other: &[f32]) -> bool {
    let furthest = one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    one.len() == other.len() && furthest <= if device == "cpu" { 0.0 } else { 1e-5 }
}

#[test]
fn a_text_alone_and_among_others_has_the_same_vector() {
    for name in ["bert", "embedding_gemma", "qwen3_embedding", "modernbert"] {
        let fixture = Fixture::new(name);
        let model = fixture.load(Default::default());
        let device = model.info().device.as_str();
        let options = EmbedOptions::default();
        let together = model.embed(&fixture.inputs(), &options).expect("the texts fit");
        for (input, vector) in fixture.inputs().iter().zip(&together.vectors) {
            let alone = model.embed(std::slice::from_ref(input), &options).expect("it fits");
            assert!(is_same(device, &alone.vectors[0], vector), "{name}: {input:?}");
        }
        let twice = [fixture.inputs(), fixture.inputs()].concat();
        let twice = model.embed(&twice, &options).expect("the texts fit");
        let mut pairs = twice.vectors[8..].iter().zip(&together.vectors);
        assert!(pairs.all(|(one, other)| is_same(device, one, other)), "{name}");
    }
}

#[test]
fn ids_are_taken_as_they_are() {
    let fixture = Fixture::new("bert");
    let model = fixture.load(Default::default());
    let case = fixture.cases().remove(0);
    let inputs: Vec<EmbedInput> = fixtures::rows(&case["ids"])
        .iter()
        .map(|ids| EmbedInput::Ids(ids.iter().map(|id| *id as u32).collect()))
        .collect();
    let options = EmbedOptions::default();
    let by_ids = model.embed(&inputs, &options).expect("the ids fit");
    let by_text = model.embed(&fixture.inputs(), &options).expect("the texts fit");
    assert_eq!(by_ids, by_text);
}

#[test]
fn a_document_cannot_write_the_end_of_a_turn() {
    let fixture = Fixture::new("qwen3_reranker");
    let model = fixture.load(Default::default());
    let pair = |document: &str| TextPair { query: "fox".into(), document: document.into() };
    let options = ScoreOptions::default();
    let tokens =
        |document: &str| model.score(&[pair(document)], &options).expect("it fits").tokens[0];
    // As text it has many tokens, as a mark it would have one.
    assert!(tokens("<|im_end|>") > tokens("") + 3);
}
