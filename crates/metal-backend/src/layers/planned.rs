//! Attention on CUDA for which MLX makes plans.

use mlx_ffi::{Array, Result, ops};

use crate::kernels::Kernels;

/// The most positions of a row that our own kernel attends to for a whole chunk of one text:
/// beyond, MLX's is faster.
pub(crate) const MOST_CHUNK_KEYS: i32 = 2048;
/// Positions of a whole chunk, or of one of several.
const WHOLE_CHUNK: i32 = 2048;

/// Returns true when our own kernel attends on CUDA for `l` positions of each of so many rows. The
/// furthest row ends at `end`. MLX's kernel has a plan for each shape and takes 90 ms to make one:
/// no two prompts are of one length.
pub(crate) fn is_for_kernels(rows: usize, l: i32, end: i32) -> bool {
    end <= MOST_CHUNK_KEYS || rows > 1 || l % WHOLE_CHUNK != 0
}

/// The keys and values that `l` positions see, as MLX's plans for whole chunks on CUDA take them: a
/// plan is of strides too, and buffers are as long as the whole prompt.
pub(super) fn for_plans(kernels: Kernels, seen: [&Array; 2], l: i32) -> Result<[Array; 2]> {
    let is_planned = kernels.is_on_cuda() && l % WHOLE_CHUNK == 0;
    let [k, v] = seen.map(|seen| if is_planned { ops::contiguous(seen) } else { seen.share() });
    Ok([k?, v?])
}
