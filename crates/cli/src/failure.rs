//! Why a command ended badly: one line for a person, one exit code for a script.

use std::io;
use std::path::Path;

use inference_core::Error;

use crate::bytes;

/// The result of a command.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// The end of a command that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A usage error: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The contract's own error.
    #[error("{}", for_terminal(.0))]
    Model(#[from] Error),
    /// Anything else that has a reason: exit code 1.
    #[error("{0}")]
    Other(String),
    /// The reader of stdout has left; that is its right.
    #[error("stdout is closed")]
    ClosedPipe,
    /// Ctrl-C or SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// An agent of `ml launch` ended with this code, which becomes the program's.
    #[error("the agent ended with the code {0}")]
    Agent(u8),
    /// A check of `ml doctor` failed, which its report told.
    #[error("a check failed")]
    Unhealthy,
}

impl Failure {
    /// As an error of the contract; one of ours is an error of its text.
    pub fn into_contract(self) -> Error {
        match self {
            Failure::Model(error) => error,
            other => Error::Engine(other.to_string()),
        }
    }
}

/// The exit code after Ctrl-C, as shells count it.
pub const INTERRUPTED: u8 = 130;

impl From<hub::Error> for Failure {
    fn from(error: hub::Error) -> Self {
        match error {
            hub::Error::Name { .. } | hub::Error::Setting { .. } => {
                Failure::Usage(error.to_string())
            }
            hub::Error::NoRoom { folder, need, free } => Failure::Other(format!(
                "{}: {} are to come and {} are free: free some, or set HF_HUB_CACHE to another disk",
                folder.display(),
                bytes::human(need),
                bytes::human(free)
            )),
            other => Failure::Other(other.to_string()),
        }
    }
}

impl Failure {
    /// An error of a model that reads texts and answers none.
    pub fn of_text(error: Error) -> Self {
        match error {
            Error::PromptTooLong { .. } => {
                Failure::Other(format!("{error}: shorten the text, or give --truncate end"))
            }
            other => Failure::Model(other),
        }
    }

    /// An error of writing to stdout.
    pub fn from_stdout(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => Failure::Other(format!("stdout: {}", reason(&error))),
        }
    }

    /// The exit code: 0 for a closed pipe, 1 for a failure, 2 for bad usage, 130 for Ctrl-C.
    pub fn code(&self) -> u8 {
        match self {
            Failure::ClosedPipe => 0,
            Failure::Other(_) | Failure::Unhealthy => 1,
            Failure::Usage(_) => 2,
            Failure::Interrupted => INTERRUPTED,
            Failure::Agent(code) => *code,
            Failure::Model(error) => match error {
                Error::InvalidOption { .. }
                | Error::Unsupported { .. }
                | Error::BackendNotRegistered { .. } => 2,
                _ => 1,
            },
        }
    }
}

/// The reason in an error of clap's, without its usage.
pub fn reason_of_arguments(error: &clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// The system's reason, without the number that it appends and what stands behind it.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// `text` without the numbers that the system appends to its reasons: `(os error 2)`.
pub fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => text + rest,
        _ => text + " (os error " + part,
    })
}

/// The failure at a place in the file system.
pub fn at(place: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    |error| Failure::Other(format!("{}: {}", place.display(), reason(&error)))
}

/// `error` in the words of the command line: flags in place of field names, and a remedy.
fn for_terminal(error: &Error) -> String {
    match error {
        Error::InvalidOption { option, reason } => {
            format!("{}: {}", flag(option), with_flags(reason))
        }
        Error::Unsupported { what, reason } => match flag_of(what) {
            Some(flag) => format!("{flag} is not supported: {}", with_flags(reason)),
            None => with_flags(&error.to_string()),
        },
        Error::BackendNotRegistered { .. } | Error::BackendNotAvailable { .. } => {
            format!("{error} (`ml doctor` shows what runs here)")
        }
        Error::PromptTooLong { .. } => format!("{error}: shorten the prompt or the conversation"),
        _ => error.to_string(),
    }
}

/// `reason` with flags in place of the options of the contract that it quotes.
pub fn with_flags(reason: &str) -> String {
    let mut text = String::with_capacity(reason.len());
    let mut parts = reason.split('`');
    text.push_str(parts.next().unwrap_or_default());
    while let Some(quoted) = parts.next() {
        match (flag_of(quoted), parts.next()) {
            (Some(flag), Some(behind)) => text.extend([flag.as_str(), behind]),
            (None, Some(behind)) => text.extend(["`", quoted, "`", behind]),
            (_, None) => text.extend(["`", quoted]),
        }
    }
    text
}

