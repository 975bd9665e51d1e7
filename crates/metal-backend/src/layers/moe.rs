//! A mixture of experts: each position passes the few feed-forward networks that a router picks.

use mlx_ffi::{Array, Dtype, Indices, Result, ops};

use super::{ExpertLinear, Fusion, GateUp, Linear, Mlp, Workspace};
use crate::kernels::{Activation, Kernels, Order};

/// Chosen experts from which on sorting them pays.
const SORT_FROM: usize = 64;

/// The second half of a block.
#[derive(Debug)]
pub(crate) enum FeedForward {
    /// One network for all positions.
    Mlp(Mlp),
    /// A few of many.
    Moe(Moe),
}

impl FeedForward {
    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        match self {
            FeedForward::Mlp(mlp) => mlp.workspace(dtype),
            FeedForward::Moe(moe) => moe.workspace(dtype),
        }
    }

    /// `[b, l, hidden_size]` to the same, with its `fusion`.
    pub fn forward(&self, x: &Array, fusion: Fusion<'_>) -> Result<Array> {
        match self {
            FeedForward::Mlp(mlp) => mlp.forward(x, fusion),
            FeedForward::Moe(moe) => {
                fusion.epilogue(moe.kernels, moe.forward(&fusion.prologue(x)?)?)
            }
        }
    }
}

/// How the router's logits choose and weigh experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routing {
    /// The most likely experts, by their probabilities among all.
    Probabilities,
    /// The most likely experts, by their probabilities among the chosen.
    Normalised,
    /// The most likely experts, by their probabilities among the chosen, from logits that were never
    /// compared with those of all (gpt-oss): rounding differs.
    Logits,
}

/// `Σ weight · down(act(gate(x)) · up(x))` over the chosen experts.
#[derive(Debug)]
pub(crate) struct Moe {
    /// `hidden_size` to the number of experts.
    pub router: Linear,
    pub routing: Routing,
    /// Experts that there are.
    pub num_experts: i32,
    /// Experts that a position passes.
    pub experts_per_token: i32,
    /// `hidden_size` to the experts' inner size, twice.
    pub gate_up: GateUp<ExpertLinear>,
    /// The inner size to `hidden_size`.
    pub down_proj: ExpertLinear,
    pub activation: Activation,
    /// Whose kernels compute the gate.
    pub kernels: Kernels,
}

impl Moe {
    /// Bytes that its products take beside the activations, which are of `dtype`.
    fn workspace(&self, dtype: Dtype) -> Workspace {
        let of = |linear: &ExpertLinear| linear.workspace(self.experts_per_token as u64);
        let gate_up = self.gate_up.workspace(of);
        self.router.workspace(dtype).then(gate_up).then(of(&self.down_proj))
    }

    /// `[b, l, hidden_size]` to the same.
    fn forward(&self, x: &Array) -> Result<Array> {
        let [b, l, hidden] = x.dims()?;
        let x = ops::reshape(x, &[b * l, hidden])?;
        let (indices, weights) = self.route(&self.router.forward(&x)?, x.dtype())?;
        // [t, e, hidden_size]
        let y = if self.down_proj.prefers_order() && indices.size() >= SORT_FROM {
            self.in_order(&x, &indices)?
        } else {
            self.experts(&ops::expand_dims(&x, 1)?, &indices, Order::Any)?
        };
        let y = ops::sum(&ops::multiply(&y, &ops::expand_dims(&weights, -1)?)?, 1, false)?;
        ops::reshape(&y, &[b, l, hidden])
    }

    /// Logits `[t, experts]` to the chosen experts and their weights in `dtype`, both `[t, e]`.
    fn route(&self, logits: &Array, dtype: Dtype) -> Result<(Indices, Array)> {
        let first = self.num_experts - self.experts_per_token;
        let best = |scores: &Array| -> Result<(Indices, Array)> {
            let order = ops::argpartition(scores, first, -1)?;
            let indices = order.slice_axis(-1, first, self.num_experts)?;
            let scores = ops::take_along_axis(scores, &indices, -1)?;
            Ok((indices, scores))
        };
        let (indices, weights) = match self.routing {
            Routing::Logits => {
                let (indices, logits) = best(logits)?;
                (indices, ops::softmax(&logits, -1, true)?)
            }
            Routing::Probabilities | Routing::Normalised => {
                // In f32: in 16 bits, probabilities that differ would tie.
                best(&ops::softmax(&ops::astype(logits, Dtype::F32)?, -1, true)?)?
            }
        };
        let weights = match self.routing {
            Routing::Normalised => ops::divide(&weights, &ops::sum(&weights, -1, true)?)?,
            Routing::Probabilities | Routing::Logits => weights,
        };
        Ok((indices, ops::astype(&weights, dtype)?))
    }

    /// `x`, `[t, 1, hidden_size]`, by the experts `indices`, `[t, e]`: `[t, e, hidden_size]`.
    fn experts(&self, x: &Array, indices: &Indices, order: Order) -> Result<Array> {
        let (gate, up) = self.gate_up.forward(|linear| linear.forward(x, indices, order))?;
        let inner = self.kernels.gated(self.activation, &gate, &up)?;
        self.down_proj.forward(&inner, indices, order)
    }

    /// `x`, `[t, hidden_size]`, by the experts `indices`, `[t, e]`, with one row for each choice, in
    /// the order of the experts: what uses the same weights comes together.
    fn in_order(&self, x: &Array, indices: &Indices) -> Result<Array> {
        let [t, e] = indices.dims()?;
        let [_, hidden] = x.dims()?;
        let chosen = indices.reshape(&[t * e])?;
        let order = ops::argsort(&chosen, 0)?;
        let back = ops::argsort(&order, 0)?;
        let token = Indices::up_to(t)?.expand_dims(1)?;
        let token = token.broadcast_to(&[t, e])?.reshape(&[t * e])?;
        let rows = ops::take(x, &token.take(&order, 0)?, 0)?;
        let sorted = chosen.take(&order, 0)?.expand_dims(1)?;
        let y = self.experts(&ops::expand_dims(&rows, 1)?, &sorted, Order::Sorted)?;
        let y = ops::take(&ops::squeeze(&y, 1)?, &back, 0)?;
        ops::reshape(&y, &[t, e, hidden])
    }
}
