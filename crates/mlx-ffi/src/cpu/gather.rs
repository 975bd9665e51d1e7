//! Products whose rows each name their own matrix, for mixtures of experts on a Linux CPU: MLX
//! multiplies them in f32 only, and ends the process where they have another type.

use cpu_kernels::Gather;

use super::operation::{Inputs, Outcome, operation};
use super::{Matrices, failed, kernel_dtype, positions};
use crate::{Array, Dtype, Error, Quantized, Result};

/// `x wᵀ` with a matrix of `w`, `[matrices, n, k]`, for each of `indices`, U32 of any shape:
/// `[…indices, n]`. `x` is `[…, k]`; where it has fewer rows than there are indices, each row meets
/// as many of them in turn. Different types meet in f32.
///
/// An index that is not below `matrices` is an error of the call that waits for the value.
///
/// # Errors
/// Shapes that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn gather_matmul(x: &Array, w: &Array, indices: &Array) -> Result<Array> {
    product(x, indices, w.dims()?, &Matrices::dense(x, w)?, cpu_kernels::gather_matmul)
}

/// `x wᵀ` with one of the packed matrices `[matrices, n, columns]` for each of `indices`. The
/// result has the type of `x`, or f32 where affine scales have another.
///
/// # Errors
/// As [`gather_matmul`], and weights that do not fit their parameters.
pub fn gather_quantized_matmul(x: &Array, w: &Quantized, indices: &Array) -> Result<Array> {
    quantized(x, w, indices, cpu_kernels::gather_matmul)
}

/// [`gather_quantized_matmul`] with `x` rounded to 8 bits, see [`rounds`](super::rounds).
///
/// # Errors
/// As [`gather_quantized_matmul`].
pub fn rounded_gather_quantized_matmul(x: &Array, w: &Quantized, indices: &Array) -> Result<Array> {
    quantized(x, w, indices, cpu_kernels::rounded_gather_matmul)
}

/// A kernel for such products.
type Multiply = fn(Gather<'_>) -> std::result::Result<(), cpu_kernels::Error>;

fn quantized(x: &Array, w: &Quantized, indices: &Array, multiply: Multiply) -> Result<Array> {
    let matrices = Matrices::packed(x, w)?;
    let [count, n, groups] = w.scales.dims()?;
    let sizes = [count, n, groups * w.quantization.group_size];
    product(x, indices, sizes, &matrices, multiply)
}

/// `x`, `[…, k]`, by matrices of `[matrices, n, k]`.
fn product(
    x: &Array,
    indices: &Array,
    [count, n, k]: [i32; 3],
    matrices: &Matrices<'_>,
    multiply: Multiply,
) -> Result<Array> {
    let x = matrices.activations(x, k)?;
    let rows = if k == 0 { indices.size() } else { x.size() / k as usize };
    if rows == 0 && indices.size() != 0 || rows != 0 && !indices.size().is_multiple_of(rows) {
        return Err(Error::new(format!("{rows} rows do not share {indices:?}")));
    }
    if indices.dtype() != Dtype::U32 {
        return Err(Error::new(format!("{indices:?} are no indices of type U32")));
    }
    let (dtype, kind) = (kernel_dtype(x.dtype())?, matrices.kind);
    let shape = [indices.shape(), &[n]].concat();
    let positions = positions(x.shape());
    let outcome = Outcome::row_major(x.dtype(), &shape);
    let [count, n, k] = [count, n, k].map(|size| size as usize);
    let inputs: Vec<&Array> = [&x, indices].into_iter().chain(matrices.parts()).collect();
    operation(&inputs, Inputs::RowMajor, outcome, move |inputs, out| {
        let [x, indices, parts @ ..] = inputs else {
            return Err(Error::new("a product without operands"));
        };
        let indices: Vec<u32> =
            indices.bytes.as_chunks::<4>().0.iter().map(|b| u32::from_ne_bytes(*b)).collect();
        let weights = kind.weights(parts);
        let (x, indices) = (x.bytes, &indices[..]);
        let gather = Gather {
            x_rows: rows,
            matrices: count,
            positions,
            n,
            k,
            dtype,
            x,
            indices,
            weights,
            out,
        };
        multiply(gather).map_err(failed)
    })
}
