//! The matrix of a projection, an embedding or the experts of a mixture.

use mlx_ffi::{Array, Dtype, Indices, Result};

use super::{Fusion, Workspace};
use crate::kernels::{Kernels, Matrix, Order};

/// The matrix of a projection or an embedding, and whose kernels multiply with it.
#[derive(Debug)]
pub(crate) struct Weight {
    pub matrix: Matrix,
    pub kernels: Kernels,
}

impl Weight {
    /// `x wᵀ` for `x` of `[…, in]`.
    pub fn project(&self, x: &Array) -> Result<Array> {
        match &self.matrix {
            Matrix::Dense(weight) => self.kernels.dense(x, weight),
            Matrix::Quantized(weight) => self.kernels.quantized(x, weight),
        }
    }

    /// `x wᵀ + b` for `bias` of `[out]`, where there is one.
    pub fn project_biased(&self, x: &Array, bias: Option<&Array>) -> Result<Array> {
        match (bias, &self.matrix) {
            (None, _) => self.project(x),
            (Some(bias), Matrix::Dense(weight)) => self.kernels.biased_dense(x, weight, bias),
            (Some(bias), Matrix::Quantized(weight)) => {
                self.kernels.biased_quantized(x, weight, bias)
            }
        }
    }

    /// `x wᵀ` for `x` of `[…, in]`, with its `fusion`.
    pub fn project_fused(&self, x: &Array, fusion: Fusion<'_>) -> Result<Array> {
        let at_once =
            fusion.of_gemv(x).and_then(|(row, gemv)| self.kernels.gemv(row, &self.matrix, gemv));
        match at_once {
            Some(y) => y,
            None => fusion.epilogue(self.kernels, self.project(&fusion.prologue(x)?)?),
        }
    }

    /// `x wᵀ` with a matrix of `w` for each of `indices`, `[t, e]`: `x` of `[t, 1 or e, in]` to
    /// `[t, e, out]`.
    pub fn gather(&self, x: &Array, indices: &Indices, order: Order) -> Result<Array> {
        match &self.matrix {
            Matrix::Dense(weight) => self.kernels.gather_dense(x, weight, indices, order),
            Matrix::Quantized(weight) => self.kernels.gather_quantized(x, weight, indices, order),
        }
    }
}

impl Weight {
    /// Bytes that a product of activations of `dtype` takes, with so many for each row of an
    /// adapter's.
    pub fn workspace(&self, dtype: Dtype, adapter_row: u64) -> Workspace {
        let (Matrix::Quantized(packed), Some(from)) =
            (&self.matrix, self.kernels.unpacked_from(dtype))
        else {
            return Workspace { row: adapter_row, ..Workspace::default() };
        };
        let rows = packed.weight.shape().first().copied().unwrap_or(0) as u64;
        let groups = packed.scales.shape().last().copied().unwrap_or(0) as u64;
        let elements = rows * groups * packed.quantization.group_size as u64;
        let unpacked = elements * dtype.size() as u64;
        Workspace { row: adapter_row, unpacked, unpacked_from: from as u64 }
    }
}
