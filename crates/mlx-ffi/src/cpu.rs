//! Matrix products, attention and what stands between them by our own kernels for CPUs, as
//! operations of MLX's graph.
//!
//! On a Linux CPU MLX multiplies on one core, and packed weights far below the memory's speed.
//! These operations are lazy like MLX's own, take any layout of `x`, copy no weights, and run on the
//! thread of the current stream, which must be one of the CPU.
//!
//! Shapes and types are checked when the operation is made. Should a kernel fail after that, or
//! panic, then the call that waits for its value gets the error, as with MLX's own kernels.

use std::ffi::{c_char, c_int};
use std::panic::catch_unwind;

use cpu_kernels::{Packing, Problem, Weights};

use crate::stream::current;
use crate::{Array, Dtype, Error, QuantMode, Quantized, Result, ops, sys};

mod attention;
mod gather;
mod operation;
mod rows;

pub use attention::{Visible, attention};
pub use cpu_kernels::set_threads;
pub use gather::{gather_matmul, gather_quantized_matmul};
pub use rows::{Activation, gated, heads, rms_norm};

/// `x wᵀ` for `x` of `[…, k]` and `w` of `[n, k]`: `[…, n]`. Different types meet in f32.
///
/// # Errors
/// Shapes that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn matmul(x: &Array, w: &Array) -> Result<Array> {
    let [_, k] = w.dims()?;
    let format = sys::mlxrs_cpu_format {
        dtype: meet(x, w).raw(),
        weight_dtype: w.dtype().raw(),
        packing: 0,
        bits: 0,
        group_size: 0,
    };
    product(x, k, [Some(w), None, None], format)
}

/// `x wᵀ` for `x` of `[…, columns]` and packed weights of `[rows, columns]`: `[…, rows]`, in the
/// type of `x`, or in f32 where affine scales have another.
///
/// # Errors
/// Weights that do not fit their parameters; shapes that do not fit; types other than f32, f16 and
/// bf16; a stream of the GPU.
pub fn quantized_matmul(x: &Array, w: &Quantized) -> Result<Array> {
    let format = packed_format(x, w)?;
    let [_, groups] = w.scales.dims()?;
    let k = groups * w.quantization.group_size;
    product(x, k, [Some(&w.weight), Some(&w.scales), w.biases.as_ref()], format)
}

/// How `x` and packed weights are represented.
///
/// # Errors
/// Weights that do not fit their parameters.
fn packed_format(x: &Array, w: &Quantized) -> Result<sys::mlxrs_cpu_format> {
    w.quantization.validate()?;
    w.check()?;
    let Quantized { weight, scales, biases, quantization } = w;
    let is_affine = quantization.mode == QuantMode::Affine;
    let scales_fit = match biases {
        None => !is_affine && scales.dtype() == Dtype::U8,
        Some(biases) => {
            is_affine && biases.shape() == scales.shape() && biases.dtype() == scales.dtype()
        }
    };
    if !scales_fit || weight.dtype() != Dtype::U32 {
        return Err(Error::new(format!(
            "weights {weight:?}, scales {scales:?} and biases {biases:?} do not fit {quantization:?}"
        )));
    }
    Ok(sys::mlxrs_cpu_format {
        dtype: if is_affine { meet(x, scales) } else { x.dtype() }.raw(),
        weight_dtype: scales.dtype().raw(),
        packing: 1 + quantization.mode as c_int,
        bits: quantization.bits,
        group_size: quantization.group_size,
    })
}

/// The type that holds the values of both.
fn meet(a: &Array, b: &Array) -> Dtype {
    if a.dtype() == b.dtype() { a.dtype() } else { Dtype::F32 }
}

/// `weights` are the matrix, its scales and its biases.
fn product(
    x: &Array,
    k: i32,
    weights: [Option<&Array>; 3],
    format: sys::mlxrs_cpu_format,
) -> Result<Array> {
    let x = &activations(x, k, &format)?;
    let [weight, scales, biases] =
        weights.map(|array| array.map_or(sys::mlx_array { ctx: std::ptr::null_mut() }, Array::raw));
    // SAFETY: the inputs outlive the call, which takes shares of them; scales and biases may be
    // empty. `kernel` does not unwind and holds for any operands.
    Array::from_op(|out| unsafe {
        let stream = current();
        sys::mlxrs_cpu_matmul(out, x.raw(), weight, scales, biases, format, Some(kernel), stream)
    })
}

/// `x` of `k` columns in the type that `format` says.
///
/// # Errors
/// Another number of columns; types other than f32, f16 and bf16.
fn activations(x: &Array, k: i32, format: &sys::mlxrs_cpu_format) -> Result<Array> {
    if x.shape().last() != Some(&k) {
        return Err(Error::new(format!("cannot multiply {x:?} with weights of {k} columns")));
    }
    packing(format)?;
    kernel_dtype(x.dtype().raw())?;
    match kernel_dtype(format.dtype)? {
        cpu_kernels::Dtype::F32 if x.dtype() != Dtype::F32 => ops::astype(x, Dtype::F32),
        _ => x.share(),
    }
}

/// What `format` says of the weights; `None`: they are dense.
fn packing(format: &sys::mlxrs_cpu_format) -> Result<Option<Packing>> {
    let bits = format.bits as usize;
    Ok(match format.packing {
        // The type is looked at here too, so that a bad one is refused before the kernel runs.
        0 => kernel_dtype(format.weight_dtype).map(|_| None)?,
        1 => Some(Packing::Affine { bits, scales: kernel_dtype(format.weight_dtype)? }),
        2 => Some(Packing::Mxfp4),
        3 => Some(Packing::Mxfp8),
        4 => Some(Packing::Nvfp4),
        other => return Err(Error::new(format!("there is no packing {other}"))),
    })
}

