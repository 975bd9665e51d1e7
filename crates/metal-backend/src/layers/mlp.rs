//! The gated feed-forward network.

use mlx_ffi::{Array, Result, ops};

use super::Linear;

/// The gate's activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// The tanh form of the Gaussian error linear unit.
    GeluTanh,
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

    fn forward(self, x: &Array) -> Result<Array> {
        match self {
            Activation::Silu => ops::multiply(x, &ops::sigmoid(x)?),
            Activation::GeluTanh => {
                let scalar = |value| Array::scalar(value, x.dtype());
                // In one step, which rounds once: mlx-lm's numbers to the bit.
                let cube = ops::power(x, &scalar(3.0)?)?;
                let inner = ops::add(x, &ops::multiply(&scalar(0.044_715)?, &cube)?)?;
                let scaled = ops::multiply(&scalar((2.0 / std::f32::consts::PI).sqrt())?, &inner)?;
                let gate = ops::add(&scalar(1.0)?, &ops::tanh(&scaled)?)?;
                ops::multiply(&ops::multiply(&scalar(0.5)?, x)?, &gate)
            }
        }
    }
}

/// `down(act(gate(x)) · up(x))`.
#[derive(Debug)]
pub(crate) struct Mlp {
    /// `hidden_size` to `intermediate_size`.
    pub gate_proj: Linear,
    /// `hidden_size` to `intermediate_size`.
    pub up_proj: Linear,
    /// `intermediate_size` to `hidden_size`.
    pub down_proj: Linear,
    /// The gate's activation.
    pub activation: Activation,
}

impl Mlp {
    /// `[b, l, hidden_size]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let gate = self.activation.forward(&self.gate_proj.forward(x)?)?;
        self.down_proj.forward(&ops::multiply(&gate, &self.up_proj.forward(x)?)?)
    }
}
