//! The feed-forward networks of towers, and projections between bounds.

use mlx_ffi::{Array, Result, ops};

use crate::kernels::{Activation, Columns, Kernels};
use crate::layers::Linear;

/// A projection whose input and output are held between bounds, where it has any (Gemma 4).
#[derive(Debug)]
pub(crate) struct ClippedLinear {
    pub linear: Linear,
    /// Least and most of what goes in; scalars.
    pub input: Option<[Array; 2]>,
    /// Least and most of what comes out; scalars.
    pub output: Option<[Array; 2]>,
}

impl From<Linear> for ClippedLinear {
    fn from(linear: Linear) -> ClippedLinear {
        ClippedLinear { linear, input: None, output: None }
    }
}

impl ClippedLinear {
    /// `[…, in]` to `[…, out]`.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let x = clipped(x, &self.input)?;
        clipped(&self.linear.forward(&x)?, &self.output)
    }
}

fn clipped(x: &Array, bounds: &Option<[Array; 2]>) -> Result<Array> {
    match bounds {
        None => x.share(),
        Some([least, most]) => ops::minimum(&ops::maximum(x, least)?, most),
    }
}

/// A feed-forward network.
#[derive(Debug)]
pub(crate) enum Network {
    /// Two projections around an activation.
    Plain { linears: Box<[Linear; 2]>, act: Activation },
    /// A gate, what it lets through, and the way back.
    Gated { linears: Box<[ClippedLinear; 3]>, gate_by: Activation },
}

impl Network {
    /// `[1, n, hidden_size]` to the same.
    pub fn forward(&self, x: &Array, kernels: Kernels) -> Result<Array> {
        match self {
            Network::Plain { linears, act } => {
                let [into, out] = &**linears;
                out.forward(&kernels.activated(*act, &into.forward(x)?)?)
            }
            Network::Gated { linears, gate_by } => {
                let [gate, up, down] = &**linears;
                let (gate, up) = (gate.forward(x)?, up.forward(x)?);
                let (gate, up) = (Columns::all(gate), Columns::all(up));
                down.forward(&kernels.gated(*gate_by, &gate, &up)?)
            }
        }
    }
}
