//! Products whose rows each name their own matrix, for mixtures of experts on a Linux CPU: MLX
//! multiplies them in f32 only, and ends the process where they have another type.

use std::ffi::{c_char, c_int};
use std::panic::catch_unwind;

use cpu_kernels::Gather;

use super::{activations, bytes, kernel_dtype, meet, packed_format, report, weights};
use crate::stream::current;
use crate::{Array, Error, Quantized, Result, sys};

/// `x wᵀ` with a matrix of `w`, `[matrices, n, k]`, for each of `indices`, U32 of any shape:
/// `[…indices, n]`. `x` is `[…, k]`; where it has fewer rows than there are indices, each row meets
/// as many of them in turn. Different types meet in f32.
///
/// An index that is not below `matrices` is an error of the call that waits for the value.
///
/// # Errors
/// Shapes that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn gather_matmul(x: &Array, w: &Array, indices: &Array) -> Result<Array> {
    let [_, _, k] = w.dims()?;
    let format = sys::mlxrs_cpu_format {
        dtype: meet(x, w).raw(),
        weight_dtype: w.dtype().raw(),
        packing: 0,
        bits: 0,
        group_size: 0,
    };
    product(x, indices, k, [Some(w), None, None], format)
}

/// As [`gather_matmul`], with packed weights of `[matrices, n, columns]`; the result has the type
/// of `x`, or f32 where affine scales have another.
///
/// # Errors
/// As [`gather_matmul`], and weights that do not fit their parameters.
pub fn gather_quantized_matmul(x: &Array, w: &Quantized, indices: &Array) -> Result<Array> {
    let format = packed_format(x, w)?;
    let [_, _, groups] = w.scales.dims()?;
    let k = groups * w.quantization.group_size;
    product(x, indices, k, [Some(&w.weight), Some(&w.scales), w.biases.as_ref()], format)
}

/// `weights` are the matrices, their scales and their biases.
fn product(
    x: &Array,
    indices: &Array,
    k: i32,
    weights: [Option<&Array>; 3],
    format: sys::mlxrs_cpu_format,
) -> Result<Array> {
    let x = activations(x, k, &format)?;
    let rows = if k == 0 { indices.size() } else { x.size() / k as usize };
    if rows == 0 && indices.size() != 0 || rows != 0 && !indices.size().is_multiple_of(rows) {
        return Err(Error::new(format!("{rows} rows do not share {indices:?}")));
    }
    let [weight, scales, biases] =
        weights.map(|array| array.map_or(sys::mlx_array { ctx: std::ptr::null_mut() }, Array::raw));
    // SAFETY: the inputs outlive the call, which takes shares of them; scales and biases may be
    // empty. `kernel` does not unwind and holds for any operands.
    Array::from_op(|out| unsafe {
        let (x, indices, stream) = (x.raw(), indices.raw(), current());
        sys::mlxrs_cpu_gather(out, x, indices, weight, scales, biases, format, Some(kernel), stream)
    })
}

/// What the stream's thread calls.
extern "C" fn kernel(
    product: *const sys::mlxrs_cpu_gathered,
    message: *mut c_char,
    capacity: usize,
) -> c_int {
    let computed = catch_unwind(|| {
        // SAFETY: the shim passes a product that lives for the call.
        let product = unsafe { &*product };
        // SAFETY: the shim's buffers hold the bytes that it states, stay until the call is over,
        // and nobody else knows of the output yet.
        unsafe { compute(product) }
    });
    // SAFETY: `message` has room for `capacity` bytes, all of them zero.
    unsafe { report(computed, message, capacity) }
}

/// # Safety
/// Each buffer holds the bytes that `product` states, and nothing else uses `out` meanwhile.
unsafe fn compute(product: &sys::mlxrs_cpu_gathered) -> Result<()> {
    let sys::mlxrs_cpu_gathered { format, x_rows, matrices, n, k, .. } = *product;
    // SAFETY: the caller's promise.
    let (x, indices) = unsafe { (bytes(product.x), bytes(product.indices)) };
    // SAFETY: the caller's promise.
    let weights = unsafe { weights(&format, product.weight, [product.scales, product.biases]) }?;
    let indices: Vec<u32> =
        indices.as_chunks::<4>().0.iter().map(|bytes| u32::from_ne_bytes(*bytes)).collect();
    // SAFETY: the caller's promise; an output is not empty. Nobody has filled it yet: kernels write
    // each byte and read none.
    let out = unsafe { std::slice::from_raw_parts_mut(product.out.cast(), product.out_size) };
    let dtype = kernel_dtype(format.dtype)?;
    let gather = Gather { x_rows, matrices, n, k, dtype, x, indices: &indices, weights, out };
    cpu_kernels::gather_matmul(gather).map_err(|error| Error::new(error.to_string()))
}
