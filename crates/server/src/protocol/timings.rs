//! The times of a request, as llama.cpp's server tells them.

use serde_json::{Value as Json, json};

use crate::error::Result;
use crate::fields::reader::Reader;
use crate::run::part::Usage;

/// When the times of a request are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// With each part of an answer that has a token, and with the whole.
    Told,
    /// In no part, and with the whole where the protocol always has them.
    Untold,
}

impl Times {
    /// Takes the field `timings_per_token`.
    ///
    /// # Errors
    /// It is neither true nor false.
    pub fn of(reader: &mut Reader) -> Result<Times> {
        let is_told = reader.bool("timings_per_token")?.unwrap_or(false);
        Ok(if is_told { Times::Told } else { Times::Untold })
    }
}

/// The times of a request, in milliseconds. Tokens that a cache held were not read.
pub fn timings(usage: Usage) -> Json {
    let of = |tokens: usize, milliseconds: f64| {
        let each = if tokens == 0 { 0.0 } else { milliseconds / tokens as f64 };
        let rate = if each == 0.0 { 0.0 } else { 1e3 / each };
        (each, rate)
    };
    let read = usage.prompt.saturating_sub(usage.cached);
    let (prompt_ms, predicted_ms) =
        (usage.prefill_time.as_secs_f64() * 1e3, usage.decode_time.as_secs_f64() * 1e3);
    let (prompt_each, prompt_rate) = of(read, prompt_ms);
    let (each, rate) = of(usage.completion, predicted_ms);
    json!({
        "cache_n": usage.cached,
        "prompt_n": read,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_each,
        "prompt_per_second": prompt_rate,
        "predicted_n": usage.completion,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": each,
        "predicted_per_second": rate,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::timings;
    use crate::run::part::Usage;

    #[test]
    fn rates_are_those_of_what_was_computed() {
        let usage = Usage {
            prompt: 30,
            cached: 10,
            completion: 4,
            prefill_time: Duration::from_millis(40),
            decode_time: Duration::from_millis(200),
            ..Usage::default()
        };
        let told = timings(usage);
        assert_eq!((&told["prompt_n"], &told["cache_n"]), (&20.into(), &10.into()));
        assert_eq!(told["prompt_per_second"], 500.0);
        assert_eq!(
            (&told["predicted_per_token_ms"], &told["predicted_per_second"]),
            (&50.0.into(), &20.0.into())
        );
        assert_eq!(timings(Usage::default())["predicted_per_second"], 0.0);
    }
}
