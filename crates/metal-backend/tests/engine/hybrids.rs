//! Models with recurrent states beside attention: everything that works for attention alone works for
//! them, and gives the same tokens.

use inference_core::{
    CacheMiss, ClassifyOptions, GenerateOptions, InspectOptions, LoadOptions, Prompt, TextModel,
};
use proptest::prelude::*;

use crate::tiny::Checkpoint;
use crate::{drawn, ids, some};

/// Gated delta nets, short convolutions and Mamba 2, each beside attention in every second layer; with
/// Mamba 2 some layers remember nothing.
const KINDS: [fn(usize) -> Checkpoint; 4] = [
    Checkpoint::hybrid,
    Checkpoint::convolutions,
    Checkpoint::nemotron_h,
    Checkpoint::latent_nemotron_h,
];

/// These, and Mamba 2 beside attention in each layer.
const ALL: [fn(usize) -> Checkpoint; 5] =
    [KINDS[0], KINDS[1], KINDS[2], KINDS[3], Checkpoint::falcon_h1];

fn load(kind: fn(usize) -> Checkpoint, options: LoadOptions) -> Box<dyn TextModel> {
    kind(4).load(&options).unwrap()
}

/// Ids that say nothing but differ by `salt`.
fn prompt(salt: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| 2 + (i * i + i * salt + salt) % 28).collect()
}

fn run(model: &dyn TextModel, prompt: &[u32], tokens: usize, seed: u64) -> Vec<u32> {
    ids(model.generate(&Prompt::Ids(prompt.to_vec()), &drawn(tokens, seed)).unwrap())
}

/// Log probabilities of greedy tokens, each of which a wrong state would change.
fn logprobs(model: &dyn TextModel, prompt: &[u32]) -> Vec<f32> {
    let options = GenerateOptions { logprobs: true, temperature: Some(0.0), ..some(12) };
    let generation = model.generate(&Prompt::Ids(prompt.to_vec()), &options).unwrap();
    generation.map(|token| token.unwrap().logprob.unwrap()).collect()
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
    let checkpoint = Checkpoint::hybrid(4).config("max_position_embeddings", 100_000.into());
    let model = checkpoint.model();
    let alone: Vec<_> = (0..4).map(|i| run(&*model, &prompt(2, 3), 1200, i)).collect();
    let mut generation = model.generate(&Prompt::Ids(prompt(2, 3)), &some(1200)).unwrap();
    generation.by_ref().for_each(|token| drop(token.unwrap()));
    let active = generation.outcome().unwrap().metrics.active_memory_bytes;
    drop(model);
    // A position takes 2 layers of 2 × 32 values: 512 bytes; room for two and a half rows of 1200.
    let limit = active + 512 * 3100 + 200 * 1024;
    let load = LoadOptions { memory_limit: Some(limit), ..Default::default() };
    let model = checkpoint.load(&load).unwrap();
    let started: Vec<_> = (0..4)
        .map(|i| model.generate(&Prompt::Ids(prompt(2, 3)), &drawn(1200, i)).unwrap())
        .collect();
    for (found, expected) in started.into_iter().map(ids).zip(alone) {
        assert_eq!(found, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 10, ..Default::default() })]

    #[test]
    fn rows_are_what_they_are_alone_with_prefixes_and_packed_keys(
        kind in prop::sample::select(KINDS.to_vec()),
        requests in prop::collection::vec((0..3u32, 1..220usize, 1..90usize, any::<bool>()), 2..10),
        slots in 1..5usize,
        chunk in 3..200usize,
        kv_bits in prop::option::of(prop::sample::select(vec![4, 8])),
        kept in 1..60u64,
    ) {
        let plain = LoadOptions { kv_bits, prefill_chunk: Some(chunk), ..Default::default() };
        let without = load(kind, plain.clone());
        let with = load(kind, LoadOptions {
            prefix_cache: Some(kept * 16_384),
            parallel_slots: Some(slots),
            ..plain
        });
        let mut running = Vec::new();
        for (at, (salt, length, tokens, cancel)) in requests.iter().enumerate() {
            let prompt = prompt(*salt, *length);
            let options = drawn(*tokens, at as u64);
            let generation = with.generate(&Prompt::Ids(prompt.clone()), &options).unwrap();
            // One that goes in the middle leaves what it computed.
            if *cancel { drop(generation) } else { running.push((at, prompt, *tokens, generation)) }
        }
        for (at, prompt, tokens, generation) in running {
            prop_assert_eq!(ids(generation), run(&*without, &prompt, tokens, at as u64));
        }
    }
}
