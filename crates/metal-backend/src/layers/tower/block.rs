//! A block of a tower: attention, then a feed-forward network.

use mlx_ffi::{Array, Result};

use super::attention::TowerAttention;
use super::network::Network;
use super::turns::Places;
use crate::kernels::{Branch, Kernels, ScaledNorm};
use crate::layers::{Around, LayerNorm, RmsNorm};

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

    /// As one operation takes it with a sum before it, and what keeps the root from 0.
    fn scaled(&self) -> Option<(ScaledNorm<'_>, f32)> {
        let of = |weight, scale, shift| ScaledNorm { weight, scale, one_more: false, shift };
        match self {
            TowerNorm::Layer(norm) => {
                Some((of(None, Some(&norm.weight), norm.bias.as_ref()), norm.eps))
            }
            TowerNorm::Rms(norm) if norm.around == Around::Zero => {
                Some((of(Some(&norm.weight), None, None), norm.eps))
            }
            TowerNorm::Rms(_) => None,
        }
    }

    /// `x + y`, where `y` may be normed before with `out_norm`, and the norm of that.
    fn added(
        &self,
        x: &Array,
        y: &Array,
        out_norm: Option<&RmsNorm>,
        kernels: Kernels,
    ) -> Result<[Array; 2]> {
        let weight = out_norm.map(|norm| &norm.weight);
        let branch = Branch { y, norm: weight, gate: None, tanh: false };
        let is_alike = |eps: f32| out_norm.is_none_or(|norm| norm.eps == eps);
        let found = match self.scaled() {
            Some((norm, eps)) if is_alike(eps) => {
                kernels.modulated(x, Some(&branch), Some(&norm), eps)
            }
            _ => None,
        };
        match found.transpose()? {
            Some((x, Some(normed))) => Ok([x, normed]),
            _ => {
                let x = plain_sum(x, y, out_norm, kernels)?;
                let normed = self.forward(&x)?;
                Ok([x, normed])
            }
        }
    }
}

/// `x + y`, where `y` may be normed before.
fn plain_sum(x: &Array, y: &Array, out_norm: Option<&RmsNorm>, kernels: Kernels) -> Result<Array> {
    match out_norm {
        None => kernels.sum(x, y),
        Some(norm) => kernels.sum(x, &norm.forward(y)?),
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

/// The values passed from block to block.
#[derive(Debug)]
pub(crate) struct Passed {
    /// `[1, n, hidden_size]`.
    pub x: Array,
    /// With the norm that the next block begins with, where that was made already.
    normed: Option<Array>,
}

impl Passed {
    /// The input of a first block.
    pub fn new(x: Array) -> Passed {
        Passed { x, normed: None }
    }

    /// All arrays of it.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        [&self.x].into_iter().chain(&self.normed)
    }
}

impl TowerBlock {
    /// Computes the input of the `next` block, or the result if there is none.
    pub fn forward(
        &self,
        Passed { x, normed }: &Passed,
        next: Option<&TowerBlock>,
        places: Places<'_>,
        kernels: Kernels,
    ) -> Result<Passed> {
        let [first, second] = &self.norms;
        let [out_norm, network_norm] = match &self.out_norms {
            None => [None; 2],
            Some([first, second]) => [Some(first), Some(second)],
        };
        let normed = normed.as_ref().map_or_else(|| first.forward(x), Array::share)?;
        let mixed = self.attention.forward(&normed, places, kernels)?;
        let [x, normed] = second.added(x, &mixed, out_norm, kernels)?;
        let inner = self.network.forward(&normed, kernels)?;
        match next {
            // Only a kernel that makes both at once does more than the next block would.
            Some(next) if kernels == Kernels::Cuda => {
                let [x, normed] = next.norms[0].added(&x, &inner, network_norm, kernels)?;
                Ok(Passed { x, normed: Some(normed) })
            }
            _ => plain_sum(&x, &inner, network_norm, kernels).map(Passed::new),
        }
    }
}
