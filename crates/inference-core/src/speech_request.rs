//! Requests to a model that speaks: its text, and the options of load and request.

use crate::{CancelToken, Dtype, Error, LoadOptions, Result};

/// The text that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpeechText {
    /// Text as people write it, in the voice's language.
    Plain(String),
    /// Phonemes in the symbols of the model.
    Phonemes(String),
}

impl SpeechText {
    /// The characters, of either kind.
    pub fn as_str(&self) -> &str {
        match self {
            SpeechText::Plain(text) | SpeechText::Phonemes(text) => text,
        }
    }
}

impl Default for SpeechText {
    fn default() -> Self {
        SpeechText::Plain(String::new())
    }
}

/// How a model that speaks is loaded. A backend that does not honour a set option refuses it by
/// name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeechLoadOptions {
    /// The backend's name; `None`: the first available one.
    pub backend: Option<String>,
    /// The type that weights and activations are held in; `None`: the backend's choice.
    pub dtype: Option<Dtype>,
    /// Bytes that weights and activations may take together; `None`, or more than the device has:
    /// what it has.
    pub memory_limit: Option<u64>,
    /// Requests that may wait before further ones are refused with [`Error::QueueFull`]; `None`: as
    /// many as come.
    pub queue_limit: Option<usize>,
    /// Threads that compute on a CPU, for all models of the process; `None`: all that it has.
    pub threads: Option<usize>,
}

impl SpeechLoadOptions {
    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with the first bad option's name.
    pub fn validate(&self) -> Result<()> {
        // What all kinds of model have is checked once.
        let (memory_limit, threads) = (self.memory_limit, self.threads);
        LoadOptions { memory_limit, threads, ..LoadOptions::default() }.validate()
    }
}

/// How a text is said.
#[derive(Clone, Debug, Default)]
pub struct SpeakOptions {
    /// The voice's name; `None`: the model's usual one.
    pub voice: Option<String>,
    /// How fast it is said, from 0.25 to 4; `None`: 1, as the voice speaks.
    pub speed: Option<f32>,
    /// Of random numbers, which are those of noise in a voice; `None`: 0.
    pub seed: Option<u64>,
    /// Ends the work when it fires.
    pub cancel: CancelToken,
}

impl SpeakOptions {
    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with the first bad option's name.
    pub fn validate(&self) -> Result<()> {
        if let Some(speed) = self.speed.filter(|speed| !(0.25..=4.0).contains(speed)) {
            let reason = format!("{speed} is not from 0.25 to 4");
            return Err(Error::InvalidOption { option: "speed", reason });
        }
        if self.voice.as_deref().is_some_and(|voice| voice.trim().is_empty()) {
            let reason = "the name is empty".into();
            return Err(Error::InvalidOption { option: "voice", reason });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_and_a_voice_have_their_ranges() {
        let of = |speed, voice: &str| SpeakOptions {
            speed,
            voice: Some(voice.into()),
            ..SpeakOptions::default()
        };
        assert_eq!(of(Some(0.25), "a").validate(), Ok(()));
        assert_eq!(of(None, "a").validate(), Ok(()));
        for (options, name) in [
            (of(Some(0.2), "a"), "speed"),
            (of(Some(f32::NAN), "a"), "speed"),
            (of(Some(4.5), "a"), "speed"),
            (of(None, " "), "voice"),
        ] {
            let error = options.validate().map_err(|error| error.to_string());
            assert!(error.is_err_and(|error| error.contains(name)), "{options:?}");
        }
    }
}
