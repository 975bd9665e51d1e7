//! A projection that each expert of a mixture has for itself.

use mlx_ffi::{Array, Dtype, Indices, Result, cuda, ops};

use super::{ExpertLora, Together, Weight, Workspace};
use crate::kernels::{Kernels, Matrix, Order};

/// `x w[e]ᵀ + b[e]` with the matrix of expert `e`.
#[derive(Debug)]
pub(crate) struct ExpertLinear {
    /// `[experts, out, in]`.
    weight: Weight,
    /// `[experts, out]`.
    bias: Option<Array>,
    lora: Option<Box<ExpertLora>>,
    together: Together,
}

impl ExpertLinear {
    /// Projections by `weight`, `[experts, out, in]`, and `bias`, `[experts, out]`.
    pub fn new(weight: Weight, bias: Option<Array>) -> Self {
        ExpertLinear { weight, bias, lora: None, together: Together::Nothing }
    }

    /// The layer with an adapter, where there is one.
    pub fn with_lora(self, lora: Option<ExpertLora>) -> Self {
        ExpertLinear { lora: lora.map(Box::new), ..self }
    }

    /// The layer where it is a part of one that ranks compute together.
    pub fn together(self, together: Together) -> Self {
        ExpertLinear { together, ..self }
    }

    /// Returns true when its results are those of all ranks.
    pub fn is_whole(&self) -> bool {
        self.together.is_nothing()
    }

    /// Completes `y`, made linearly of its results in this rank, with the terms of all ranks.
    pub fn all(&self, y: Array) -> Result<Array> {
        self.together.all(y)
    }

    /// `x`, `[t, 1 or e, in]`, by the experts that `indices`, `[t, e]`, name: `[t, e, out]`.
    pub fn forward(&self, x: &Array, indices: &Indices, order: Order) -> Result<Array> {
        let y = self.weight.gather(x, indices, order)?;
        let y = match &self.bias {
            None => y,
            Some(bias) => ops::add(&y, &ops::take(bias, indices, 0)?)?,
        };
        match &self.lora {
            None => Ok(y),
            Some(lora) => lora.project(x, &y, indices, order),
        }
    }

    /// The matrices as our own kernels for CUDA take them, where there is no adapter beside them.
    pub fn on_cuda(&self) -> Option<cuda::ExpertMatrices<'_>> {
        let is_ours = self.weight.kernels == Kernels::Cuda && self.lora.is_none();
        let weights = self.weight.matrix.on_cuda();
        is_ours.then_some(cuda::ExpertMatrices { weights, bias: self.bias.as_ref() })
    }

    /// Bytes that its products with activations of `dtype` take, of which a row passes `per_row`.
    /// Packed experts that no kernel knows are unpacked on CUDA.
    pub fn workspace(&self, dtype: Dtype, per_row: u64) -> Workspace {
        let row = self.lora.as_ref().map_or(0, |lora| per_row * lora.row_bytes());
        let is_known = self.on_cuda().is_some_and(|matrices| matrices.are_known(dtype));
        match &self.weight.matrix {
            Matrix::Quantized(w) if self.weight.kernels.is_on_cuda() && !is_known => {
                let groups = w.scales.size() as u64;
                let elements = groups * w.quantization.group_size as u64;
                Workspace { row, unpacked: elements * dtype.size() as u64, unpacked_from: 1 }
            }
            _ => Workspace { row, ..Workspace::default() },
        }
    }

    /// Returns true when products are faster with the experts named in order.
    pub fn prefers_order(&self) -> bool {
        self.weight.kernels.prefers_order()
    }
}
