//! A mixture whose experts see fewer values than the router.

use mlx_ffi::{Array, Dtype, Result};

use super::{Fusion, Linear, Mlp, Moe, Workspace};

/// `up(moe(down(x))) + shared(x)`, whose router sees `x` (Nemotron H).
#[derive(Debug)]
pub(crate) struct LatentMoe {
    /// `hidden_size` to what the experts see.
    pub down: Linear,
    /// Without a shared expert.
    pub moe: Moe,
    /// The experts' results to `hidden_size`.
    pub up: Linear,
    /// Beside the experts.
    pub shared: Option<Mlp>,
}

impl LatentMoe {
    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        let around = self.down.workspace(dtype).then(self.up.workspace(dtype));
        let own = around.then(self.moe.workspace(dtype));
        self.shared.as_ref().map_or(own, |shared| own.then(shared.workspace(dtype)))
    }

    /// `[b, l, hidden_size]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let y = self.up.forward(&self.moe.routed(&self.down.forward(x)?, x)?)?;
        match &self.shared {
            None => Ok(y),
            Some(shared) => self.moe.kernels.sum(&y, &shared.forward(x, Fusion::default())?),
        }
    }
}
