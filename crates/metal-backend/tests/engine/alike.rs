//! Models of every kind of state: rows of a batch are what they are alone.

use inference_core::{GenerateOptions, LoadOptions, Prompt, TextModel};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::tiny::Checkpoint;
use crate::{drawn, ids, some};

/// Ids that say nothing but differ by `salt`.
pub fn prompt(salt: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| 2 + (i * i + i * salt + salt) % 28).collect()
}

pub fn run(model: &dyn TextModel, prompt: &[u32], tokens: usize, seed: u64) -> Vec<u32> {
    ids(model.generate(&Prompt::Ids(prompt.to_vec()), &drawn(tokens, seed)).unwrap())
}

/// Log probabilities of greedy tokens, each of which a wrong state would change.
pub fn logprobs(model: &dyn TextModel, prompt: &[u32]) -> Vec<f32> {
    let options = GenerateOptions { logprobs: true, temperature: Some(0.0), ..some(12) };
    let generation = model.generate(&Prompt::Ids(prompt.to_vec()), &options).unwrap();
    generation.map(|token| token.unwrap().logprob.unwrap()).collect()
}

/// Four rows of 1200 tokens with room for two and a half, where a position takes so many bytes.
pub fn goes_on_where_memory_ends(checkpoint: Checkpoint, position: u64) {
    let checkpoint = checkpoint.config("max_position_embeddings", 100_000.into());
    let model = checkpoint.model();
    let alone: Vec<_> = (0..4).map(|i| run(&*model, &prompt(2, 3), 1200, i)).collect();
    let mut generation = model.generate(&Prompt::Ids(prompt(2, 3)), &some(1200)).unwrap();
    generation.by_ref().for_each(|token| drop(token.unwrap()));
    let active = generation.outcome().unwrap().metrics.active_memory_bytes;
    drop(model);
    let limit = active + position * 3100 + 200 * 1024;
    let load = LoadOptions { memory_limit: Some(limit), ..Default::default() };
    let model = checkpoint.load(&load).unwrap();
    let started: Vec<_> = (0..4)
        .map(|i| model.generate(&Prompt::Ids(prompt(2, 3)), &drawn(1200, i)).unwrap())
        .collect();
    for (found, expected) in started.into_iter().map(ids).zip(alone) {
        assert_eq!(found, expected);
    }
}

/// Requests at once, some of which are cancelled, and how the model is loaded for them.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Salt and length of a prompt, tokens, and whether it is cancelled.
    requests: Vec<(u32, usize, usize, bool)>,
    slots: usize,
    chunk: usize,
    kv_bits: Option<usize>,
    /// Of the prefix cache, in units of 16 KiB.
    kept: u64,
}

/// Mixes of fewer requests than `most`, of fewer tokens than `tokens`.
pub fn mixes(most: usize, tokens: usize) -> impl Strategy<Value = Mix> {
    let request = (0..3u32, 1..220usize, 1..tokens, any::<bool>());
    let kv_bits = prop::option::of(prop::sample::select(vec![4, 8]));
    (prop::collection::vec(request, 2..most), 1..5usize, 3..200usize, kv_bits, 1..60u64).prop_map(
        |(requests, slots, chunk, kv_bits, kept)| Mix { requests, slots, chunk, kv_bits, kept },
    )
}

/// Each request of a mix gets what it gets alone.
pub fn each_is_what_it_is_alone(
    mix: &Mix,
    load: impl Fn(LoadOptions) -> Box<dyn TextModel>,
) -> TestCaseResult {
    let Mix { requests, slots, chunk, kv_bits, kept } = mix;
    let plain =
        LoadOptions { kv_bits: *kv_bits, prefill_chunk: Some(*chunk), ..Default::default() };
    let without = load(plain.clone());
    let with = load(LoadOptions {
        prefix_cache: Some(kept * 16_384),
        parallel_slots: Some(*slots),
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
    Ok(())
}
