//! Requests that run together: each is what it is alone, whoever comes, goes or fails beside it.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use inference_core::{
    CancelToken, Error, FinishReason, GenerateOptions, LoadOptions, Prompt, TextModel, Xtc,
};
use proptest::prelude::*;
use serde_json::json;

use crate::tiny::Checkpoint;
use crate::{drawn, ids, some};

/// A request of a random mix.
#[derive(Clone, Debug)]
struct Request {
    prompt: Vec<u32>,
    options: GenerateOptions,
}

fn request() -> impl Strategy<Value = Request> {
    let prompt = prop::collection::vec(2..30u32, 1..60);
    let draws = (prop::option::of(0.3..1.5f32), 0..1000u64, prop::option::of(0.5..1.0f32));
    let filters = (prop::option::of(1..10usize), prop::option::of(0.01..0.2f32), any::<bool>());
    let history = (prop::option::of(1.1..1.5f32), prop::option::of(0.1..0.5f32), 1..30usize);
    (prompt, 1..40usize, draws, filters, history).prop_map(
        |(prompt, max_tokens, (temperature, seed, top_p), (top_k, min_p, xtc), history)| {
            let options = GenerateOptions {
                temperature: Some(temperature.unwrap_or(0.0)),
                seed: Some(seed),
                top_p,
                top_k,
                min_p,
                xtc: xtc.then_some(Xtc { probability: 0.5, threshold: 0.1 }),
                repetition_penalty: history.0,
                frequency_penalty: history.1,
                // A window says nothing without a penalty.
                penalty_window: history.0.or(history.1).map(|_| history.2),
                logit_bias: if seed % 3 == 0 { [(5, -1.0), (6, 2.0)].into() } else { [].into() },
                stop_token_ids: if seed % 5 == 0 { vec![7] } else { Vec::new() },
                logprobs: seed % 2 == 0,
                ..some(max_tokens)
            };
            Request { prompt, options }
        },
    )
}

fn run(model: &dyn TextModel, request: &Request) -> Vec<u32> {
    ids(model.generate(&Prompt::Ids(request.prompt.clone()), &request.options).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 20, ..Default::default() })]

    #[test]
    fn a_row_is_what_it_is_alone(
        requests in prop::collection::vec(request(), 2..12),
        slots in 1..6usize,
        chunk in prop::option::of(1..40usize),
        window in prop::option::of(4..30usize),
        original in prop::option::of(2..70usize),
        batch_invariant in prop::bool::weighted(0.2),
    ) {
        let mut checkpoint = Checkpoint::with_sizes(2, 16, 32);
        if let Some(window) = window {
            checkpoint = checkpoint
                .config("use_sliding_window", json!(true))
                .config("sliding_window", json!(window))
                .config("max_window_layers", json!(1));
        }
        if let Some(original) = original {
            checkpoint = checkpoint.longrope(original);
        }
        let options = LoadOptions {
            parallel_slots: Some(slots),
            prefill_chunk: chunk,
            batch_invariant,
            ..Default::default()
        };
        let model = checkpoint.load(&options).unwrap();
        let alone: Vec<_> = requests.iter().map(|request| run(&*model, request)).collect();
        // Some are there at once, each of the others comes when one before it ends.
        let mut running = std::collections::VecDeque::new();
        let mut together = Vec::new();
        for request in &requests {
            if running.len() > slots {
                together.push(ids(running.pop_front().unwrap()));
            }
            let prompt = Prompt::Ids(request.prompt.clone());
            running.push_back(model.generate(&prompt, &request.options).unwrap());
        }
        together.extend(running.into_iter().map(ids));
        prop_assert_eq!(together, alone);
    }
}

