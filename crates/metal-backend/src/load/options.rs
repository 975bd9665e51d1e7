//! The inputs of a load on the engine thread.

use inference_core::LoadOptions;
use mlx_ffi::Device;

use crate::config::Config;
use crate::files::ModelFiles;
use crate::kernels::Kernels;

/// The inputs of a load on the engine thread.
pub(crate) struct EngineOptions {
    pub files: ModelFiles,
    pub config: Config,
    pub device: Device,
    /// Whose kernels it computes with.
    pub kernels: Kernels,
    pub load: LoadOptions,
    /// The model that drafts, where there is one.
    pub drafting: Option<Drafting>,
}

/// A model that drafts for another one.
pub(crate) struct Drafting {
    pub files: ModelFiles,
    pub config: Config,
}
