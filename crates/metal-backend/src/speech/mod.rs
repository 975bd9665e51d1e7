//! Models that transcribe speech (Whisper). Requests are heard side by side on a thread of their
//! own, window by window.

mod alignment;
mod checkpoint;
mod languages;
mod marks;
mod model;
mod network;
mod rules;
mod segments;
mod session;
mod transcriber;

pub(crate) use model::MlxTranscriptionModel;
