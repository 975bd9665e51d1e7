//! Requests to a model that transcribes speech: its sound, and the options of load and request.

use std::str::FromStr;

use crate::{CancelToken, Dtype, Error, LoadOptions, Result};

/// Sound in memory, of one channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// Values from -1 to 1.
    pub values: Vec<f32>,
    /// Values a second.
    pub rate: u32,
}

impl Samples {
    /// The length in seconds.
    pub fn seconds(&self) -> f64 {
        self.values.len() as f64 / f64::from(self.rate.max(1))
    }
}

/// How a model that transcribes speech is loaded. A backend that does not honour a set option
/// refuses it by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TranscriptionLoadOptions {
    /// The backend's name; `None`: the first available one.
    pub backend: Option<String>,
    /// The type that weights and activations are held in; `None`: the checkpoint's own.
    pub dtype: Option<Dtype>,
    /// Bytes that weights and activations may take together; `None`, or more than the device has:
    /// what it has.
    pub memory_limit: Option<u64>,
    /// Requests that are heard at the same time; `None`: as the device allows.
    pub parallel: Option<usize>,
    /// Requests that may wait before further ones are refused with [`Error::QueueFull`]; `None`: as
    /// many as come.
    pub queue_limit: Option<usize>,
    /// Threads that compute on a CPU, for all models of the process; `None`: all that it has.
    pub threads: Option<usize>,
}

impl TranscriptionLoadOptions {
    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with the first bad option's name.
    pub fn validate(&self) -> Result<()> {
        if self.parallel == Some(0) {
            return Err(invalid("parallel", "0 requests are none".into()));
        }
        // What all kinds of model have is checked once.
        let (memory_limit, threads) = (self.memory_limit, self.threads);
        LoadOptions { memory_limit, threads, ..LoadOptions::default() }.validate()
    }
}

/// The text that becomes of speech.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpeechTask {
    /// The words that were spoken.
    #[default]
    Transcribe,
    /// Their translation to English.
    Translate,
}

/// The times that a transcription states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timestamps {
    /// None are asked for. Sound that is longer than a window is cut at segments all the same.
    #[default]
    None,
    /// The beginning and the end of each segment.
    Segments,
    /// Those of each word too.
    Words,
}

impl FromStr for Timestamps {
    type Err = Error;

    /// `none`, `segments` or `words`.
    fn from_str(name: &str) -> Result<Timestamps> {
        match name {
            "none" => Ok(Timestamps::None),
            "segments" => Ok(Timestamps::Segments),
            "words" => Ok(Timestamps::Words),
            _ => {
                Err(invalid("timestamps", format!("`{name}` is not one of none, segments, words")))
            }
        }
    }
}

/// The signs by which a window is heard again with another temperature, or left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Fallback {
    /// The temperatures in turn; the first one that gives a good text counts, else the last.
    pub temperatures: Vec<f32>,
    /// A text is repeated too much when its bytes are so many times those of their compressed form.
    pub compression_ratio: Option<f32>,
    /// A text is guessed when the mean of its tokens' log probabilities is below this.
    pub logprob: Option<f32>,
    /// A window is silent when the probability of no speech is above this and its text is guessed.
    pub no_speech: Option<f32>,
}

impl Default for Fallback {
    /// The values that OpenAI published with Whisper.
    fn default() -> Fallback {
        Fallback {
            temperatures: vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
            compression_ratio: Some(2.4),
            logprob: Some(-1.0),
            no_speech: Some(0.6),
        }
    }
}

/// How sound is transcribed. Unset is the model's own default.
#[derive(Clone, Debug, Default)]
pub struct TranscribeOptions {
    /// The code or the English name of the language that is spoken; `None`: the model finds out.
    pub language: Option<String>,
    /// The text that becomes of speech.
    pub task: SpeechTask,
    /// Words that may occur in the sound, or the text before it: spelling and style follow it.
    pub prompt: Option<String>,
    /// The times that are stated.
    pub timestamps: Timestamps,
    /// The temperature of draws; `None` or 0: the most probable token.
    pub temperature: Option<f32>,
    /// The seed of draws; `None`: another one each time.
    pub seed: Option<u64>,
    /// The most tokens of a window; `None`: as many as the model takes.
    pub max_tokens: Option<usize>,
    /// The text of earlier windows is the prompt of later ones; `None`: it is not.
    pub condition_on_previous: Option<bool>,
    /// Signs by which a window is heard again; `None`: each window is heard once.
    pub fallback: Option<Fallback>,
    /// Ends the work between two tokens.
    pub cancel: CancelToken,
}

impl TranscribeOptions {
    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with the first bad option's name.
    pub fn validate(&self) -> Result<()> {
        let fallback = self.fallback.iter().flat_map(|fallback| &fallback.temperatures);
        for temperature in self.temperature.iter().chain(fallback) {
            if !(0.0..=2.0).contains(temperature) {
                let reason = format!("{temperature} is not between 0 and 2");
                return Err(invalid("temperature", reason));
            }
        }
        if self.max_tokens == Some(0) {
            return Err(invalid("max_tokens", "0 tokens are no text".into()));
        }
        match &self.fallback {
            Some(fallback) if fallback.temperatures.is_empty() => {
                Err(invalid("fallback", "it names no temperature".into()))
            }
            Some(_) if self.temperature.is_some_and(|temperature| temperature > 0.0) => {
                let reason = "given together with `temperature`, which it sets: choose one";
                Err(invalid("fallback", reason.into()))
            }
            _ => Ok(()),
        }
    }
}

fn invalid(option: &'static str, reason: String) -> Error {
    Error::InvalidOption { option, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(options: &TranscribeOptions) -> &'static str {
        match options.validate() {
            Err(Error::InvalidOption { option, .. }) => option,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let none = TranscribeOptions::default();
        none.validate().unwrap();
        for temperature in [-0.1, 2.1, f32::NAN] {
            let options = TranscribeOptions { temperature: Some(temperature), ..none.clone() };
            assert_eq!(wrong(&options), "temperature");
        }
        let fallback = Fallback::default();
        let hot = Fallback { temperatures: vec![0.0, 3.0], ..fallback.clone() };
        let empty = Fallback { temperatures: Vec::new(), ..fallback.clone() };
        let of = |fallback, temperature| TranscribeOptions {
            fallback: Some(fallback),
            temperature,
            ..none.clone()
        };
        assert_eq!(wrong(&of(hot, None)), "temperature");
        assert_eq!(wrong(&of(empty, None)), "fallback");
        assert_eq!(wrong(&of(fallback.clone(), Some(0.5))), "fallback");
        of(fallback, Some(0.0)).validate().unwrap();
        assert_eq!(wrong(&TranscribeOptions { max_tokens: Some(0), ..none }), "max_tokens");
        let none = TranscriptionLoadOptions { parallel: Some(0), ..Default::default() };
        assert!(none.validate().unwrap_err().to_string().contains("parallel"));
    }
}
