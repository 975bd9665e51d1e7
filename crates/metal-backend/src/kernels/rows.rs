//! Operations on each row by itself: sums, norms, the split into heads.

use mlx_ffi::step::Heads;
use mlx_ffi::{Array, Dtype, cpu, cuda, fast, ops};

use super::choice::Kernels;
use super::columns::Columns;

impl Kernels {
    /// `x + y`, where `y` may be a vector for all rows of `x`.
    pub fn sum(self, x: &Array, y: &Array) -> mlx_ffi::Result<Array> {
        match self {
            Kernels::Cpu(_) if x.dtype() == y.dtype() => cpu::add(x, y),
            Kernels::Cuda if cuda::takes_sum(x, y) => cuda::sum(x, y),
            _ => ops::add(x, y),
        }
    }

    /// The rows of `x`, `[…, columns]`, then those of `y`, likewise: `[1, rows, columns]`.
    pub fn join(self, x: &Array, y: &Array) -> mlx_ffi::Result<Array> {
        if self == Kernels::Cuda && cuda::takes_join(x, y) {
            return cuda::join(x, y);
        }
        let columns = x.shape().last().copied().unwrap_or(1);
        let rows = |of: &Array| ops::reshape(of, &[1, -1, columns]);
        ops::concatenate(&[&rows(x)?, &rows(y)?], 1)
    }

    /// `x` times `factor`, which is rounded to its type.
    pub fn scaled(self, x: &Columns, factor: f32) -> mlx_ffi::Result<Array> {
        let (by, count) = (cuda::Factor::Number(factor), x.count());
        match self {
            _ if factor == 1.0 => x.array(),
            Kernels::Cuda if cuda::takes_times(x.heads(), count, by) => {
                cuda::times(x.heads(), count, by)
            }
            _ => ops::multiply(&x.array()?, &Array::scalar(factor, x.of.dtype())?),
        }
    }

    /// Each column of `x` times its number of `row`, `[columns]`.
    pub fn times(self, x: &Array, row: &Array) -> mlx_ffi::Result<Array> {
        let (columns, count) = (Heads { array: x, at: 0 }, x.shape().last().copied().unwrap_or(0));
        let by = cuda::Factor::Row(row);
        match self {
            Kernels::Cuda if cuda::takes_times(columns, count, by) => {
                cuda::times(columns, count, by)
            }
            _ => ops::multiply(x, row),
        }
    }

    /// `x / √(mean(x²) + eps) · weight` over the last dimension; `weight` is `[size]`, or `[groups,
    /// size]` where `x` is `[…, groups, size]`.
    pub fn rms_norm(self, x: &Array, weight: &Array, eps: f32) -> mlx_ffi::Result<Array> {
        match self {
            Kernels::Cpu(_) if x.dtype() == weight.dtype() => cpu::rms_norm(x, weight, eps),
            _ if weight.shape().len() > 1 => ops::multiply(&fast::rms_norm(x, None, eps)?, weight),
            _ => fast::rms_norm(x, Some(weight), eps),
        }
    }

    /// The RMS norm of each group of columns of `x`, `[b, l, groups · size]`, by itself; `weight`
    /// as for [`rms_norm`](Self::rms_norm).
    pub fn rms_norm_of_groups(self, x: &Array, weight: &Array, eps: f32) -> mlx_ffi::Result<Array> {
        if self.is_ours_on_cpu() && x.dtype() == weight.dtype() {
            return cpu::rms_norm_of_groups(x, weight, eps);
        }
        let [b, l, columns] = x.dims()?;
        let size = weight.shape().last().copied().unwrap_or(1).max(1);
        let groups = ops::reshape(x, &[b, l, columns / size, size])?;
        ops::reshape(&self.rms_norm(&groups, weight, eps)?, &[b, l, columns])
    }

    /// `(x - mean(x)) / √(variance(x) + eps) · weight + bias` over the last dimension, computed in
    /// F32; `weight` and `bias` are `[size]`.
    pub fn layer_norm(
        self,
        x: &Array,
        weight: &Array,
        bias: Option<&Array>,
        eps: f32,
    ) -> mlx_ffi::Result<Array> {
        let mut parts = std::iter::once(weight).chain(bias);
        match self {
            Kernels::Cpu(_) if parts.all(|part| part.dtype() == x.dtype()) => {
                cpu::layer_norm(x, weight, bias, eps)
            }
            _ => fast::layer_norm(x, Some(weight), bias, eps),
        }
    }

    /// The heads of `x`, `[b, l, n * head_dim]`: `[b, n, l, head_dim]`.
    pub fn heads(self, x: &Columns, head_dim: i32) -> mlx_ffi::Result<Array> {
        if self.is_ours_on_cpu() {
            return cpu::heads(&x.of, x.range.clone(), head_dim, None, None);
        }
        let [b, l, _] = x.of.dims()?;
        ops::swap_axes(&ops::reshape(&x.array()?, &[b, l, -1, head_dim])?, 1, 2)
    }
}

/// The lowest finite value of a floating-point type, a scalar.
pub(crate) fn lowest(dtype: Dtype) -> mlx_ffi::Result<Array> {
    let value = match dtype {
        Dtype::F16 => -65504.0,
        Dtype::Bf16 => -3.389_531_4e38,
        _ => f32::MIN,
    };
    Array::scalar(value, dtype)
}
