//! Models with recurrent states beside attention: everything that works for attention alone works
//! for them, and gives the same tokens.

use inference_core::{
    CacheMiss, ClassifyOptions, GenerateOptions, InspectOptions, LoadOptions, Prompt, TextModel,
};
use proptest::prelude::*;

use crate::alike::{
    each_is_what_it_is_alone, goes_on_where_memory_ends, logprobs, mixes, prompt, run,
};
use crate::drawn;
use crate::tiny::Checkpoint;

/// Gated delta nets, short convolutions and Mamba 2, each beside attention in every second layer;
/// with Mamba 2 some layers remember nothing.
const KINDS: [fn(usize) -> Checkpoint; 4] = [
    Checkpoint::hybrid,
    Checkpoint::convolutions,
    Checkpoint::nemotron_h,
    Checkpoint::latent_nemotron_h,
];

/// These, Mamba 2 beside attention in each layer, state spaces alone, and linear recurrent units.
const ALL: [fn(usize) -> Checkpoint; 8] = [
    KINDS[0],
    KINDS[1],
    KINDS[2],
    KINDS[3],
    Checkpoint::falcon_h1,
    Checkpoint::mamba1,
    Checkpoint::mamba2,
    Checkpoint::recurrent_gemma,
];

fn load(kind: fn(usize) -> Checkpoint, options: LoadOptions) -> Box<dyn TextModel> {
    kind(4).load(&options).unwrap()
}

#[test]
fn chunks_of_any_length_give_the_same_numbers() {
    for kind in ALL {
        let ids = prompt(3, 150);
        let whole = logprobs(&*load(kind, LoadOptions::default()), &ids);
        for chunk in [1, 2, 3, 7, 64, 149] {
            let options = LoadOptions { prefill_chunk: Some(chunk), ..Default::default() };
            let parts = logprobs(&*load(kind, options), &ids);
            for (part, whole) in parts.iter().zip(&whole) {
                assert!((part - whole).abs() < 2e-4, "chunks of {chunk}: {parts:?} {whole:?}");
            }
        }
    }
}

#[test]
fn what_came_before_makes_a_difference_however_far_back_it_is() {
    for kind in ALL {
        let model = load(kind, LoadOptions::default());
        let mut other = prompt(3, 60);
        let first = logprobs(&*model, &other);
        other[0] += 1;
        assert_ne!(first, logprobs(&*model, &other));
    }
}

#[test]
fn a_prompt_goes_on_from_the_last_snapshot_that_it_shares() {
    for kind in ALL {
        let with = load(kind, LoadOptions { prefix_cache: Some(1 << 22), ..Default::default() });
        let without = load(kind, LoadOptions::default());
        let found = |prompt: &[u32], tokens: usize| {
            let mut generation =
                with.generate(&Prompt::Ids(prompt.to_vec()), &drawn(tokens, 1)).unwrap();
            let answer: Vec<u32> = generation.by_ref().map(|token| token.unwrap().id).collect();
            assert_eq!(answer, run(&*without, prompt, tokens, 1), "{} ids", prompt.len());
            let metrics = &generation.outcome().unwrap().metrics;
            (answer, (metrics.cached_prompt_tokens, metrics.cache_miss))
        };
        let first = prompt(1, 200);
        let (answer, cached) = found(&first, 100);
        assert_eq!(cached, (0, Some(CacheMiss::Empty)));
        assert_eq!(found(&first, 5).1, (192, None));
        // Between snapshots there is nothing to go on from.
        assert_eq!(found(&first[..150], 5).1, (0, Some(CacheMiss::Ends)));
        // That left one where the shorter prompt's last whole block ends.
        assert_eq!(found(&first[..150], 5).1, (128, None));
        // The next turn of a conversation: 300 ids were there, of which 256 fill blocks.
        let second = [first, answer, prompt(7, 40)].concat();
        assert_eq!(found(&second, 5).1, (256, Some(CacheMiss::Ends)));
        assert!(with.status().prefix_cache_bytes > 0);
    }
}

