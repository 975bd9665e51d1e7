//! Keys and values of earlier requests: what is found, what is not and why, and that it changes
//! nothing.

use inference_core::{CacheMiss, GenerateMetrics, LoadOptions, Prompt, TextModel};
use proptest::prelude::*;
use serde_json::json;

use crate::tiny::Checkpoint;
use crate::{drawn, ids, some};

fn run(model: &dyn TextModel, prompt: &[u32], seed: u64) -> (Vec<u32>, GenerateMetrics) {
    let mut generation = model.generate(&Prompt::Ids(prompt.to_vec()), &drawn(20, seed)).unwrap();
    let found = generation.by_ref().map(|token| token.unwrap().id).collect();
    let metrics = generation.outcome().unwrap().metrics.clone();
    // All of it is told to be read but the last id, which may be the first step.
    // Where a cache holds all but the last id, nothing is read.
    if let Some(read) = generation.prefill() {
        assert_eq!((read.total, read.cached), (prompt.len(), metrics.cached_prompt_tokens));
        assert!(read.processed >= prompt.len() - 1, "{read:?}");
    }
    (found, metrics)
}

fn load(checkpoint: &Checkpoint, bytes: Option<u64>) -> Box<dyn TextModel> {
    checkpoint.load(&LoadOptions { prefix_cache: bytes, ..Default::default() }).unwrap()
}

/// Ids that say nothing but differ by `salt`.
fn prompt(salt: u32, length: u32) -> Vec<u32> {
    (0..length).map(|i| 2 + (i * i + i * salt + salt) % 28).collect()
}

#[test]
fn a_prompt_that_begins_alike_is_computed_from_there() {
    let checkpoint = Checkpoint::with_sizes(2, 16, 32);
    let (without, with) = (load(&checkpoint, None), load(&checkpoint, Some(1 << 20)));
    let found = |prompt: &[u32]| {
        let (alone, metrics) = run(&*without, prompt, 1);
        assert_eq!((metrics.cached_prompt_tokens, metrics.cache_miss), (0, Some(CacheMiss::Off)));
        let (tokens, metrics) = run(&*with, prompt, 1);
        assert_eq!(tokens, alone);
        (metrics.cached_prompt_tokens, metrics.cache_miss)
    };
    let first = prompt(1, 200);
    assert_eq!(found(&first), (0, Some(CacheMiss::Empty)));
    assert_eq!(found(&first), (192, None));
    // The last id is always computed.
    assert_eq!(found(&first[..129]), (128, None));
    assert_eq!(found(&first[..128]), (64, None));
    let mut other = first.clone();
    other[100] = if other[100] == 2 { 3 } else { 2 };
    assert_eq!(found(&other), (64, Some(CacheMiss::Differs)));
    assert_eq!(found(&other), (192, None));
    assert_eq!(found(&prompt(5, 100)), (0, Some(CacheMiss::Differs)));
    let longer = [first.clone(), prompt(9, 100)].concat();
    // The 20 tokens that followed the first prompt did not fill another block.
    assert_eq!(found(&longer), (192, Some(CacheMiss::Ends)));
    assert!(with.status().prefix_cache_bytes > 0);
    assert_eq!(without.status().prefix_cache_bytes, 0);
}

#[test]
fn an_answer_is_part_of_the_next_prompt() {
    let model = load(&Checkpoint::with_sizes(2, 16, 32), Some(1 << 20));
    let first = prompt(3, 70);
    let options = drawn(100, 4);
    let answer = ids(model.generate(&Prompt::Ids(first.clone()), &options).unwrap());
    let second = [first, answer, prompt(7, 10)].concat();
    let (_, metrics) = run(&*model, &second, 1);
    // 170 ids were there; the last one of them was never computed.
    assert_eq!(metrics.cached_prompt_tokens, 128);
}

