//! Language models on Apple's MLX: Metal on Apple silicon, CUDA or the CPU on Linux.
//!
//! [`register`] makes the backends `metal`, `cuda` and `cpu` known to `inference-core`; programs
//! use models through that crate's contract alone.
//!
//! On a CPU under Linux, where MLX's own products are slow, weights are multiplied by kernels of
//! our own; with `ML_CPU_KERNELS=off` in the environment a model is loaded on MLX's instead. See
//! [`cpu_kernels`].
//!
//! ```no_run
//! use inference_core::{GenerateOptions, LoadOptions, Prompt, TextModel};
//!
//! metal_backend::register()?;
//! let model = inference_core::load_model("path/to/model".as_ref(), &LoadOptions::default())?;
//! for token in model.generate(&Prompt::from("Once upon a time"), &GenerateOptions::default())? {
//!     print!("{}", token?.text);
//! }
//! # Ok::<(), inference_core::Error>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(feature = "embeddings", feature = "images", feature = "speech")),
    allow(dead_code, unused_imports, reason = "parts of the kinds of models that are left out")
)]

mod backend;
mod cache;
mod config;
mod convert;
#[cfg(feature = "embeddings")]
mod embeddings;
mod engine;
mod error;
mod files;
mod gguf;
mod hearing;
#[cfg(feature = "images")]
mod images;
mod kernels;
mod layers;
mod load;
mod model;
mod models;
#[cfg(feature = "parts")]
pub mod parts;
mod plan;
mod sampling;
mod shape;
mod sight;
mod special_tokens;
#[cfg(feature = "speech")]
mod speech;
mod weights;

pub use backend::{
    EmbeddedFiles, System, architectures, cpu_kernels, describe, describe_embedded,
    describe_embedding_model, describe_image_model, describe_random, describe_speech_model,
    describe_transcription_model, give_back, is_embedding_model, is_speech_model,
    is_transcription_model, load_embedded, load_random, outline, quantise, register, system,
};
pub use convert::{Packing, QuantiseOptions, Quantised, Recipe, Rule, packing};
#[cfg(feature = "speech")]
pub use speech::espeak_ng;