#[test]
fn only_layers_with_attention_are_inspected() {
    for kind in KINDS {
        let model = load(kind, LoadOptions::default());
        let inspector = model.attention_inspector().unwrap();
        let inspect = |layers: Option<Vec<usize>>| {
            let options = InspectOptions { layers, weights: true, ..Default::default() };
            inspector.inspect_attention(&Prompt::Ids(prompt(1, 20)), &options)
        };
        let all = inspect(None).unwrap();
        assert_eq!(all.layers.iter().map(|layer| layer.layer).collect::<Vec<_>>(), [1, 3]);
        let one = inspect(Some(vec![3])).unwrap();
        assert_eq!(one.layers[0], all.layers[1]);
        let error = inspect(Some(vec![3, 2])).unwrap_err().to_string();
        assert!(error.contains("layer 2 has no attention") && error.contains("[1, 3]"), "{error}");
    }
}

#[test]
fn labels_and_prompts_of_any_length_are_scored_as_alone() {
    for kind in ALL {
        let model = load(kind, LoadOptions::default());
        let prompts: Vec<Prompt> =
            [5, 90, 17, 1, 60, 33].map(|length| Prompt::Ids(prompt(length as u32, length))).into();
        let labels = ["a", "abc", "hello there"].map(str::to_owned).to_vec();
        let options = ClassifyOptions {
            labels,
            generate: GenerateOptions { logits: true, ..Default::default() },
        };
        let together = model.classify(&prompts, &options).unwrap();
        for (prompt, together) in prompts.iter().zip(&together) {
            let alone = &model.classify(std::slice::from_ref(prompt), &options).unwrap()[0];
            assert_eq!(alone.token.id, together.token.id);
            let near = |a: &f32, b: &f32| (a - b).abs() < 1e-4;
            let (found, expected) = (together.logits.as_ref(), alone.logits.as_ref());
            assert!(found.unwrap().iter().zip(expected.unwrap()).all(|(a, b)| near(a, b)));
            assert_eq!(alone.labels.len(), together.labels.len());
            for (found, expected) in together.labels.iter().zip(&alone.labels) {
                assert!(near(&found.logprob, &expected.logprob), "{found:?} {expected:?}");
            }
        }
    }
}

#[test]
fn a_row_that_is_set_back_by_memory_goes_on_as_alone() {
    if !crate::is_alone("hybrids::a_row_that_is_set_back_by_memory_goes_on_as_alone") {
        return;
    }
    // A position takes 2 layers of 2 × 32 values.
    goes_on_where_memory_ends(Checkpoint::hybrid(4), 512);
}

#[test]
fn twenty_thousand_tokens_take_no_memory_beside_their_keys() {
    if !crate::is_alone("hybrids::twenty_thousand_tokens_take_no_memory_beside_their_keys") {
        return;
    }
    let model = Checkpoint::hybrid(2).config("max_position_embeddings", 30_000.into()).model();
    let mut generation = model.generate(&Prompt::Ids(prompt(1, 5)), &drawn(20_000, 3)).unwrap();
    let mut samples = Vec::new();
    for (at, token) in (1..).zip(generation.by_ref()) {
        token.unwrap();
        if at % 2000 == 0 {
            // Keys and values of one layer, of 32 values each.
            let keys = at * 256;
            let active = metal_backend::system().unwrap().active_memory_bytes;
            samples.push((active.saturating_sub(keys), resident().saturating_sub(keys)));
        }
    }
    assert_eq!(samples.len(), 10);
    // Buffers of keys grow by steps, of which one may be in use while the next one is made.
    assert!(samples.iter().all(|(active, _)| *active < 256 << 10), "{samples:?}");
    let (first, last) = (samples[0].1, samples[9].1);
    assert!(last < first + (4 << 20), "{samples:?}");
}

/// Bytes of the process that lie in memory, where the system tells.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 10, ..Default::default() })]

    #[test]
    fn rows_are_what_they_are_alone_with_prefixes_and_packed_keys(
        kind in prop::sample::select(ALL.to_vec()),
        mix in mixes(10, 90)) {
        // State spaces alone have no keys that could be packed.
        let has_keys = !kind(1).config["model_type"].as_str().unwrap().starts_with("mamba");
        each_is_what_it_is_alone(&mix, |options| {
            let kv_bits = options.kv_bits.filter(|_| has_keys);
            load(kind, LoadOptions { kv_bits, ..options })
        })?;
    }
}