#[test]
fn survivors_of_five_hundred_requests_with_cancels_are_what_they_are_alone() {
    if !crate::is_alone(
        "batching::survivors_of_five_hundred_requests_with_cancels_are_what_they_are_alone",
    ) {
        return;
    }
    let options = LoadOptions { parallel_slots: Some(32), ..Default::default() };
    let model = Checkpoint::with_sizes(2, 16, 32).load(&options).unwrap();
    let prompt = |i: u64| Prompt::Ids((0..1 + i as u32 * 7 % 90).map(|k| 2 + k % 28).collect());
    let settle = || {
        let mut generation = model.generate(&prompt(1), &drawn(2, 0)).unwrap();
        generation.by_ref().for_each(|token| drop(token.unwrap()));
        generation.outcome().unwrap().metrics.active_memory_bytes
    };
    let alone: Vec<_> =
        (0..20).map(|i| ids(model.generate(&prompt(i), &drawn(30, i)).unwrap())).collect();
    let before = settle();
    let mut started = Vec::new();
    for i in 0..500_u64 {
        let cancel = CancelToken::new();
        let options = GenerateOptions { cancel: cancel.clone(), ..drawn(30, i % 20) };
        let mut generation = model.generate(&prompt(i % 20), &options).unwrap();
        match i % 7 {
            // Queued or in prefill.
            0 => cancel.cancel(),
            // In decode.
            1 => {
                generation.next().unwrap().unwrap();
                cancel.cancel();
            }
            // Dropped wherever it is.
            2 => {
                drop(generation);
                continue;
            }
            _ => {}
        }
        started.push((i, generation));
        if started.len() > 48 {
            check(&mut started, &alone);
        }
    }
    while !started.is_empty() {
        check(&mut started, &alone);
    }
    let after = settle();
    assert!(after.abs_diff(before) < 1 << 20, "{after} after {before}");
    let status = model.status();
    assert_eq!((status.running, status.waiting, status.kv_bytes), (0, 0, 0), "{status:?}");
}

/// Reads the oldest generation to its end.
fn check(started: &mut Vec<(u64, inference_core::Generation)>, alone: &[Vec<u32>]) {
    let (i, mut generation) = started.remove(0);
    let found: Vec<u32> = generation.by_ref().map(|token| token.unwrap().id).collect();
    let expected = &alone[i as usize % 20];
    let outcome = generation.outcome().unwrap();
    if outcome.finish_reason == FinishReason::Cancelled {
        assert!(i % 7 < 2, "{i} was cancelled by nobody");
        // A token read before the cancel is not read again.
        assert!(expected.windows(found.len().max(1)).any(|part| part == found) || found.is_empty());
    } else if i % 7 > 2 {
        assert_eq!(found, *expected, "request {i}");
    }
}

#[test]
fn rows_that_outgrow_the_memory_are_set_back_and_are_what_they_are_alone() {
    if !crate::is_alone(
        "batching::rows_that_outgrow_the_memory_are_set_back_and_are_what_they_are_alone",
    ) {
        return;
    }
    let checkpoint = Checkpoint::qwen3().config("max_position_embeddings", json!(100_000));
    let model = checkpoint.model();
    let options = |i| drawn(1500, i);
    let alone: Vec<_> =
        (0..4).map(|i| ids(model.generate(&"abc".into(), &options(i)).unwrap())).collect();
    let mut generation = model.generate(&"abc".into(), &some(1500)).unwrap();
    generation.by_ref().for_each(|token| drop(token.unwrap()));
    let active = generation.outcome().unwrap().metrics.active_memory_bytes;
    drop(model);
    // A position takes 32 bytes: room for two and a half rows of 1500 and what a step needs.
    let limit = active + 32 * 3800 + 40 * 1024;
    let load = LoadOptions { memory_limit: Some(limit), ..Default::default() };
    let model = checkpoint.load(&load).unwrap();
    let started: Vec<_> =
        (0..4).map(|i| model.generate(&"abc".into(), &options(i)).unwrap()).collect();
    for (found, expected) in started.into_iter().map(ids).zip(alone) {
        assert_eq!(found, expected);
    }
}

