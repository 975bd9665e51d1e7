//! The engine through the public contract: many callers, cancelling, closing, text, metrics.

#![allow(clippy::unwrap_used, reason = "a test ends where its setting fails")]

#[path = "../tiny/mod.rs"]
mod tiny;

mod alike;
mod batching;
mod cancelling;
mod classifying;
mod closing;
mod constrained;
mod draft_models;
mod drafts;
mod hybrids;
mod kept;
mod latents;
mod out_of_memory;
mod prefixes;
mod prompt_logprobs;
mod shared_kv;
mod steps;
mod text;
mod together;
mod types;

use inference_core::{GenerateOptions, Generation, LoadOptions, Prompt, TextModel};
use serde_json::json;
use tiny::Checkpoint;

/// Returns true when this process runs the test `name` alone; if not, starts such a process and
/// waits. Memory is counted by process, so what other tests take at the same time would count.
fn is_alone(name: &str) -> bool {
    const ALONE: &str = "ML_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut process = std::process::Command::new(std::env::current_exe().unwrap());
    let output = process.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{complained}");
    false
}

/// `max_tokens` tokens, whatever the model says.
fn some(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { max_tokens: Some(max_tokens), ignore_eos: true, ..Default::default() }
}

/// Drawn tokens, so that they vary.
fn drawn(max_tokens: usize, seed: u64) -> GenerateOptions {
    GenerateOptions { temperature: Some(1.0), seed: Some(seed), ..some(max_tokens) }
}

fn ids(generation: Generation) -> Vec<u32> {
    generation.map(|token| token.unwrap().id).collect()
}

/// A model that runs one request after the other.
fn one_slot() -> Box<dyn TextModel> {
    let options = LoadOptions { parallel_slots: Some(1), ..Default::default() };
    Checkpoint::qwen3().load(&options).unwrap()
}

/// A model with one slot whose prefill takes a position at a time and whose context is long: slow
/// on demand.
fn slow() -> Box<dyn TextModel> {
    let checkpoint = Checkpoint::qwen3().config("max_position_embeddings", json!(1_000_000));
    let options =
        LoadOptions { prefill_chunk: Some(1), parallel_slots: Some(1), ..Default::default() };
    checkpoint.load(&options).unwrap()
}

/// A prompt that takes [`slow`] minutes.
fn endless() -> Prompt {
    Prompt::Ids(vec![3; 500_000])
}
