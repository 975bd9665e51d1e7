//! A linear projection, quantised or not.

use mlx_ffi::{Array, Dtype, Result};

use super::{Fusion, Lora, Workspace};
use crate::kernels::{Activation, GemvFusion, Kernels, Matrix, Order};

/// `x wᵀ + b`, and what an adapter adds.
#[derive(Debug)]
pub(crate) struct Linear {
    weight: Weight,
    /// `[out]`.
    bias: Option<Array>,
    lora: Option<Lora>,
}

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
    fn project_biased(&self, x: &Array, bias: Option<&Array>) -> Result<Array> {
        match (bias, &self.matrix) {
            (None, _) => self.project(x),
            (Some(bias), Matrix::Dense(weight)) => self.kernels.biased_dense(x, weight, bias),
            (Some(bias), Matrix::Quantized(_)) => self.kernels.sum(&self.project(x)?, bias),
        }
    }

    /// `x wᵀ` for `x` of `[…, in]`, with its `fusion`.
    pub fn project_fused(&self, x: &Array, fusion: Fusion<'_>) -> Result<Array> {
        let (row, gemv) = fusion.of_gemv(x);
        match self.kernels.gemv(row, &self.matrix, gemv) {
            Some(y) => y,
            None => fusion.epilogue(self.kernels, self.project(&fusion.prologue(x)?)?),
        }
    }

    /// `x wᵀ` with a matrix of `w` for each of `indices`, `[t, e]`: `x` of `[t, 1 or e, in]` to
    /// `[t, e, out]`.
    pub fn gather(&self, x: &Array, indices: &Array, order: Order) -> Result<Array> {
        match &self.matrix {
            Matrix::Dense(weight) => self.kernels.gather_dense(x, weight, indices, order),
            Matrix::Quantized(weight) => self.kernels.gather_quantized(x, weight, indices, order),
        }
    }
}

impl Weight {
    /// Bytes that a product of activations of `dtype` takes, with so many for each row of an adapter's.
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

impl Linear {
    /// A projection by `weight`, `[out, in]`, and `bias`, `[out]`.
    pub fn new(weight: Weight, bias: Option<Array>) -> Self {
        Linear { weight, bias, lora: None }
    }

    /// The same with an adapter, where there is one.
    pub fn with_lora(self, lora: Option<Lora>) -> Self {
        Linear { lora, ..self }
    }

    /// Its matrix.
    pub fn weight(&self) -> &Weight {
        &self.weight
    }

    /// `[out]`, where it has one.
    pub fn bias(&self) -> Option<&Array> {
        self.bias.as_ref()
    }

    /// Its adapter.
    pub fn lora(&self) -> Option<&Lora> {
        self.lora.as_ref()
    }

    /// `[…, in]` to `[…, out]`, with its `fusion`.
    pub fn forward_fused(&self, x: &Array, fusion: Fusion<'_>) -> Result<Array> {
        match self.at_once(x, None, fusion) {
            Some(y) => y,
            None => fusion.epilogue(self.weight.kernels, self.forward(&fusion.prologue(x)?)?),
        }
    }

    /// What passes the gate of the result's first half, where there is one operation for all that.
    pub fn gated(
        &self,
        x: &Array,
        activation: Activation,
        fusion: Fusion<'_>,
    ) -> Option<Result<Array>> {
        self.at_once(x, Some(activation), Fusion { residual: None, ..fusion })
    }

    fn at_once(
        &self,
        x: &Array,
        gate: Option<Activation>,
        fusion: Fusion<'_>,
    ) -> Option<Result<Array>> {
        if self.lora.is_some() {
            return None;
        }
        let (row, gemv) = fusion.of_gemv(x);
        let gemv = GemvFusion { bias: self.bias.as_ref(), gate, ..gemv };
        self.weight.kernels.gemv(row, &self.weight.matrix, gemv)
    }

    /// Bytes that its product takes beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.weight.workspace(dtype, self.lora.as_ref().map_or(0, Lora::row_bytes))
    }

    /// `[…, in]` to `[…, out]`.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let y = self.weight.project_biased(x, self.bias.as_ref())?;
        match &self.lora {
            None => Ok(y),
            Some(lora) => lora.project(x, &y),
        }
    }
}