#[test]
fn little_room_keeps_what_was_used_last() {
    let checkpoint = Checkpoint::with_sizes(1, 8, 16);
    // A block takes 64 positions × 2 × 4 values × 4 bytes: room for three.
    let model = load(&checkpoint, Some(3 * 2048 + 100));
    let cached = |salt| run(&*model, &prompt(salt, 130), 1).1.cached_prompt_tokens;
    assert_eq!(cached(1), 0);
    assert_eq!(cached(1), 128);
    // The first prompt had to go: blocks that were kept at once share their buffers.
    assert_eq!(cached(2), 0);
    assert_eq!(cached(2), 128);
    assert_eq!(model.status().prefix_cache_bytes, 2 * 2048);
    assert_eq!(cached(1), 0);
}

#[test]
fn buffers_stay_as_long_as_any_of_their_blocks() {
    let checkpoint = Checkpoint::with_sizes(1, 8, 16);
    let model = load(&checkpoint, Some(5 * 2048 + 100));
    let long = prompt(1, 260);
    let cached = |ids: &[u32]| run(&*model, ids, 1).1.cached_prompt_tokens;
    assert_eq!(cached(&long), 0);
    // Four blocks at once, of which the first is used again, beside one of another prompt.
    let begins = [&long[..64], &prompt(5, 80)[..]].concat();
    assert_eq!(cached(&begins), 64);
    assert_eq!(model.status().prefix_cache_bytes, 5 * 2048);
    // No room without all of the four.
    assert_eq!(cached(&prompt(9, 130)), 0);
    assert!(model.status().prefix_cache_bytes <= 5 * 2048);
    assert_eq!(cached(&prompt(9, 130)), 128);
}

#[test]
fn what_has_no_room_whole_is_kept_in_part() {
    let model = load(&Checkpoint::with_sizes(1, 8, 16), Some(2 * 2048 + 100));
    let cached = |ids: &[u32]| run(&*model, ids, 1).1.cached_prompt_tokens;
    assert_eq!(cached(&prompt(1, 260)), 0);
    assert_eq!(model.status().prefix_cache_bytes, 2 * 2048);
    assert_eq!(cached(&prompt(1, 260)), 128);
}

#[test]
fn requests_take_the_memory_that_the_cache_has() {
    if !crate::is_alone("prefixes::requests_take_the_memory_that_the_cache_has") {
        return;
    }
    let checkpoint = Checkpoint::qwen3().config("max_position_embeddings", json!(100_000));
    let model = checkpoint.model();
    let mut generation = model.generate(&"abc".into(), &some(1)).unwrap();
    generation.by_ref().for_each(drop);
    let active = generation.outcome().unwrap().metrics.active_memory_bytes;
    drop(model);
    let options = LoadOptions {
        prefix_cache: Some(u64::MAX),
        prefill_chunk: Some(64),
        memory_limit: Some(active + (1200 << 10)),
        ..Default::default()
    };
    let model = checkpoint.load(&options).unwrap();
    for salt in 0..20 {
        run(&*model, &prompt(salt, 1000), 1);
    }
    let kept = model.status().prefix_cache_bytes;
    assert!(kept > 0 && kept < 600 << 10, "{kept}");
}

#[test]
fn a_request_that_may_outgrow_a_bound_context_shares_nothing() {
    let options = LoadOptions {
        prefix_cache: Some(1 << 20),
        context_length: Some(150),
        ..Default::default()
    };
    let model = Checkpoint::with_sizes(2, 16, 32).load(&options).unwrap();
    for _ in 0..2 {
        let (_, metrics) = run(&*model, &prompt(1, 140), 1);
        assert_eq!((metrics.cached_prompt_tokens, metrics.cache_miss), (0, Some(CacheMiss::Bound)));
    }
    run(&*model, &prompt(1, 129), 1);
    assert_eq!(run(&*model, &prompt(1, 129), 1).1.cached_prompt_tokens, 128);
}

#[test]
fn sequences_that_are_encoded_otherwise_share_nothing() {
    let checkpoint = Checkpoint::with_sizes(2, 16, 32).longrope(150);
    let (without, with) = (load(&checkpoint, None), load(&checkpoint, Some(1 << 20)));
    let found = |prompt: &[u32]| {
        let (tokens, metrics) = run(&*with, prompt, 1);
        assert_eq!(tokens, run(&*without, prompt, 1).0);
        (metrics.cached_prompt_tokens, metrics.cache_miss)
    };
    let ids = prompt(1, 220);
    assert_eq!(found(&ids[..100]), (0, Some(CacheMiss::Empty)));
    assert_eq!(found(&ids[..151]), (0, Some(CacheMiss::Differs)));
    assert_eq!(found(&ids), (128, Some(CacheMiss::Ends)));
    assert_eq!(found(&ids[..130]), (64, Some(CacheMiss::Ends)));
    // The one before grew past 150 ids, and left what it held until then and after.
    assert_eq!(found(&ids[..150]), (128, None));
}

