//! A block of a tower: attention, then a feed-forward network.

use mlx_ffi::{Array, Result};

use super::attention::TowerAttention;
use super::network::Network;
use super::turns::Turns;
use crate::kernels::Kernels;
use crate::layers::{LayerNorm, RmsNorm};

/// A norm of a tower.
#[derive(Debug)]
pub(crate) enum TowerNorm {
    Layer(LayerNorm),
    Rms(RmsNorm),
}

impl TowerNorm {
    /// `[…, size]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        match self {
            TowerNorm::Layer(norm) => norm.forward(x),
            TowerNorm::Rms(norm) => norm.forward(x),
        }
    }
}

/// A block of a tower.
#[derive(Debug)]
pub(crate) struct TowerBlock {
    /// Before attention, and before the network.
    pub norms: [TowerNorm; 2],
    pub attention: TowerAttention,
    pub network: Network,
    /// Behind attention and behind the network, before they are added.
    pub out_norms: Option<[RmsNorm; 2]>,
}

impl TowerBlock {
    /// `[1, n, hidden_size]` to the same.
    pub fn forward(&self, x: &Array, turns: Option<&Turns>, kernels: Kernels) -> Result<Array> {
        let normed = |index: usize, x: Array| match &self.out_norms {
            None => Ok(x),
            Some(norms) => norms[index].forward(&x),
        };
        let mixed = self.attention.forward(&self.norms[0].forward(x)?, turns, kernels)?;
        let x = kernels.sum(x, &normed(0, mixed)?)?;
        let inner = self.network.forward(&self.norms[1].forward(&x)?, kernels)?;
        kernels.sum(&x, &normed(1, inner)?)
    }
}
