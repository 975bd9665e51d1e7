//! The gate of attention's output, before its last projection.

use mlx_ffi::{Array, Dtype, Result};

use super::{Fusion, Linear, Workspace};
use crate::kernels::{Activation, Columns};

/// The factor of attention's output.
#[derive(Debug)]
pub(crate) enum OutputGate {
    /// Nothing.
    None,
    /// Behind the queries, `q_proj` gives as many values, of which it is the sigmoid.
    BesideQueries,
    /// The sigmoid of a projection of what queries are made of, to a value for each of the output.
    Sigmoid(Linear),
    /// `ln(1 + exp(x))` in F32 of such a projection, to a value for each of the output or for each
    /// head.
    Softplus(Linear),
}

impl OutputGate {
    fn linear(&self) -> Option<&Linear> {
        match self {
            OutputGate::None | OutputGate::BesideQueries => None,
            OutputGate::Sigmoid(linear) | OutputGate::Softplus(linear) => Some(linear),
        }
    }

    /// The input of the gate: that of queries, `x` with the prologue of `fusion`. `None` if the
    /// gate has no projection of its own.
    pub fn input(&self, x: &Array, fusion: Fusion<'_>) -> Result<Option<Array>> {
        self.linear().map(|_| fusion.prologue(x)).transpose()
    }

    /// The queries of `q`, and the gate of each value or of each head, `[b, l, …]`, with what it
    /// does.
    pub fn values(
        &self,
        q: Columns,
        input: Option<&Array>,
    ) -> Result<(Columns, Option<(Activation, Columns)>)> {
        let of = |linear: &Linear, input| linear.forward(input).map(Columns::all);
        match (self, input) {
            (OutputGate::BesideQueries, _) => {
                let [q, gate] = q.halves()?;
                Ok((q, Some((Activation::Sigmoid, gate))))
            }
            (OutputGate::Sigmoid(linear), Some(input)) => {
                Ok((q, Some((Activation::Sigmoid, of(linear, input)?))))
            }
            (OutputGate::Softplus(linear), Some(input)) => {
                Ok((q, Some((Activation::Softplus, of(linear, input)?))))
            }
            _ => Ok((q, None)),
        }
    }

    /// Bytes that its product takes.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.linear().map_or_else(Workspace::default, |linear| linear.workspace(dtype))
    }
}
