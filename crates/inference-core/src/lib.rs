//! The contract between programs that want text, pictures or vectors from a model, or the words of
//! speech, or speech, and the backends that produce them: [`Backend`], [`TextModel`],
//! [`ImageModel`], [`EmbeddingModel`], [`TranscriptionModel`], [`SpeechModel`], options, messages,
//! metrics and errors.
//!
//! The crate has no dependencies, starts no threads and touches no file but to list folders
//! ([`discover`]), so a program or a backend can be written, compiled and tested against it on a
//! machine without any inference engine.
//!
//! ```
//! use inference_core::{GenerateOptions, Prompt, Result, TextModel};
//!
//! fn first_line(model: &dyn TextModel, prompt: &str) -> Result<String> {
//!     let options = GenerateOptions { max_tokens: Some(64), stop: vec!["\n".into()], ..Default::default() };
//!     let mut text = String::new();
//!     for token in model.generate(&Prompt::from(prompt), &options)? {
//!         text.push_str(&token?.text);
//!     }
//!     Ok(text)
//! }
//! ```
//!
//! Backends are registered explicitly ([`register`]) and found by name or by preference
//! ([`load_model`]); nothing registers itself behind the program's back.

#![forbid(unsafe_code)]

mod activations;
mod answer;
mod backend;
mod cancel;
mod capability;
mod chat_options;
mod constraint;
mod discover;
mod dry;
mod embedding_model;
mod embedding_request;
mod encoded_picture;
mod encoded_sound;
mod error;
mod generation;
mod image_generation;
mod image_model;
mod image_request;
mod inspect;
mod load_progress;
mod message;
mod metrics;
mod model;
mod model_info;
mod options;
mod penalty;
mod picture_limits;
mod prompt;
mod ranks;
mod registry;
mod results;
mod sound_limits;
mod speculate;
mod speech;
mod speech_model;
mod speech_request;
mod transcription;
mod transcription_model;
mod transcription_request;
mod utf8;
mod value;

pub use activations::CpuActivations;
pub use answer::{Answer, AnswerReader, AnswerStep, Answering, Piece, PlainReader, ToolCall};
pub use backend::{Backend, Preference};
pub use cancel::CancelToken;
pub use capability::{Capabilities, Feature, Support};
pub use chat_options::ChatOptions;
pub use constraint::{Constraint, ReasoningBudget, ReasoningMarks};
pub use discover::{
    DiscoveredModel, ModelKind, discover, is_gguf, is_gguf_model, model_kind, unfinished,
};
pub use dry::Dry;
pub use embedding_model::{EmbeddingModel, EmbeddingModelInfo, Embeddings, PairScores};
pub use embedding_request::{
    EmbedInput, EmbedOptions, EmbeddingLoadOptions, Pooling, ScoreOptions, TextPair, Truncate,
};
pub use encoded_picture::EncodedPicture;
pub use encoded_sound::EncodedSound;
pub use error::{Error, Result};
pub use generation::{
    FinishReason, Generation, GenerationSender, Outcome, PrefillProgress, Token, TokenLogprob,
};
pub use image_generation::{
    GeneratedImage, ImageEvent, ImageFacts, ImageGeneration, ImagePhase, ImageSender,
};
pub use image_model::{ImageComponent, ImageModel, ImageModelInfo};
pub use image_request::{ImageLoadOptions, ImageRequest, Latents, Picture};
pub use inspect::{
    AttentionInspector, AttentionSnapshot, AttentionWeights, InspectOptions, LayerAttention,
};
pub use load_progress::{LoadProgress, WeightsRead};
pub use message::{Message, Role};
pub use metrics::{CacheMiss, EngineStatus, GenerateMetrics, LastMetrics, StepTimes};
pub use model::TextModel;
pub use model_info::{ModelInfo, Packing, SpecialToken, StoredAs};
pub use options::{ClassifyOptions, Dtype, GenerateOptions, LoadOptions, Xtc};
pub use penalty::PenaltyScope;
pub use picture_limits::{PictureLimits, PictureTokens};
pub use prompt::{PlacedPicture, PlacedSound, Prompt, PromptPart, RenderedPrompt};
pub use ranks::{RankSplit, Ranks};
pub use registry::{
    Registry, backends, default_backend, get_backend, global, load_embedding_model,
    load_image_model, load_model, load_speech_model, load_transcription_model, register,
    resolve_by,
};
pub use results::{BatchResult, ClassifyResult, LabelScore};
pub use sound_limits::SoundLimits;
pub use speculate::Speculate;
pub use speech::{Speech, SpeechEvent, SpeechMetrics, SpeechSender, SpokenPiece};
pub use speech_model::{SpeechModel, SpeechModelInfo};
pub use speech_request::{SpeakOptions, SpeechLoadOptions, SpeechText};
pub use transcription::{
    SpeechSegment, SpokenWord, Transcript, Transcription, TranscriptionEvent, TranscriptionMetrics,
    TranscriptionSender, WindowFacts,
};
pub use transcription_model::{TranscriptionModel, TranscriptionModelInfo};
pub use transcription_request::{
    Fallback, Samples, SpeechTask, Timestamps, TranscribeOptions, TranscriptionLoadOptions,
};
pub use utf8::{NotUtf8, utf8_text};
pub use value::Value;
