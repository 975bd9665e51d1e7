//! The numbers that packed weights stand for.

use crate::stream::current;
use crate::{Array, Dtype, Quantized, Result, cpu, sys};

/// The weights that `w` stands for, in `dtype`. Groups that MLX does not have are unpacked by our
/// own kernel.
///
/// # Errors
/// Shapes that do not fit the parameters; a stream of the GPU for groups that are on a CPU alone.
pub fn dequantize(w: &Quantized, dtype: Dtype) -> Result<Array> {
    if w.quantization.is_on_cpu_alone() {
        return cpu::unpacked(w, dtype);
    }
    w.check()?;
    let (group_size, bits) = w.quantization.raw();
    let empty = sys::mlx_array { ctx: std::ptr::null_mut() };
    let dtype = sys::mlx_optional_dtype { value: dtype.raw(), has_value: true };
    // SAFETY: the inputs outlive the call; mlx-c only reads them and takes empty biases and an
    // empty global scale.
    Array::from_op(|out| unsafe {
        sys::mlx_dequantize(
            out,
            w.weight.raw(),
            w.scales.raw(),
            w.biases_raw(),
            group_size,
            bits,
            w.quantization.mode.raw().as_ptr(),
            empty,
            dtype,
            current(),
        )
    })
}