#[test]
fn packed_prefixes_are_taken_where_they_lead_to_the_same_numbers() {
    let checkpoint = Checkpoint::with_heads(32, 3, 32, 32);
    for bits in [8, 4] {
        let options = |prefix_cache| LoadOptions {
            kv_bits: Some(bits),
            prefill_chunk: Some(100),
            prefix_cache,
            ..Default::default()
        };
        let without = checkpoint.load(&options(None)).unwrap();
        let with = checkpoint.load(&options(Some(1 << 20))).unwrap();
        let found = |prompt: &[u32]| {
            let (tokens, metrics) = run(&*with, prompt, 1);
            assert_eq!(tokens, run(&*without, prompt, 1).0, "{bits} bits, {}", prompt.len());
            (metrics.cached_prompt_tokens, metrics.cache_miss)
        };
        let ids = prompt(1, 300);
        // Of a shorter prompt's first chunk nothing is kept: a longer one's sees more of it as it
        // is.
        assert_eq!(found(&ids[..90]), (0, Some(CacheMiss::Empty)));
        assert_eq!(found(&ids[..90]), (0, Some(CacheMiss::Empty)));
        assert_eq!(found(&ids[..250]), (0, Some(CacheMiss::Empty)));
        assert_eq!(found(&ids[..250]), (192, None));
        assert_eq!(found(&ids), (192, Some(CacheMiss::Differs)));
        // Short of a whole first chunk, the rest of it would see packed keys.
        assert_eq!(found(&ids[..110]), (0, Some(CacheMiss::FirstChunk)));
        assert_eq!(found(&ids[..129]), (128, None));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 10, ..Default::default() })]

    #[test]
    fn what_a_cache_holds_changes_no_token(
        cuts in prop::collection::vec((0..3u32, 1..300usize, 0..200usize, any::<bool>()), 2..14),
        window in prop::option::of(4..100usize),
        original in prop::option::of(2..300usize),
        (kv_bits, chunk) in (prop::option::of(prop::sample::select(vec![4, 8])), 20..200usize),
        kept in 1..40u64,
        slots in 1..5usize,
    ) {
        let mut checkpoint = Checkpoint::with_heads(32, 2, 16, 32);
        if let Some(window) = window {
            checkpoint = checkpoint
                .config("use_sliding_window", json!(true))
                .config("sliding_window", json!(window))
                .config("max_window_layers", json!(1));
        }
        if let Some(original) = original {
            checkpoint = checkpoint.longrope(original);
        }
        let plain =
            LoadOptions { kv_bits, prefill_chunk: Some(chunk), ..Default::default() };
        let without = checkpoint.load(&plain).unwrap();
        let options = LoadOptions {
            prefix_cache: Some(kept * 32_768),
            parallel_slots: Some(slots),
            ..plain
        };
        let with = checkpoint.load(&options).unwrap();
        let requests: Vec<(Vec<u32>, bool)> = cuts
            .iter()
            .map(|(salt, length, change, cancel)| {
                let mut prompt = prompt(*salt, *length as u32);
                if let Some(id) = prompt.get_mut(*change) {
                    *id = 2 + (*id + 3) % 28;
                }
                (prompt, *cancel)
            })
            .collect();
        let mut running = Vec::new();
        for (at, (prompt, cancel)) in requests.iter().enumerate() {
            let generation =
                with.generate(&Prompt::Ids(prompt.clone()), &drawn(20, at as u64)).unwrap();
            // One that goes in the middle leaves what it computed.
            if *cancel { drop(generation) } else { running.push((at, prompt, generation)) }
        }
        for (at, prompt, generation) in running {
            prop_assert_eq!(ids(generation), run(&*without, prompt, at as u64).0);
        }
    }
}
