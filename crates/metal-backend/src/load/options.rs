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
}
