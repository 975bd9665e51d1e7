//! A mixture of experts: each position passes the few feed-forward networks that a router picks.

use mlx_ffi::{Array, Dtype, Indices, Result, cuda, ops};

use super::{ExpertLinear, Fusion, GateUp, Linear, Mlp, Routing, Workspace};
use crate::kernels::{Activation, Columns, Kernels, Order};

/// Chosen experts from which on sorting them pays.
const SORT_FROM: usize = 64;

/// A network beside the experts that every position passes.
#[derive(Debug)]
pub(crate) struct SharedExpert {
    pub mlp: Mlp,
    /// `hidden_size` to one value, whose sigmoid the result is multiplied with.
    pub gate: Option<Linear>,
}

impl SharedExpert {
    fn workspace(&self, dtype: Dtype) -> Workspace {
        let mlp = self.mlp.workspace(dtype);
        self.gate.as_ref().map_or(mlp, |gate| mlp.then(gate.workspace(dtype)))
    }

    /// `[b, l, hidden_size]` to the same.
    fn forward(&self, x: &Array) -> Result<Array> {
        let y = self.mlp.forward(x, Fusion::default())?;
        match &self.gate {
            None => Ok(y),
            Some(gate) => {
                let gate = Columns::all(gate.forward(x)?);
                self.mlp.kernels.gated(Activation::Sigmoid, &gate, &Columns::all(y))
            }
        }
    }
}

/// `Σ weight · down(act(gate(x)) · up(x))` over the chosen experts, and what the shared one adds.
#[derive(Debug)]
pub(crate) struct Moe {
    /// `hidden_size` to the number of experts.
    pub router: Linear,
    pub routing: Routing,
    /// Experts that a position passes.
    pub experts_per_token: i32,
    /// `hidden_size` to the experts' inner size, twice.
    pub gate_up: GateUp<ExpertLinear>,
    /// The inner size to `hidden_size`.
    pub down_proj: ExpertLinear,
    pub activation: Activation,
    pub shared: Option<SharedExpert>,
    /// Whose kernels compute the gate.
    pub kernels: Kernels,
}

