//! A projection that each expert of a mixture has for itself.

use mlx_ffi::{Array, Indices, Result, ops};

use super::{ExpertLora, Weight, Workspace};
use crate::kernels::Order;

/// `x w[e]ᵀ + b[e]` with the matrix of expert `e`.
#[derive(Debug)]
pub(crate) struct ExpertLinear {
    /// `[experts, out, in]`.
    weight: Weight,
    /// `[experts, out]`.
    bias: Option<Array>,
    lora: Option<Box<ExpertLora>>,
}

impl ExpertLinear {
    /// Projections by `weight`, `[experts, out, in]`, and `bias`, `[experts, out]`.
    pub fn new(weight: Weight, bias: Option<Array>) -> Self {
        ExpertLinear { weight, bias, lora: None }
    }

    /// The layer with an adapter, where there is one.
    pub fn with_lora(self, lora: Option<ExpertLora>) -> Self {
        ExpertLinear { lora: lora.map(Box::new), ..self }
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

    /// Bytes that its products take, of which a row passes `per_row`; experts are multiplied as they are.
    pub fn workspace(&self, per_row: u64) -> Workspace {
        let row = self.lora.as_ref().map_or(0, |lora| per_row * lora.row_bytes());
        Workspace { row, ..Workspace::default() }
    }

    /// Whether products are faster where the experts are named in order.
    pub fn prefers_order(&self) -> bool {
        self.weight.kernels.prefers_order()
    }
}
