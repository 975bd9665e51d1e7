//! The gated feed-forward network.

use mlx_ffi::{Array, Result, cuda, ops};

use super::{Around, Columns, Linear, Product};

/// What the gate does to what it lets through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// The tanh form of the Gaussian error linear unit.
    GeluTanh,
    /// `g · sigmoid(alpha · g)` of the gate and 1 more than what it lets through, both clipped at
    /// `limit` (gpt-oss).
    ClippedSilu { alpha: f32, limit: f32 },
}

impl Activation {
    /// The activation of that name in a `config.json`.
    pub fn from_name(name: &str) -> Option<Activation> {
        match name {
            "silu" | "swish" => Some(Activation::Silu),
            "gelu_pytorch_tanh" | "gelu_new" => Some(Activation::GeluTanh),
            _ => None,
        }
    }

    /// As kernels for CUDA know it.
    pub fn on_cuda(self) -> Option<cuda::Gate> {
        match self {
            Activation::Silu => Some(cuda::Gate::Silu),
            Activation::GeluTanh => Some(cuda::Gate::GeluTanh),
            Activation::ClippedSilu { .. } => None,
        }
    }

    /// What passes the gate, `act(gate) · up`, by MLX's operations.
    pub fn gated(self, gate: &Array, up: &Array) -> Result<Array> {
        let scalar = |value| Array::scalar(value, gate.dtype());
        match self {
            Activation::Silu => ops::multiply(&ops::multiply(gate, &ops::sigmoid(gate)?)?, up),
            Activation::GeluTanh => {
                // In one step, which rounds once: mlx-lm's numbers to the bit.
                let cube = ops::power(gate, &scalar(3.0)?)?;
                let inner = ops::add(gate, &ops::multiply(&scalar(0.044_715)?, &cube)?)?;
                let scaled = ops::multiply(&scalar((2.0 / std::f32::consts::PI).sqrt())?, &inner)?;
                let open = ops::add(&scalar(1.0)?, &ops::tanh(&scaled)?)?;
                let gelu = ops::multiply(&ops::multiply(&scalar(0.5)?, gate)?, &open)?;
                ops::multiply(&gelu, up)
            }
            Activation::ClippedSilu { alpha, limit } => {
                let gate = ops::minimum(gate, &scalar(limit)?)?;
                let up = ops::maximum(&ops::minimum(up, &scalar(limit)?)?, &scalar(-limit)?)?;
                let open = ops::sigmoid(&ops::multiply(&scalar(alpha)?, &gate)?)?;
                let silu = ops::multiply(&gate, &open)?;
                ops::multiply(&silu, &ops::add(&up, &scalar(1.0)?)?)
            }
        }
    }
}

/// The two projections into the network: the gate and what it lets through.
#[derive(Debug)]
pub(crate) enum GateUp<L> {
    /// One matrix for each.
    Separate { gate_proj: L, up_proj: L },
    /// One matrix: the rows of the gate, then those of the other.
    Halves(L),
    /// One matrix: a row of the gate, a row of the other, and so on.
    Interleaved(L),
}

impl<L> GateUp<L> {
    /// The gate and what it lets through, where `project` applies a matrix.
    pub fn forward(&self, project: impl Fn(&L) -> Result<Array>) -> Result<(Columns, Columns)> {
        match self {
            GateUp::Separate { gate_proj, up_proj } => {
                Ok((Columns::all(project(gate_proj)?), Columns::all(project(up_proj)?)))
            }
            GateUp::Halves(both) => {
                let both = project(both)?;
                let all = both.shape().last().copied().unwrap_or(0);
                let gate = Columns { of: both.share()?, range: 0..all / 2 };
                Ok((gate, Columns { of: both, range: all / 2..all }))
            }
            GateUp::Interleaved(both) => {
                let both = project(both)?;
                let mut pairs = both.shape().to_vec();
                if let Some(last) = pairs.last_mut() {
                    *last /= 2;
                }
                pairs.push(2);
                let pairs = ops::reshape(&both, &pairs)?;
                let column = |at| ops::squeeze(&ops::slice_axis(&pairs, -1, at, at + 1)?, -1);
                Ok((Columns::all(column(0)?), Columns::all(column(1)?)))
            }
        }
    }
}

/// `down(act(gate(x)) · up(x))`.
#[derive(Debug)]
pub(crate) struct Mlp {
    /// `hidden_size` to `intermediate_size`, twice.
    pub gate_up: GateUp<Linear>,
    /// `intermediate_size` to `hidden_size`.
    pub down_proj: Linear,
    /// The gate's activation.
    pub activation: Activation,
    /// Whose kernels compute the gate.
    pub product: Product,
}

impl Mlp {
    /// `[b, l, hidden_size]` to the same, with what is done around it.
    pub fn forward(&self, x: &Array, around: Around<'_>) -> Result<Array> {
        let onto = Around { onto: around.onto, ..Around::default() };
        if let GateUp::Halves(both) = &self.gate_up
            && let Some(inner) = both.gated(x, self.activation, around)
        {
            return self.down_proj.forward_around(&inner?, onto);
        }
        let x = &around.before(x)?;
        let (gate, up) = self.gate_up.forward(|linear| linear.forward(x))?;
        let inner = self.product.gated(self.activation, &gate, &up)?;
        self.down_proj.forward_around(&inner, onto)
    }
}