impl Moe {
    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        let of = |linear: &ExpertLinear| linear.workspace(dtype, self.experts_per_token as u64);
        let gate_up = self.gate_up.workspace(of);
        let own = self.router.workspace(dtype).then(gate_up).then(of(&self.down_proj));
        self.shared.as_ref().map_or(own, |shared| own.then(shared.workspace(dtype)))
    }

    /// The experts' networks as our own kernels for CUDA take them, where these compute `x`.
    pub fn on_cuda(&self, x: &Array) -> Option<cuda::ExpertNetwork<'_>> {
        let into = match &self.gate_up {
            GateUp::Separate { gate_proj, up_proj } => {
                cuda::IntoExperts::Separate([gate_proj.on_cuda()?, up_proj.on_cuda()?])
            }
            GateUp::Halves(both) => cuda::IntoExperts::Halves(both.on_cuda()?),
            GateUp::Interleaved(both) => cuda::IntoExperts::Interleaved(both.on_cuda()?),
            GateUp::Shared(both) => cuda::IntoExperts::Same(both.on_cuda()?),
        };
        let (gate, down) = (self.activation.of_experts()?, self.down_proj.on_cuda()?);
        let network = cuda::ExpertNetwork { into, gate, down };
        cuda::takes_experts(x, &network, self.experts_per_token, false).then_some(network)
    }

    /// `[b, l, hidden_size]` to the same, with its `fusion`, by `network` and a few operations.
    pub fn at_once(
        &self,
        x: &Array,
        network: &cuda::ExpertNetwork<'_>,
        fusion: Fusion<'_>,
    ) -> Result<Array> {
        let count = self.experts_per_token;
        let fits = |array: &Array| array.dtype() == x.dtype();
        // A shared expert sees the norm's result, too.
        let is_alone = x.rows() == 1 && self.shared.is_none() && fusion.normed.is_none();
        let norm = fusion.norm.and_then(|norm| norm.weights());
        let norm = norm.filter(|norm| is_alone && fits(norm.weight));
        let norm = norm.filter(|_| cuda::takes_experts(x, network, count, true));
        let (x, before) = match norm {
            Some(_) => (&x.share()?, fusion.only_prologue()),
            None => (&fusion.prologue(x)?, Fusion::default()),
        };
        let logits = self.router.forward_fused(x, before)?;
        let norm = norm.map(|norm| (norm.weight, norm.eps));
        let experts = |onto: Option<&Array>| {
            self.with_chosen(&logits, x.dtype(), |of| cuda::experts(x, network, of, norm, onto))
        };
        if let Some(shared) = &self.shared {
            let shared = shared.forward(x)?;
            let y = match self.down_proj.is_whole() {
                true => experts(Some(&shared))?,
                false => {
                    let own = experts(None)?;
                    self.kernels.sum(&self.down_proj.all(own)?, &shared)?
                }
            };
            return fusion.epilogue(self.kernels, y);
        }
        match fusion.residual {
            Some(onto) if fits(onto) && self.down_proj.is_whole() => experts(Some(onto)),
            _ => {
                let own = experts(None)?;
                fusion.epilogue(self.kernels, self.down_proj.all(own)?)
            }
        }
    }

    /// The result of `compute` for the experts that `logits`, `[…, experts]`, choose for each row.
    /// Their weights are in `dtype`.
    fn with_chosen(
        &self,
        logits: &Array,
        dtype: Dtype,
        compute: impl Fn(cuda::Chosen<'_>) -> Result<Array>,
    ) -> Result<Array> {
        let count = self.experts_per_token;
        match self.routing.on_cuda(logits, count) {
            Some(router) if logits.dtype() == dtype => compute(cuda::Chosen::By { logits, router }),
            _ => {
                let logits = ops::reshape(logits, &[logits.rows(), -1])?;
                let (indices, weights) = self.routing.route(&logits, count, dtype)?;
                compute(cuda::Chosen::These { indices: &indices, weights: &weights })
            }
        }
    }

    /// `[b, l, hidden_size]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let shared = self.shared.as_ref().map(|shared| shared.forward(x)).transpose()?;
        let y = self.routed(x, x)?;
        match shared {
            None => Ok(y),
            Some(shared) => self.kernels.sum(&y, &shared),
        }
    }

    /// `x`, `[b, l, size]`, by the experts that the router chooses where it sees `seen`,
    /// `[b, l, hidden_size]`: as `x`.
    pub fn routed(&self, x: &Array, seen: &Array) -> Result<Array> {
        let logits = match self.on_cuda(x) {
            Some(_) => self.router.forward_fused(seen, Fusion::default())?,
            None => {
                let [b, l, hidden] = seen.dims()?;
                self.router.forward(&ops::reshape(seen, &[b * l, hidden])?)?
            }
        };
        self.routed_by(x, &logits)
    }

    /// `x`, `[b, l, size]`, by the experts that the router's `logits`, `[…, experts]`, choose: as
    /// `x`.
    pub fn routed_by(&self, x: &Array, logits: &Array) -> Result<Array> {
        if let Some(network) = self.on_cuda(x) {
            let y = self
                .with_chosen(logits, x.dtype(), |of| cuda::experts(x, &network, of, None, None))?;
            return self.down_proj.all(y);
        }
        let [b, l, size] = x.dims()?;
        let x = ops::reshape(x, &[b * l, size])?;
        let logits = ops::reshape(logits, &[b * l, -1])?;
        let (indices, weights) = self.routing.route(&logits, self.experts_per_token, x.dtype())?;
        // [t, e, size]
        let y = if self.down_proj.prefers_order() && indices.size() >= SORT_FROM {
            self.in_order(&x, &indices)?
        } else {
            self.experts(&ops::expand_dims(&x, 1)?, &indices, Order::Any)?
        };
        let y = ops::sum(&ops::multiply(&y, &ops::expand_dims(&weights, -1)?)?, 1, false)?;
        ops::reshape(&self.down_proj.all(y)?, &[b, l, size])
    }

    /// `x`, `[t, 1, hidden_size]`, by the experts `indices`, `[t, e]`: `[t, e, hidden_size]`.
    fn experts(&self, x: &Array, indices: &Indices, order: Order) -> Result<Array> {
        let (gate, up) = self.gate_up.forward(|linear| linear.forward(x, indices, order))?;
        let inner = self.kernels.gated(self.activation, &gate, &up)?;
        self.down_proj.forward(&inner, indices, order)
    }

    /// `x`, `[t, hidden_size]`, by the experts `indices`, `[t, e]`, with one row for each choice,
    /// in the order of the experts: what uses the same weights comes together.
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
