//! Resources of a process after many loads and many requests. The figures are the process's, so
//! these tests are a binary of their own and run one after the other.

#![allow(clippy::unwrap_used, reason = "a test ends where its setting fails")]

#[path = "tiny/mod.rs"]
mod tiny;

use std::sync::{Mutex, PoisonError};

use inference_core::{
    CancelToken, Error, FinishReason, GenerateOptions, LoadOptions, Prompt, TextModel,
};
use serde_json::json;
use tiny::Checkpoint;

static ALONE: Mutex<()> = Mutex::new(());

fn active() -> usize {
    mlx_ffi::memory::active().unwrap()
}

fn some(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { max_tokens: Some(max_tokens), ignore_eos: true, ..Default::default() }
}

#[cfg(target_os = "linux")]
#[test]
fn loads_and_failed_loads_leave_no_thread_and_no_memory_behind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let sound = Checkpoint::qwen3();
    let broken = Checkpoint::qwen3().config("vocab_size", json!(7));
    let round = || {
        let model = sound.model();
        assert_eq!(model.generate(&"abc".into(), &some(3)).unwrap().count(), 3);
        drop(model);
        assert!(broken.load(&LoadOptions::default()).is_err());
    };
    round();
    let before = (threads(), active());
    (0..20).for_each(|_| round());
    assert_eq!(active(), before.1);
    // Threads may still be on their way out, and the test harness starts some of its own.
    let most = before.0 + 4;
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while threads() > most && std::time::Instant::now() < patience {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(threads() <= most, "{} threads after 20 rounds, {} before", threads(), before.0);
}

/// Runs one request to its end and returns the memory in use and the peak that it tells.
fn figures(model: &dyn TextModel, options: &GenerateOptions) -> (u64, u64) {
    let mut generation = model.generate(&"abc abc abc".into(), options).unwrap();
    for token in generation.by_ref() {
        token.unwrap();
    }
    let metrics = &generation.outcome().unwrap().metrics;
    assert!(metrics.peak_memory_bytes > metrics.active_memory_bytes, "{metrics:?}");
    (metrics.active_memory_bytes, metrics.peak_memory_bytes)
}

#[test]
fn two_hundred_generations_leave_memory_and_peak_as_they_were() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let model = Checkpoint::with_sizes(2, 64, 128).model();
    let first = figures(&*model, &some(20));
    for _ in 0..200 {
        let (active, peak) = figures(&*model, &some(20));
        assert_eq!(active, first.0);
        // Whether a step's buffers are freed before the next one's are taken is a matter of timing.
        assert!(peak <= first.1 + first.1 / 10, "{peak} after {}", first.1);
    }
}

#[test]
fn requests_that_fail_or_are_cancelled_leave_memory_as_it_was() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let options = LoadOptions {
        prefill_chunk: Some(1),
        memory_limit: Some((active() + (1 << 20)) as u64),
        ..Default::default()
    };
    let checkpoint = Checkpoint::qwen3().config("max_position_embeddings", json!(50_000_000));
    let model = checkpoint.load(&options).unwrap();
    let (before, _) = figures(&*model, &some(5));
    let settled = || figures(&*model, &some(5)).0;
    for _ in 0..20 {
        // Too large.
        let failed = model.generate(&"abc".into(), &some(10_000_000)).unwrap().next();
        assert!(failed.unwrap().is_err());
        // Cancelled by its token, in decode.
        let cancel = CancelToken::new();
        let options = GenerateOptions { cancel: cancel.clone(), ..some(5000) };
        let mut generation = model.generate(&"abc".into(), &options).unwrap();
        generation.next().unwrap().unwrap();
        cancel.cancel();
        for token in generation.by_ref() {
            token.unwrap();
        }
        let outcome = generation.outcome().unwrap();
        assert_eq!(outcome.finish_reason, FinishReason::Cancelled);
        assert_eq!(outcome.metrics.active_memory_bytes, before);
        // Dropped in prefill.
        drop(model.generate(&Prompt::Ids(vec![3; 3000]), &some(5)).unwrap());
        assert_eq!(settled(), before);
    }
    drop(model);
}

#[test]
fn freed_memory_can_be_asked_for_at_any_time_until_the_model_is_closed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let model = Checkpoint::with_sizes(2, 64, 128).model();
    assert_eq!(model.clear_cache(), Ok(()), "before the first request");
    let expected: Vec<_> = model.generate(&"abc".into(), &some(40)).unwrap().collect();
    let mut running = model.generate(&"abc".into(), &some(40)).unwrap();
    let first = running.next().unwrap();
    assert_eq!(model.clear_cache(), Ok(()), "while one runs");
    assert_eq!([first].into_iter().chain(running).collect::<Vec<_>>(), expected);
    assert_eq!(mlx_ffi::memory::cached().unwrap(), 0);
    model.close();
    assert_eq!(model.clear_cache(), Err(Error::Closed));
}
