//! Cancelling: queued, in prefill, in decode, by a deadline, by dropping.

use std::time::{Duration, Instant};

use inference_core::{CancelToken, FinishReason, GenerateOptions, Generation, Prompt};

use crate::{endless, ids, slow, some};

fn with(cancel: &CancelToken, max_tokens: usize) -> GenerateOptions {
    GenerateOptions { cancel: cancel.clone(), ..some(max_tokens) }
}

/// Reads to the end, which must be a cancellation and come soon; the number of tokens.
fn cancelled(mut generation: Generation) -> usize {
    let started = Instant::now();
    let count = generation.by_ref().map(Result::unwrap).count();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let outcome = generation.outcome().unwrap();
    assert_eq!(outcome.finish_reason, FinishReason::Cancelled);
    assert_eq!(outcome.metrics.generated_tokens, count);
    count
}

#[test]
fn in_prefill() {
    let model = slow();
    let cancel = CancelToken::new();
    let generation = model.generate(&endless(), &with(&cancel, 5)).unwrap();
    // What is read of the prompt is told while it is read.
    while generation.prefill().is_none_or(|read| read.processed == 0) {
        assert!(!generation.wait(Duration::from_millis(1)), "the prompt takes longer");
    }
    let read = generation.prefill().unwrap();
    assert_eq!((read.total, read.cached), (generation.prompt_ids().len(), 0));
    assert!(read.processed < read.total && read.tokens_per_second() > 0.0, "{read:?}");
    cancel.cancel();
    assert_eq!(cancelled(generation), 0);
    assert_eq!(model.generate(&"abc".into(), &some(3)).unwrap().count(), 3);
}

#[test]
fn in_decode() {
    let model = slow();
    let cancel = CancelToken::new();
    let mut generation = model.generate(&"abc".into(), &with(&cancel, 900_000)).unwrap();
    for _ in 0..5 {
        generation.next().unwrap().unwrap();
    }
    cancel.cancel();
    let started = Instant::now();
    let rest = generation.by_ref().map(Result::unwrap).count();
    assert!(started.elapsed() < Duration::from_secs(5));
    let outcome = generation.outcome().unwrap();
    assert_eq!(outcome.finish_reason, FinishReason::Cancelled);
    assert_eq!(outcome.metrics.generated_tokens, 5 + rest);
}

#[test]
fn while_queued_ends_at_once_though_another_request_runs() {
    let model = slow();
    let running = model.generate(&endless(), &some(5)).unwrap();
    let cancel = CancelToken::new();
    let queued = model.generate(&"abc".into(), &with(&cancel, 5)).unwrap();
    let behind = model.generate(&"abc".into(), &some(2)).unwrap();
    cancel.cancel();
    assert_eq!(cancelled(queued), 0);
    drop(running);
    assert_eq!(behind.count(), 2);
}

#[test]
fn before_the_call() {
    let model = slow();
    let cancel = CancelToken::new();
    cancel.cancel();
    assert_eq!(cancelled(model.generate(&"abc".into(), &with(&cancel, 5)).unwrap()), 0);
}

#[test]
fn at_a_deadline() {
    let model = slow();
    let cancel = CancelToken::with_deadline(Instant::now() + Duration::from_millis(150));
    assert_eq!(cancelled(model.generate(&endless(), &with(&cancel, 5)).unwrap()), 0);
    let passed = CancelToken::with_deadline(Instant::now());
    assert_eq!(cancelled(model.generate(&"abc".into(), &with(&passed, 5)).unwrap()), 0);
}

#[test]
fn by_dropping_the_generation() {
    let model = slow();
    let started = Instant::now();
    for _ in 0..5 {
        let _ = model.generate(&endless(), &some(5)).unwrap();
        let mut begun = model.generate(&"abc".into(), &some(900_000)).unwrap();
        begun.next().unwrap().unwrap();
    }
    assert_eq!(ids(model.generate(&Prompt::Ids(vec![3]), &some(3)).unwrap()).len(), 3);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn a_classification_that_is_cancelled_says_so() {
    let model = slow();
    let cancel = CancelToken::with_deadline(Instant::now() + Duration::from_millis(100));
    let generate = GenerateOptions { cancel, ..Default::default() };
    let options = inference_core::ClassifyOptions { generate, ..Default::default() };
    let error = model.classify(&["abc".into(), endless()], &options).unwrap_err();
    assert_eq!(error, inference_core::Error::Cancelled);
}
