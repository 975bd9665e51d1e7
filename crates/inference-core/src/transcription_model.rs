//! The contract of a loaded model that transcribes speech.

use crate::{EngineStatus, Result, Samples, StoredAs, TranscribeOptions, Transcription};

/// Description of a loaded model that transcribes speech.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TranscriptionModelInfo {
    /// The architecture, `model_type` in `config.json`.
    pub architecture: String,
    /// The codes of the languages that it knows, such as `en`, in the model's order. A model of one
    /// language has one code.
    pub languages: Vec<String>,
    /// It translates speech to English.
    pub translates: bool,
    /// It says when each word was spoken.
    pub times_words: bool,
    /// Samples a second of the sound that it hears.
    pub sample_rate: u32,
    /// Seconds that it hears at once; longer sound is heard in several windows.
    pub window_seconds: f64,
    /// The most tokens of a window, the model's own included.
    pub max_tokens: usize,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Blocks of the encoder, and of the decoder.
    pub num_layers: [usize; 2],
    /// Values of a position's state.
    pub hidden_size: usize,
    /// Parameters, packed ones counted as what they stand for.
    pub num_parameters: u64,
    /// Bytes of the weights as they are held in memory.
    pub weight_bytes: u64,
    /// The form that its files have them in.
    pub stored_as: StoredAs,
    /// Bits of packed weights, 0 where they are not packed.
    pub quant_bits: usize,
    /// The type of activations: `f32`, `f16` or `bf16`.
    pub dtype: String,
    /// The device that computes.
    pub device: String,
}

/// A loaded model that transcribes speech. Any number of threads may call it at once.
///
/// Every call validates its options first and honours each, or refuses it by name. What other
/// sound is transcribed at the same time changes no token of a result on a CPU.
pub trait TranscriptionModel: Send + Sync {
    /// Returns the model's description.
    fn info(&self) -> &TranscriptionModelInfo;

    /// Begins to transcribe.
    ///
    /// # Errors
    /// Before anything is queued: [`Error::InvalidOption`](crate::Error::InvalidOption),
    /// [`Error::Unsupported`](crate::Error::Unsupported),
    /// [`Error::QueueFull`](crate::Error::QueueFull), [`Error::Closed`](crate::Error::Closed). What
    /// goes wrong later, [`Error::Memory`](crate::Error::Memory) included, is the last item of the
    /// [`Transcription`].
    fn transcribe(&self, sound: Samples, options: &TranscribeOptions) -> Result<Transcription>;

    /// Returns the state of the engine at this moment.
    fn status(&self) -> EngineStatus {
        EngineStatus::default()
    }

    /// Cancels all requests, frees the model, and waits until both is done. Later requests are
    /// refused with [`Error::Closed`](crate::Error::Closed).
    fn close(&self);
}