#[test]
fn rows_of_packed_keys_that_are_set_back_are_what_they_are_alone() {
    if !crate::is_alone("batching::rows_of_packed_keys_that_are_set_back_are_what_they_are_alone") {
        return;
    }
    let checkpoint =
        Checkpoint::with_heads(32, 2, 32, 32).config("max_position_embeddings", json!(100_000));
    let packed = LoadOptions { kv_bits: Some(8), ..Default::default() };
    let model = checkpoint.load(&packed).unwrap();
    let options = |i| drawn(1500, i);
    let alone: Vec<_> =
        (0..4).map(|i| ids(model.generate(&"abc".into(), &options(i)).unwrap())).collect();
    let mut generation = model.generate(&"abc".into(), &some(1500)).unwrap();
    generation.by_ref().for_each(|token| drop(token.unwrap()));
    let active = generation.outcome().unwrap().metrics.active_memory_bytes;
    drop(model);
    // A position takes 2 layers of 2 × 32 values in 8 bits with two f32 for each 32 of them: 160
    // bytes; room for two and a half rows of 1500 and what a step needs.
    let limit = active + 160 * 3800 + 200 * 1024;
    let model = checkpoint.load(&LoadOptions { memory_limit: Some(limit), ..packed }).unwrap();
    let started: Vec<_> =
        (0..4).map(|i| model.generate(&"abc".into(), &options(i)).unwrap()).collect();
    for (found, expected) in started.into_iter().map(ids).zip(alone) {
        assert_eq!(found, expected);
    }
}

#[test]
fn a_full_queue_refuses_and_takes_again_later() {
    let options =
        LoadOptions { parallel_slots: Some(2), queue_limit: Some(1), ..Default::default() };
    let checkpoint = Checkpoint::qwen3().config("max_position_embeddings", json!(1_000_000));
    let model = checkpoint.load(&options).unwrap();
    let mut running: Vec<_> =
        (0..3).map(|_| model.generate(&"abc".into(), &some(900_000)).unwrap()).collect();
    let refused = model.generate(&"abc".into(), &some(1)).unwrap_err();
    assert_eq!(refused, Error::QueueFull { limit: 1 });
    running[0].next().unwrap().unwrap();
    running[1].next().unwrap().unwrap();
    let status = model.status();
    assert_eq!((status.running, status.waiting), (2, 1), "{status:?}");
    assert!(status.kv_bytes > 0);
    running.clear();
    while model.generate(&"abc".into(), &some(1)).is_err() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // All of them: two slots and one that waits.
    assert_eq!(model.batch_generate(&vec!["abc".into(); 9], &some(3)).unwrap().len(), 9);
}

#[test]
fn a_short_prompt_does_not_wait_for_a_long_one() {
    let options = LoadOptions { prefill_chunk: Some(2), ..Default::default() };
    let checkpoint = Checkpoint::qwen3().config("max_position_embeddings", json!(200_000));
    let model = checkpoint.load(&options).unwrap();
    let mut long = model.generate(&Prompt::Ids(vec![3; 100_000]), &some(1)).unwrap();
    let short = ids(model.generate(&"abc".into(), &some(20)).unwrap());
    assert_eq!(short.len(), 20);
    let waker = Waker::noop();
    assert!(matches!(long.poll_next(&mut Context::from_waker(waker)), Poll::Pending));
}

#[test]
fn a_sequence_that_outgrows_its_original_context_goes_on_as_if_it_had_begun_there() {
    let checkpoint = Checkpoint::with_sizes(2, 16, 32);
    let prompt = |length: u32| (0..length).map(|k| 2 + (k * k + 5 * k) % 28).collect::<Vec<u32>>();
    let greedy = GenerateOptions { temperature: Some(0.0), ..some(24) };
    let run = |model: &dyn TextModel, prompt: &[u32]| {
        ids(model.generate(&Prompt::Ids(prompt.to_vec()), &greedy).unwrap())
    };
    let load = |checkpoint: Checkpoint| checkpoint.load(&LoadOptions::default()).unwrap();
    // A model without another encoding, one that has it from the beginning, one in the middle.
    let [never, always, later] = [4000, 2, 30].map(|at| load(checkpoint.clone().longrope(at)));
    let first = prompt(20);
    let tokens = run(&*later, &first);
    assert_eq!(tokens[..11], run(&*never, &first)[..11]);
    let second = [&first[..], &tokens[..11]].concat();
    assert_eq!(tokens[11..], run(&*always, &second)[..13]);
    assert_ne!(tokens[11..], run(&*never, &second)[..13]);
}
