//! The inputs of a load on the engine thread.

use inference_core::LoadOptions;
use mlx_ffi::Device;

use crate::config::Config;
use crate::files::ModelFiles;
use crate::kernels::{Bf16, Kernels};

/// The inputs of a load on the engine thread.
#[derive(Clone)]
pub(crate) struct EngineOptions {
    pub files: ModelFiles,
    pub config: Config,
    pub device: Device,
    /// Whose kernels it computes with.
    pub kernels: Kernels,
    /// How it computes weights of bf16.
    pub bf16: Bf16,
    pub load: LoadOptions,
    /// The model that drafts, where there is one.
    pub drafting: Option<Drafting>,
}

/// A model that drafts for another one.
#[derive(Clone)]
pub(crate) struct Drafting {
    pub files: ModelFiles,
    pub config: Config,
}
