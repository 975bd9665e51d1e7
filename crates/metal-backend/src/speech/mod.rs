//! Models that transcribe speech, and that speak. Whisper hears requests side by side on a thread
//! of their own, window by window; Parakeet hears them as wholes. Kokoro says text piece by piece.

mod alignment;
mod checkpoint;
mod kokoro;
mod languages;
mod marks;
mod model;
mod network;
mod parakeet;
mod rules;
mod segments;
mod session;
mod transcriber;

pub use kokoro::espeak_ng;
pub(crate) use kokoro::{KokoroModel, is_known as is_kokoro};
pub(crate) use model::MlxTranscriptionModel;
pub(crate) use parakeet::{ParakeetModel, is_known as is_parakeet};
