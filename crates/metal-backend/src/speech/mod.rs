//! Models that transcribe speech. Whisper hears requests side by side on a thread of their own,
//! window by window; Parakeet hears them as wholes.

mod alignment;
mod checkpoint;
mod languages;
mod marks;
mod model;
mod network;
mod parakeet;
mod rules;
mod segments;
mod session;
mod transcriber;

pub(crate) use model::MlxTranscriptionModel;
pub(crate) use parakeet::{ParakeetModel, is_known as is_parakeet};
