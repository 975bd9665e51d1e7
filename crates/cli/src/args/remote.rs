//! A server that is measured, and the load on it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value as Json};

use super::values;

/// An interface of OpenAI's protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Interface {
    /// `/v1/completions`.
    #[default]
    Completions,
    /// `/v1/chat/completions`.
    Chat,
}

/// The use of `ignore_eos` in requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Ends {
    /// Unless the server refuses it.
    #[default]
    Auto,
    /// Always.
    Yes,
    /// Never.
    No,
}

/// How many ids a vocabulary has, where that was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vocab(pub Option<u32>);

fn vocab(text: &str) -> Result<Vocab, String> {
    match text {
        "auto" => Ok(Vocab(None)),
        _ => values::token_id(text).map(|count| Vocab(Some(count))),
    }
}

fn spread(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(spread) if (0.0..=1.0).contains(&spread) => Ok(spread),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

fn object(text: &str) -> Result<Map<String, Json>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))
}

/// Load on a server.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load on a server")]
pub struct RemoteArgs {
    /// Measure the server at this address by OpenAI's protocol; --model is its name for the model
    #[arg(long, value_name = "URL", conflicts_with_all = [
        "shape", "bits", "depth", "concurrency", "breakdown", "repeat", "backend", "dtype",
        "context_length", "prefill_chunk", "pipeline", "memory_limit", "cache_limit", "wired_limit", "kv_bits",
        "kv_group_size", "adapter", "draft_model", "speculate", "parallel", "queue_limit", "batch_invariant", "cpu_activations",
    ])]
    pub url: Option<String>,
    /// So many clients, each sends its next request when its answer has ended; a list is measured
    /// in turn, such as 1,8,64 [default: 1]
    #[arg(long, value_name = "N", value_parser = values::count, value_delimiter = ',')]
    pub clients: Vec<usize>,
    /// So many requests a second, at random times that wait for no answer; a list is measured in
    /// turn
    #[arg(long, value_name = "R", value_delimiter = ',', conflicts_with = "clients")]
    pub rate: Vec<f64>,
    /// Endpoint for generated prompts [default: completions]
    #[arg(long, value_name = "NAME", value_enum)]
    pub api: Option<Interface>,
    /// Requests of each load [default: 4 for each client]
    #[arg(long, value_name = "COUNT", value_parser = values::count)]
    pub requests: Option<usize>,
    /// Begin requests for so long, and wait for their answers [default with --rate: 30]
    #[arg(long, value_name = "S", value_parser = values::seconds,
          conflicts_with = "requests")]
    pub seconds: Option<Duration>,
    /// Requests before each load that are not counted [default: 1 for each client]
    #[arg(long, value_name = "COUNT", value_parser = values::count)]
    pub warm_up: Option<usize>,
    /// Send the requests of a JSON-lines file (`-`: stdin): texts, or objects with `prompt` or
    /// `messages` and any fields
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["prompt", "prompt_ids", "shared_prefix", "spread"])]
    pub requests_file: Option<PathBuf>,
    /// Send random ids in place of text; VOCAB is how many the server knows [default: it tells]
    #[arg(long, value_name = "VOCAB", value_parser = vocab, num_args = 0..=1, require_equals = true,
          default_missing_value = "auto")]
    pub prompt_ids: Option<Vocab>,
    /// Tokens that all prompts begin with [default: 0]
    #[arg(long, value_name = "N", value_parser = values::count)]
    pub shared_prefix: Option<usize>,
    /// Spread the lengths of prompts and answers around -p and -n: the deviation of their
    /// logarithms, 0 to 1, such as 0.8 [default: 0, all alike]
    #[arg(long, value_name = "S", value_parser = spread)]
    pub spread: Option<f64>,
    /// Send `ignore_eos`; auto: with generated prompts, unless the server refuses it
    #[arg(long, value_name = "WHEN", value_enum)]
    pub ignore_eos: Option<Ends>,
    /// Further fields of each request, a JSON object
    #[arg(long, value_name = "JSON", value_parser = object)]
    pub fields: Option<Map<String, Json>>,
    /// Makes prompts and arrivals [default: from the clock]
    #[arg(long, value_name = "N", value_parser = values::whole)]
    pub seed: Option<u64>,
    /// Give a request up after so many seconds [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    pub timeout: Option<Duration>,
}
