//! The activation of a gated network.

use mlx_ffi::{Array, GELU_CUBE, Result, ops};

/// What the gate does to what it lets through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// The tanh form of the Gaussian error linear unit.
    GeluTanh,
    /// `x` where it is above 0, else 0.
    Relu,
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

    /// As our own kernels know it.
    pub fn fused(self) -> Option<mlx_ffi::Activation> {
        match self {
            Activation::Silu => Some(mlx_ffi::Activation::Silu),
            Activation::GeluTanh => Some(mlx_ffi::Activation::GeluTanh),
            Activation::Relu => Some(mlx_ffi::Activation::Relu),
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
                let inner = ops::add(gate, &ops::multiply(&scalar(GELU_CUBE)?, &cube)?)?;
                let scaled = ops::multiply(&scalar((2.0 / std::f32::consts::PI).sqrt())?, &inner)?;
                let open = ops::add(&scalar(1.0)?, &ops::tanh(&scaled)?)?;
                let gelu = ops::multiply(&ops::multiply(&scalar(0.5)?, gate)?, &open)?;
                ops::multiply(&gelu, up)
            }
            Activation::Relu => ops::multiply(&ops::maximum(gate, &scalar(0.0)?)?, up),
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