/// Options of the contract whose flags have their names; a test holds them to both.
const OPTIONS: [&str; 66] = [
    "backend",
    "batch_invariant",
    "cache_limit",
    "condition_on_previous",
    "context_length",
    "cpu_activations",
    "dimensions",
    "draft_model",
    "draft_tokens",
    "dtype",
    "fallback",
    "frequency_penalty",
    "guidance",
    "guidance_normalization",
    "guidance_truncation",
    "height",
    "ignore_eos",
    "instruction",
    "kv_bits",
    "kv_group_size",
    "labels",
    "language",
    "latents",
    "layers",
    "logit_bias",
    "logits",
    "logprobs",
    "max_tokens",
    "memory_limit",
    "min_p",
    "min_tokens",
    "negative_prompt",
    "parallel",
    "penalty_scope",
    "penalty_window",
    "pooling",
    "prefill_chunk",
    "prefix_cache",
    "prefix_cache_dir",
    "prefix_cache_disk",
    "presence_penalty",
    "prompt",
    "prompt_logprobs",
    "prompt_name",
    "queue_limit",
    "reasoning",
    "reasoning_budget",
    "repetition_penalty",
    "seed",
    "special_tokens",
    "speculate",
    "speed",
    "steps",
    "stop",
    "temperature",
    "threads",
    "timestamps",
    "top_k",
    "top_logprobs",
    "top_n_sigma",
    "top_p",
    "truncate",
    "typical_p",
    "voice",
    "width",
    "wired_limit",
];

/// The flag that sets the option `field`.
fn flag(field: &str) -> String {
    if field == "images" {
        return "--input-image".to_owned();
    }
    flag_of(field).unwrap_or_else(|| format!("--{}", kebab(field)))
}

/// The flag of an option, where the program has one.
pub fn flag_of(field: &str) -> Option<String> {
    let flag = match field {
        "adapter_path" => "--adapter",
        "parallel_slots" => "--parallel",
        "pipeline" => "--pipeline",
        "quantize" => "--quantise",
        "dry.sequence_breakers" => "--dry-sequence-breaker",
        "stop_token_ids" => "--stop-token-id",
        "tools" => "--tools",
        "task" => "--translate",
        "normalize" => "--normalise",
        "constraint" => "--json-schema, --regex or --grammar",
        same if OPTIONS.contains(&same) => &format!("--{}", kebab(same)),
        _ => return None,
    };
    Some(flag.to_owned())
}

fn kebab(field: &str) -> String {
    field.replace(['_', '.'], "-")
}

#[cfg(test)]
mod tests {
    use inference_core::{Error, GenerateOptions, LoadOptions};

    use super::{Failure, with_flags, without_numbers};

    #[test]
    fn a_bad_option_is_named_by_its_flag() {
        let options = GenerateOptions { top_p: Some(2.0), ..Default::default() };
        let failure = Failure::from(options.validate().unwrap_err());
        assert_eq!(failure.to_string(), "--top-p: 2 is not at least 0 and at most 1");
        assert_eq!(failure.code(), 2);

        let options = LoadOptions { parallel_slots: Some(0), ..Default::default() };
        let failure = Failure::from(options.validate().unwrap_err());
        assert_eq!(failure.to_string(), "--parallel: must be at least 1");
    }

    #[test]
    fn a_refused_option_is_named_by_its_flag() {
        let refused = |what: &str| {
            let reason = "not yet".to_owned();
            Failure::from(Error::Unsupported { what: what.to_owned(), reason })
        };
        assert_eq!(refused("kv_bits").to_string(), "--kv-bits is not supported: not yet");
        assert_eq!(refused("adapter_path").to_string(), "--adapter is not supported: not yet");
        assert_eq!(refused("images").to_string(), "`images` is not supported: not yet");
        assert_eq!(refused("kv_bits").code(), 2);
    }

    #[test]
    fn a_reason_names_flags_too() {
        let options = LoadOptions { kv_group_size: Some(32), ..Default::default() };
        let failure = Failure::from(options.validate().unwrap_err());
        assert_eq!(failure.to_string(), "--kv-group-size: says nothing without --kv-bits");
    }

    #[test]
    fn words_that_are_no_options_stay_as_they_are_quoted() {
        for reason in ["`uniqueItems` of `a_b` is not held", "label `x", "``", "no quotes"] {
            assert_eq!(with_flags(reason), reason);
        }
    }

    #[test]
    fn a_reason_of_the_system_has_no_number() {
        let told = "a: No such file (os error 2); b: denied (os error 13)!";
        assert_eq!(without_numbers(told), "a: No such file; b: denied!");
        assert_eq!(without_numbers("an (os error of mine)"), "an (os error of mine)");
    }

    #[test]
    fn a_text_that_is_too_long_can_be_truncated() {
        let failure = Failure::of_text(Error::PromptTooLong { tokens: 9, limit: 8 });
        assert!(failure.to_string().ends_with("shorten the text, or give --truncate end"));
        assert_eq!(failure.code(), 1);
    }

    #[test]
    fn exit_codes_tell_failure_from_usage() {
        let load = Error::Load { path: "x".into(), reason: "missing".into() };
        assert_eq!(Failure::from(load).code(), 1);
        assert_eq!(Failure::from(Error::EmptyPrompt).code(), 1);
        assert_eq!(Failure::Interrupted.code(), 130);
        assert_eq!(Failure::ClosedPipe.code(), 0);
    }
}
