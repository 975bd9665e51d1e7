//! Matrices of made-up weights.

use mlx_ffi::cuda::Weights;
use mlx_ffi::{
    Array, Dtype, QuantMode, Quantization, Quantized, Result, dequantize, ops, quantize,
};

use super::arrays::{cast, values, wide};

/// Weights of `[n, k]`.
pub enum Matrix {
    Dense(Array),
    Packed(Quantized),
}

impl Matrix {
    /// Made-up ones, in bits and columns of a group where they are packed.
    pub fn new(n: i32, k: i32, dtype: Dtype, packing: Option<(i32, i32)>) -> Matrix {
        let scale = Array::scalar((k as f32).sqrt().recip(), Dtype::F32).expect("a scalar");
        let w = cast(&ops::multiply(&values(&[n, k], 7), &scale).expect("weights"), dtype);
        match packing {
            None => Matrix::Dense(w),
            Some((bits, group_size)) => {
                let quantization = Quantization { mode: QuantMode::Affine, bits, group_size };
                Matrix::Packed(quantize(&w, quantization).expect("packed"))
            }
        }
    }

    pub fn weights(&self) -> Weights<'_> {
        match self {
            Matrix::Dense(w) => Weights::Dense(w),
            Matrix::Packed(w) => Weights::Packed(w),
        }
    }

    /// `[k, n]`, in F32.
    pub fn transposed(&self) -> Result<Array> {
        let w = match self {
            Matrix::Dense(w) => wide(w),
            Matrix::Packed(w) => wide(&dequantize(w, w.scales.dtype())?),
        };
        ops::swap_axes(&w, 0, 1)
    }
}