fn kernel_dtype(raw: sys::mlx_dtype) -> Result<cpu_kernels::Dtype> {
    match raw {
        sys::MLX_FLOAT32 => Ok(cpu_kernels::Dtype::F32),
        sys::MLX_FLOAT16 => Ok(cpu_kernels::Dtype::F16),
        sys::MLX_BFLOAT16 => Ok(cpu_kernels::Dtype::Bf16),
        _ => Err(Error::new("the CPU kernels take f32, f16 and bf16 only")),
    }
}

/// What the stream's thread calls.
extern "C" fn kernel(
    product: *const sys::mlxrs_cpu_product,
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

/// What a kernel's caller gets: 0, or 1 with a text in `message`.
///
/// # Safety
/// `message` has room for `capacity` bytes, all of them zero.
unsafe fn report(
    computed: std::thread::Result<Result<()>>,
    message: *mut c_char,
    capacity: usize,
) -> c_int {
    let text = match computed {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the CPU kernel failed unexpectedly".to_owned(),
    };
    // SAFETY: `message` has room for `capacity` zero bytes.
    unsafe { write_message(&text, message, capacity) };
    1
}

/// # Safety
/// `message` has room for `capacity` bytes, all zero.
unsafe fn write_message(text: &str, message: *mut c_char, capacity: usize) {
    let length = text.len().min(capacity.saturating_sub(1));
    // SAFETY: this fills at most all bytes but the last; that one is zero already.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), message, length) };
}

/// # Safety
/// Each buffer holds the bytes that `product` states, and nothing else uses `out` meanwhile.
unsafe fn compute(product: &sys::mlxrs_cpu_product) -> Result<()> {
    let sys::mlxrs_cpu_product { format, m, n, k, .. } = *product;
    // SAFETY: the caller's promise.
    let weights = unsafe { weights(&format, product.weight, [product.scales, product.biases]) }?;
    // SAFETY: the caller's promise.
    let x = unsafe { bytes(product.x) };
    // SAFETY: the caller's promise; an output is not empty. Nobody has filled it yet: kernels write
    // each byte and read none.
    let out = unsafe { std::slice::from_raw_parts_mut(product.out.cast(), product.out_size) };
    let dtype = kernel_dtype(format.dtype)?;
    let problem = Problem { m, n, k, dtype, x, weights, out };
    cpu_kernels::matmul(problem).map_err(|error| Error::new(error.to_string()))
}

/// The weights in a buffer, and the scales and biases in `extra`.
///
/// # Safety
/// Each buffer holds the bytes that it states, and nobody writes to them during `'a`.
unsafe fn weights<'a>(
    format: &sys::mlxrs_cpu_format,
    weight: sys::mlxrs_bytes,
    extra: [sys::mlxrs_bytes; 2],
) -> Result<Weights<'a>> {
    // SAFETY: the caller's promise.
    let (data, [scales, biases]) = unsafe { (bytes(weight), extra.map(|buffer| bytes(buffer))) };
    Ok(match packing(format)? {
        None => Weights::Dense { dtype: kernel_dtype(format.weight_dtype)?, data },
        Some(packing) => {
            let group_size = format.group_size as usize;
            Weights::Packed { packing, group_size, data, scales, biases }
        }
    })
}

/// # Safety
/// `data` points to `size` bytes that nobody writes to during `'a`, unless there are none.
unsafe fn bytes<'a>(sys::mlxrs_bytes { data, size }: sys::mlxrs_bytes) -> &'a [u8] {
    if size == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data.cast(), size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_refuses_is_the_error_of_the_evaluation() -> Result<()> {
        let x = Array::from_f32(&[1.0; 8], &[2, 4])?;
        let w = Array::from_f32(&[1.0; 12], &[3, 4])?;
        // Half of the bytes that are there: no caller outside can say this.
        let format = sys::mlxrs_cpu_format {
            dtype: sys::MLX_FLOAT32,
            weight_dtype: sys::MLX_FLOAT16,
            packing: 0,
            bits: 0,
            group_size: 0,
        };
        for _ in 0..3 {
            let error = product(&x, 4, [Some(&w), None, None], format)?.eval().unwrap_err();
            assert_eq!(
                error.to_string(),
                "weights has 48 bytes, expected the product of [3, 4, 2]"
            );
            assert_eq!(matmul(&x, &w)?.to_vec_f32()?, [4.0; 6]);
        }
        Ok(())
    }

    #[test]
    fn a_message_is_cut_to_the_room_that_there_is() {
        let mut message = [0; 16];
        let empty = sys::mlxrs_bytes { data: std::ptr::null(), size: 0 };
        let product = sys::mlxrs_cpu_product {
            format: sys::mlxrs_cpu_format {
                dtype: sys::MLX_FLOAT32,
                weight_dtype: sys::MLX_FLOAT32,
                packing: 9,
                bits: 0,
                group_size: 0,
            },
            m: 1,
            n: 1,
            k: 1,
            x: empty,
            weight: empty,
            scales: empty,
            biases: empty,
            out: std::ptr::dangling_mut::<u8>().cast(),
            out_size: 0,
        };
        let capacity = message.len();
        assert_eq!(kernel(&raw const product, message.as_mut_ptr(), capacity), 1);
        let text = message.map(|byte| byte as u8);
        assert_eq!(&text, b"there is no pac\0");
    }
}
