//! A mixture whose expert sees its input multiplied with its score.

use mlx_ffi::{Array, Dtype, Result, ops};

use super::{Fusion, Mlp, Moe, Workspace};

/// `expert(s · x) + shared(x)`, of the one expert with the largest logit, whose sigmoid `s` is
/// (Llama 4).
#[derive(Debug)]
pub(crate) struct ScaledMoe {
    /// Of one expert for each position, whose weight is 1; without a shared expert.
    pub moe: Moe,
    pub shared: Mlp,
}

impl ScaledMoe {
    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.moe.workspace(dtype).then(self.shared.workspace(dtype))
    }

    /// `[b, l, hidden_size]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let logits = self.moe.router.forward(x)?;
        // The sigmoid of the largest logit: that of a higher one is higher.
        let score = ops::sigmoid(&ops::astype(&ops::max(&logits, -1, true)?, Dtype::F32)?)?;
        let seen = ops::multiply(x, &ops::astype(&score, x.dtype())?)?;
        let y = self.moe.routed_by(&seen, &logits)?;
        self.moe.kernels.sum(&y, &self.shared.forward(x, Fusion::default())?)
    }
}
