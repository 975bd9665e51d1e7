//! Bytes that a prompt is admitted with, against those it takes. The figures are the process's, so
//! this test is a binary of its own.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test ends where its setting fails")]

#[allow(dead_code, reason = "each test binary takes what it needs")]
#[path = "parity/fixtures.rs"]
mod fixtures;

use std::sync::{Mutex, MutexGuard, PoisonError};

use fixtures::{Checkpoint, greedy, root, run};
use inference_core::{Error, GenerateOptions, InspectOptions, LoadOptions, Prompt};

/// Bytes that a prompt of `length` ids takes beside the weights, and bytes that it is said to need.
fn taken_and_needed(
    (name, adapter): (&str, Option<&str>),
    length: u32,
    options: &GenerateOptions,
) -> (u64, u64) {
    let checkpoint = Checkpoint::new(name);
    let ids: Vec<u32> = (0..length).map(|i| 5 + (i * i + 3 * i) % 300).collect();
    let prompt = Prompt::Ids(ids.clone());
    let adapter_path = adapter.map(|adapter| root().join("adapters").join(adapter));
    let adapted = LoadOptions { adapter_path, ..LoadOptions::default() };
    let load = |options| match adapter {
        // In f32 beside the weights' own type.
        Some(_) => checkpoint.load_native(options),
        None => checkpoint.load(options),
    };
    let model = load(adapted.clone());
    run(&*model, &ids[..1], &greedy(1));
    let mut generation = model.generate(&prompt, options).unwrap();
    generation.by_ref().for_each(|token| drop(token.unwrap()));
    let metrics = &generation.outcome().unwrap().metrics;
    let taken = metrics.peak_memory_bytes - metrics.active_memory_bytes;
    let limit = Some(metrics.active_memory_bytes + 4096);
    drop(model);
    let model = load(LoadOptions { memory_limit: limit, ..adapted });
    let mut generation = model.generate(&prompt, options).unwrap();
    match generation.next() {
        Some(Err(Error::Memory { needed, .. })) => (taken, needed),
        other => panic!("{name}: {other:?}"),
    }
}

/// The bytes that looking at all of a prompt's attention takes, and those that a refusal says it
/// needs.
fn taken_and_needed_to_look(name: &str, length: u32) -> (u64, u64) {
    let checkpoint = Checkpoint::new(name);
    let prompt = Prompt::Ids((0..length).map(|i| 5 + (i * i + 3 * i) % 300).collect());
    let all = InspectOptions { weights: true, ..InspectOptions::default() };
    let model = checkpoint.load(LoadOptions::default());
    model.attention_inspector().unwrap().inspect_attention(&prompt, &all).unwrap();
    let metrics = model.metrics().unwrap();
    let taken = metrics.peak_memory_bytes - metrics.active_memory_bytes;
    let limit = Some(metrics.active_memory_bytes + 4096);
    drop(model);
    let model = checkpoint.load(LoadOptions { memory_limit: limit, ..LoadOptions::default() });
    match model.attention_inspector().unwrap().inspect_attention(&prompt, &all) {
        Err(Error::Memory { needed, what, .. }) => {
            assert_eq!(what, format!("the attention of {length} tokens with its weights"));
            (taken, needed)
        }
        other => panic!("{name}: {other:?}"),
    }
}

/// One test at a time: memory is counted by process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_prompt_takes_no_more_than_it_is_admitted_with() {
    let _alone = alone();
    let plain =
        ["llama", "gemma3_text", "phi3", "olmo2", "qwen3_moe", "qwen3_moe-4bit-g64", "gpt_oss"];
    let adapted = [("llama", "llama-lora"), ("phi3", "phi3-lora"), ("qwen3", "qwen3-lora")];
    let adapted = adapted.map(|(name, adapter)| (name, Some(adapter)));
    for (name, adapter) in plain.map(|name| (name, None)).into_iter().chain(adapted) {
        // Of a long prompt most are scores, of a short one what feed-forward networks compute.
        for length in [12, 60, 500] {
            let reported = GenerateOptions { prompt_logprobs: true, top_logprobs: 5, ..greedy(1) };
            for options in [greedy(1), reported] {
                let (taken, needed) = taken_and_needed((name, adapter), length, &options);
                let told = if options.prompt_logprobs { ", prompt told" } else { "" };
                eprintln!("{name}, {adapter:?}{told}: {taken} of {needed} bytes");
                assert!(taken <= needed, "{name}{told}, {length} ids: {taken} of {needed} bytes");
            }
        }
    }
    // The values that are told lie outside what MLX counts.
    for name in ["llama", "gemma2", "gpt_oss"] {
        for length in [60, 500] {
            let (taken, needed) = taken_and_needed_to_look(name, length);
            eprintln!("{name}, attention: {taken} of {needed} bytes");
            assert!(taken <= needed, "{name}, {length} ids: {taken} of {needed} bytes");
        }
    }
}

#[test]
fn the_allocator_keeps_at_most_what_the_device_has() {
    let _alone = alone();
    let options = LoadOptions { cache_limit: Some(u64::MAX), ..LoadOptions::default() };
    drop(Checkpoint::new("llama").load(options));
    let device = mlx_ffi::memory::limit().unwrap();
    // The limit before is handed back.
    assert_eq!(mlx_ffi::memory::set_cache_limit(device).unwrap(), device);
}
