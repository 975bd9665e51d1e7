//! The contract of a loaded model that speaks.

use crate::{EngineStatus, Result, SpeakOptions, Speech, SpeechText, StoredAs};

/// Description of a loaded model that speaks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeechModelInfo {
    /// The architecture, such as `kokoro`.
    pub architecture: String,
    /// The names of its voices, sorted.
    pub voices: Vec<String>,
    /// The voice where none is asked for.
    pub default_voice: Option<String>,
    /// Samples a second of what it says.
    pub sample_rate: u32,
    /// The most phonemes that are said at once; longer text is said in pieces.
    pub max_phonemes: usize,
    /// Phonemes that it knows.
    pub vocab_size: usize,
    /// Values of a phoneme's state.
    pub hidden_size: usize,
    /// Parameters.
    pub num_parameters: u64,
    /// Bytes of the weights as they are held in memory.
    pub weight_bytes: u64,
    /// The form that its files have them in.
    pub stored_as: StoredAs,
    /// The type of activations: `f32`, `f16` or `bf16`.
    pub dtype: String,
    /// The device that computes.
    pub device: String,
}

/// A loaded model that speaks. Any number of threads may call it at once.
///
/// Every call validates its options first and honours each, or refuses it by name.
pub trait SpeechModel: Send + Sync {
    /// Returns the model's description.
    fn info(&self) -> &SpeechModelInfo;

    /// Begins to speak.
    ///
    /// # Errors
    /// Before anything is queued: [`Error::InvalidOption`](crate::Error::InvalidOption) for a voice
    /// that it has not, a speed out of range or no text,
    /// [`Error::Unsupported`](crate::Error::Unsupported) for text that cannot be turned into
    /// phonemes here, [`Error::QueueFull`](crate::Error::QueueFull),
    /// [`Error::Closed`](crate::Error::Closed). What goes wrong later,
    /// [`Error::Memory`](crate::Error::Memory) included, is the last item of the [`Speech`].
    fn speak(&self, text: &SpeechText, options: &SpeakOptions) -> Result<Speech>;

    /// Returns the state of the engine at this moment.
    fn status(&self) -> EngineStatus {
        EngineStatus::default()
    }

    /// Cancels all requests, frees the model, and waits until both is done. Later requests are
    /// refused with [`Error::Closed`](crate::Error::Closed).
    fn close(&self);
}
