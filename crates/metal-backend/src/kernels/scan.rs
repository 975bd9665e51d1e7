//! The selective scan of Mamba 2.

use mlx_ffi::cpu::{self, SelectiveScan};
use mlx_ffi::ops::Cumulative;
use mlx_ffi::{Array, Dtype, Result, cuda, metal, ops};

use super::activation::softplus;
use super::choice::Kernels;
use super::recurrent::counting;

/// Positions that MLX's operations compute together: their products are matrices of this size.
const CHUNK: i32 = 64;

impl Kernels {
    /// The selective scan: `[b, l, heads · head_dim]`, and the state afterwards, for which nothing
    /// else may hold that of `scan`. What counts not has any result.
    pub fn scan(self, scan: &SelectiveScan<'_>) -> Result<[Array; 2]> {
        if self.is_ours_on_cpu() && scan.dt.array.dtype() == scan.mixed.dtype() {
            return cpu::scan(scan);
        }
        if self == Kernels::Cuda && cuda::takes_scan(scan) {
            return cuda::scan(scan);
        }
        if self == Kernels::Metal
            && let Some(found) = metal::scan(scan)?
        {
            return Ok(found);
        }
        by_mlx(scan)
    }
}

/// The operands of some positions in F32, each head as one of its group: `[b, groups, heads of one,
/// …]`.
struct Part {
    /// `[…, q, head_dim]`.
    x: Array,
    /// `[b, groups, 1, q, state_dim]`.
    b: Array,
    /// `[b, groups, 1, q, state_dim]`.
    c: Array,
    /// `[…, q, 1]`.
    step: Array,
    /// The logarithm of what is left of the state before, after each position: `[…, q, 1]`.
    decay: Array,
}

/// The selective scan by MLX's operations in F32. Positions of a chunk see each other by a matrix
/// of `C Bᵀ` and the decay between them (arXiv 2405.21060, section 6), and what was before by the
/// state.
fn by_mlx(scan: &SelectiveScan<'_>) -> Result<[Array; 2]> {
    let &SelectiveScan { mixed, dt, a_log, dt_bias, d, groups, limits, lengths, state } = scan;
    let dtype = mixed.dtype();
    let [rows, l, _] = mixed.dims()?;
    let [_, heads, head_dim, state_dim] = state.dims()?;
    let each = heads / groups;
    let [least, largest] = limits;
    let dt = &ops::slice_axis(dt.array, -1, dt.at, dt.at + heads)?;
    let mixed = ops::astype(mixed, Dtype::F32)?;
    let step = softplus(&ops::add(&ops::astype(dt, Dtype::F32)?, dt_bias)?)?;
    let step = ops::maximum(&step, &Array::scalar(least, Dtype::F32)?)?;
    let step = ops::minimum(&step, &Array::scalar(largest, Dtype::F32)?)?;
    // A step of 0 leaves the state as it is.
    let step = ops::multiply(&step, &counting(rows, l, lengths)?)?;
    let rate = ops::multiply(&ops::negative(&ops::exp(a_log)?)?, &step)?;
    // Columns of some positions: [rows, groups, heads of one, q, size].
    let columns = |of: &Array, (first, end): (i32, i32), column: i32, by: [i32; 2]| {
        let [heads, size] = by;
        let part = ops::slice_axis(of, 1, first, end)?;
        let part = ops::slice_axis(&part, -1, column, column + groups * heads * size)?;
        let part = ops::reshape(&part, &[rows, end - first, groups, heads, size])?;
        ops::swap_axes(&ops::swap_axes(&part, 1, 2)?, 2, 3)
    };
    let shape = [rows, groups, each, head_dim, state_dim];
    let mut state = ops::reshape(state, &shape)?;
    let mut out = Vec::new();
    for first in (0..l).step_by(CHUNK as usize) {
        let range = (first, l.min(first + CHUNK));
        let x = columns(&mixed, range, 0, [each, head_dim])?;
        let rates = columns(&rate, range, 0, [each, 1])?;
        let b = heads * head_dim;
        let part = Part {
            b: columns(&mixed, range, b, [1, state_dim])?,
            c: columns(&mixed, range, b + groups * state_dim, [1, state_dim])?,
            step: columns(&step, range, 0, [each, 1])?,
            decay: ops::cumsum(&rates, 3, Cumulative::Forward)?,
            x,
        };
        let [y, after] = part.through(&state)?;
        state = after;
        let passed = ops::reshape(d, &[1, groups, each, 1, 1])?;
        let y = ops::add(&y, &ops::multiply(&passed, &part.x)?)?;
        // [rows, groups, each, q, head_dim] -> [rows, q, groups, each, head_dim]
        let y = ops::swap_axes(&ops::swap_axes(&y, 2, 3)?, 1, 2)?;
        out.push(ops::reshape(&y, &[rows, range.1 - first, heads * head_dim])?);
    }
    let out = ops::concatenate(&out.iter().collect::<Vec<_>>(), 1)?;
    let state = ops::reshape(&state, &[rows, heads, head_dim, state_dim])?;
    Ok([ops::astype(&out, dtype)?, state])
}

impl Part {
    /// The outputs of its positions, `[…, q, head_dim]`, and the state after them,
    /// `[…, head_dim, state_dim]`, given the one before.
    fn through(&self, state: &Array) -> Result<[Array; 2]> {
        let Part { x, b, c, step, decay } = self;
        let q = decay.shape()[3];
        let moved = |x: &Array| ops::swap_axes(x, -1, -2);
        let between = ops::subtract(decay, &moved(decay)?)?;
        let number: Vec<i32> = (0..q).collect();
        let number = Array::from_i32(&number, &[q, 1])?;
        let is_earlier = ops::greater_equal(&number, &moved(&number)?)?;
        let never = Array::scalar(f32::NEG_INFINITY, Dtype::F32)?;
        let between = ops::exp(&ops::where_(&is_earlier, &between, &never)?)?;
        let seen = ops::multiply(&ops::matmul(c, &moved(b)?)?, &between)?;
        let brought = ops::multiply(x, step)?;
        let own = ops::matmul(&seen, &brought)?;
        let before = ops::multiply(&ops::exp(decay)?, &ops::matmul(c, &moved(state)?)?)?;
        let last = ops::slice_axis(decay, 3, q - 1, q)?;
        let left = ops::exp(&ops::subtract(&last, decay)?)?;
        let added = ops::matmul(&moved(&ops::multiply(&brought, &left)?)?, b)?;
        let after = ops::add(&ops::multiply(&ops::exp(&last)?, state)?, &added)?;
        Ok([ops::add(&own, &before)?, after])
    }
}
