//! What gates the output of attention, before its last projection.

use mlx_ffi::{Array, Dtype, Result, ops};

use super::{Fusion, Linear, Workspace};
use crate::kernels::{Columns, softplus};

/// What the output of attention is multiplied with.
#[derive(Debug)]
pub(crate) enum OutputGate {
    /// Nothing.
    None,
    /// Behind the queries, `q_proj` gives as many values, of which it is the sigmoid.
    BesideQueries,
    /// The sigmoid of a projection of what queries are made of, to a value for each of the output.
    Sigmoid(Linear),
    /// `ln(1 + exp(x))` in F32 of such a projection, to a value for each of the output or for each head.
    Softplus(Linear),
}

impl OutputGate {
    fn linear(&self) -> Option<&Linear> {
        match self {
            OutputGate::None | OutputGate::BesideQueries => None,
            OutputGate::Sigmoid(linear) | OutputGate::Softplus(linear) => Some(linear),
        }
    }

    /// What queries are made of, `x` with the prologue of `fusion`, where the gate is made of it too.
    pub fn input(&self, x: &Array, fusion: Fusion<'_>) -> Result<Option<Array>> {
        self.linear().map(|_| fusion.prologue(x)).transpose()
    }

    /// The queries of `q`, and the gate of each value or of each head, `[b, l, …]`.
    pub fn values(&self, q: Columns, input: Option<&Array>) -> Result<(Columns, Option<Array>)> {
        match (self, input) {
            (OutputGate::BesideQueries, _) => {
                let (q, gate) = q.halves()?;
                let gate = gate.map(|gate| ops::sigmoid(&gate.array()?)).transpose()?;
                Ok((q, gate))
            }
            (OutputGate::Sigmoid(linear), Some(input)) => {
                Ok((q, Some(ops::sigmoid(&linear.forward(input)?)?)))
            }
            (OutputGate::Softplus(linear), Some(input)) => {
                let gate = linear.forward(input)?;
                let open = softplus(&ops::astype(&gate, Dtype::F32)?)?;
                Ok((q, Some(ops::astype(&open, gate.dtype())?)))
            }
            _ => Ok((q, None)),
        }
    }

    /// Bytes that its product takes.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.linear().map_or_else(Workspace::default, |linear| linear.workspace(dtype))
    }
}

/// `out`, `[b, l, n_heads * d]`, times a gate for each value or for each head.
pub(super) fn apply(out: &Array, gate: &Array, n_heads: i32) -> Result<Array> {
    if out.shape() == gate.shape() {
        return ops::multiply(out, gate);
    }
    let [b, l, width] = out.dims()?;
    let heads = ops::reshape(out, &[b, l, n_heads, width / n_heads])?;
    let gated = ops::multiply(&heads, &ops::expand_dims(gate, -1)?)?;
    ops::reshape(&gated, &[b, l, width])
}
