//! A dense network and a mixture of experts beside it, each with norms of its own.

use mlx_ffi::{Array, Dtype, Result};

use super::{Fusion, Mlp, Moe, RmsNorm, Workspace};

/// `norm₁(mlp(norm(x))) + norm₂(moe(norm₃(x)))`, whose router sees `x` by a norm of its own (Gemma
/// 4).
#[derive(Debug)]
pub(crate) struct DenseAndMoe {
    /// Behind the norm of the block.
    pub mlp: Mlp,
    /// On what the dense network gives.
    pub mlp_out_norm: RmsNorm,
    /// Before the router.
    pub router_norm: RmsNorm,
    /// Before the experts.
    pub moe_norm: RmsNorm,
    pub moe: Moe,
    /// On what the experts give.
    pub moe_out_norm: RmsNorm,
}

impl DenseAndMoe {
    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.mlp.workspace(dtype).then(self.moe.workspace(dtype))
    }

    /// `x`, `[b, l, hidden_size]`, to the same, with its `fusion`.
    pub fn forward(&self, x: &Array, fusion: Fusion<'_>) -> Result<Array> {
        let dense = self.mlp.forward(x, fusion.only_prologue())?;
        let dense = self.mlp_out_norm.kept(&dense)?;
        let seen = self.router_norm.kept(x)?;
        let routed = self.moe.routed(&self.moe_norm.kept(x)?, &seen)?;
        let routed = self.moe_out_norm.kept(&routed)?;
        let kernels = self.moe.kernels;
        fusion.only_epilogue().epilogue(kernels, kernels.sum(&dense, &routed)?)
    }
}
