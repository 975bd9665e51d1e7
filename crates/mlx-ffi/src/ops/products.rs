//! Matrix products.

use super::elementwise::binary;
use crate::stream::{current, on_cpu};
use crate::{Array, Dtype, Error, Indices, Result, sys};

/// Matrix product over the last two dimensions.
pub fn matmul(a: &Array, b: &Array) -> Result<Array> {
    binary(sys::mlx_matmul, a, b)
}

/// `a b + c` of matrices, whose sum is rounded once; `c` broadcasts against the product.
///
/// # Errors
/// Shapes that do not fit.
pub fn addmm(c: &Array, a: &Array, b: &Array) -> Result<Array> {
    // SAFETY: the inputs outlive the call; mlx-c only reads them.
    Array::from_op(|out| unsafe {
        sys::mlx_addmm(out, c.raw(), a.raw(), b.raw(), 1.0, 1.0, current())
    })
}

/// `x w` with a matrix of `w`, `[matrices, k, n]`, chosen for each row of `x` by `indices`, which
/// broadcast against the leading dimensions of `x`. `sorted`: the indices go upwards.
///
/// On the CPU MLX has this in f32 only, and its evaluation of another type would end the process.
///
/// # Errors
/// Shapes that do not fit; indices that are not below `matrices`; an empty `x`; on a stream of the
/// CPU, a type that is not f32.
pub fn gather_mm(x: &Array, w: &Array, indices: &Indices, sorted: bool) -> Result<Array> {
    if on_cpu()? && (x.dtype(), w.dtype()) != (Dtype::F32, Dtype::F32) {
        return Err(Error::new(format!(
            "MLX gathers products in f32 only on the CPU, not {x:?} with {w:?}"
        )));
    }
    indices.check("gather_mm", matrices(w))?;
    check_gathered("gather_mm", x, indices)?;
    let empty = sys::mlx_array { ctx: std::ptr::null_mut() };
    // SAFETY: the inputs outlive the call; mlx-c only reads them and takes empty left-hand indices.
    // Each index names a matrix.
    Array::from_op(|out| unsafe {
        sys::mlx_gather_mm(out, x.raw(), w.raw(), empty, indices.raw(), sorted, current())
    })
}

/// The matrices of `w`, `[…, rows, columns]`.
pub(crate) fn matrices(w: &Array) -> usize {
    let leading = w.shape().len().saturating_sub(2);
    w.shape()[..leading].iter().map(|&dim| dim as usize).product()
}

/// Refuses what MLX's kernels divide by: rows and indices that are not there.
pub(crate) fn check_gathered(name: &str, x: &Array, indices: &Indices) -> Result<()> {
    if x.size() > 0 && indices.size() > 0 {
        return Ok(());
    }
    Err(Error::new(format!("[{name}] no products of an empty {x:?} or for empty {indices:?}")))
}
