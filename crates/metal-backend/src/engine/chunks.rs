//! The chunks in which prompts are read.

use inference_core::ModelInfo;
use mlx_ffi::Device;

use crate::error::Result;
use crate::load::EngineOptions;
use crate::plan::Room;

/// MLX's quantised kernels are right up to this many rows.
const MAX_CHUNK: usize = 32_768;

/// Prompt ids computed at once where the load options say nothing: enough to keep the device busy.
const fn usual(device: Device) -> usize {
    match device {
        Device::Gpu => 2048,
        Device::Cpu => 512,
    }
}

/// Positions of several prompts that are computed together, for a chunk of so many: as many as a
/// GPU computes in the time that sending them takes.
pub(super) fn pass(device: Device, chunk: usize) -> usize {
    match device {
        Device::Gpu => chunk.max(8192),
        Device::Cpu => chunk,
    }
}

/// The positions of a chunk of the model that `info` describes, within `limit` bytes: those that
/// the user asks for, else the usual ones. On Metal they are fewer where weights leave little of
/// the working set; `work` returns the bytes of a chunk of so many positions in a prompt of so
/// many. Several processes that compute one model have the same chunks, so they keep the usual
/// ones.
///
/// # Errors
/// Those of MLX.
pub(super) fn chunk(
    options: &EngineOptions,
    limit: u64,
    info: &ModelInfo,
    work: impl Fn(usize, usize) -> u64,
) -> Result<usize> {
    let EngineOptions { device, kernels, load, .. } = options;
    if let Some(asked) = load.prefill_chunk {
        return Ok(asked.min(MAX_CHUNK));
    }
    let usual = usual(*device);
    if *device == Device::Cpu || kernels.is_on_cuda() || load.ranks.is_some() {
        return Ok(usual);
    }
    let working_set = device.info()?.recommended_working_set.unwrap_or(u64::MAX);
    let room = Room {
        free: limit.min(working_set).saturating_sub(info.weight_bytes),
        position: info.kv_bytes_per_token,
        context: info.context_length,
    };
    Ok(room.chunk(usual, work))
}
