//! What the engine thread needs to load a model.

use inference_core::LoadOptions;
use mlx_ffi::Device;

use crate::config::Config;
use crate::files::ModelFiles;
use crate::kernels::Kernels;

/// What the engine thread needs to load a model.
pub(crate) struct EngineOptions {
    pub files: ModelFiles,
    pub config: Config,
    pub device: Device,
    /// Whose kernels it computes with.
    pub kernels: Kernels,
    /// Whether a row that leaves a batch leaves its slot to the next one that joins, so that buffers and captured
    /// steps stay. A vacant slot costs a step what a row does: little on a GPU.
    pub keeps_slots: bool,
    pub load: LoadOptions,
}
