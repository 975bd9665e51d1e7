//! The exit of a tower: from vectors of patches to vectors of the language model.

use mlx_ffi::{Array, Dtype, Result, ops};

use super::block::TowerNorm;
use crate::kernels::Activation;
use crate::layers::{Linear, RmsNorm};

/// Makes the language model's vectors of those behind the last block.
#[derive(Debug)]
pub(crate) enum Exit {
    /// The mean of squares of patches, normed and projected (Gemma 3).
    Pooled { last_norm: TowerNorm, pool: i32, norm: RmsNorm, projection: Linear },
    /// Squares of patches, one behind the other, through a network (Qwen).
    Merged(Merger),
    /// The mean of squares of patches, made wider and shifted, normed and projected (Gemma 4).
    Scaled {
        pool: i32,
        /// Subtracted first, then multiplied with: `[hidden_size]` each.
        standard: Option<[Array; 2]>,
        norm: RmsNorm,
        projection: Linear,
    },
    /// Normed, squares of patches side by side, merged, through a network (Pixtral).
    Unfolded { norm: RmsNorm, merge: i32, merging: Linear, network: [Linear; 2] },
}

/// A norm over each patch, then a network over `merge²` of them.
#[derive(Debug)]
pub(crate) struct Merger {
    pub norm: TowerNorm,
    /// The norm is over all patches of a square.
    pub norms_squares: bool,
    pub merge: i32,
    pub network: [Linear; 2],
}

impl Merger {
    /// `[1, n, hidden_size]`, the patches of a square one behind the other, to `[1, n / merge²,
    /// …]`.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let [_, n, size] = x.dims()?;
        let many = self.merge * self.merge;
        let squares = |x: &Array| ops::reshape(x, &[1, n / many, many * size]);
        let x = match self.norms_squares {
            true => self.norm.forward(&squares(x)?)?,
            false => squares(&self.norm.forward(x)?)?,
        };
        through(&self.network, &x)
    }
}

/// Two projections around the exact form of GELU.
fn through([into, out]: &[Linear; 2], x: &Array) -> Result<Array> {
    let x = into.forward(x)?;
    let one = Array::scalar(1.0, x.dtype())?;
    out.forward(&Activation::Gelu.gated(&x, &one)?)
}

impl Exit {
    /// `[1, n, hidden_size]` of a grid of patches to `[1, t, hidden_size]` of the language model.
    pub fn forward(&self, h: &Array, grid: [i32; 2]) -> Result<Array> {
        match self {
            Exit::Pooled { last_norm, pool, norm, projection } => {
                let pooled = pooled(&last_norm.forward(h)?, grid, *pool)?;
                projection.forward(&norm.forward(&pooled)?)
            }
            Exit::Merged(merger) => merger.forward(h),
            Exit::Scaled { pool, standard, norm, projection } => {
                let [_, _, size] = h.dims()?;
                let wide = pooled(&ops::astype(h, Dtype::F32)?, grid, *pool)?;
                let root = Array::scalar((size as f32).sqrt(), Dtype::F32)?;
                let mut wide = ops::multiply(&wide, &root)?;
                if let Some([bias, scale]) = standard {
                    wide = ops::multiply(&ops::subtract(&wide, bias)?, scale)?;
                }
                let x = ops::astype(&wide, h.dtype())?;
                projection.forward(&norm.forward(&x)?)
            }
            Exit::Unfolded { norm, merge, merging, network } => {
                let x = unfolded(&norm.forward(h)?, grid, *merge)?;
                through(network, &merging.forward(&x)?)
            }
        }
    }
}

/// The means of squares of `pool` patches a side, rows of the grid one after the other.
fn pooled(x: &Array, [rows, columns]: [i32; 2], pool: i32) -> Result<Array> {
    let [_, _, size] = x.dims()?;
    let squares = ops::reshape(x, &[rows / pool, pool, columns / pool, pool, size])?;
    let sum = ops::sum(&ops::sum(&squares, 3, false)?, 1, false)?;
    let part = Array::scalar(1.0 / (pool * pool) as f32, x.dtype())?;
    ops::reshape(&ops::multiply(&sum, &part)?, &[1, -1, size])
}

/// The values of squares of `merge` patches a side: of each value, those of all patches.
fn unfolded(x: &Array, [rows, columns]: [i32; 2], merge: i32) -> Result<Array> {
    let [_, _, size] = x.dims()?;
    // [row, down, column, across, value] -> [row, column, value, down, across]
    let x = ops::reshape(x, &[rows / merge, merge, columns / merge, merge, size])?;
    let x = ops::swap_axes(&ops::swap_axes(&ops::swap_axes(&x, 1, 2)?, 2, 4)?, 3, 4)?;
    ops::reshape(&x, &[1, -1, size * merge * merge])
}
