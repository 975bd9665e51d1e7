//! The gated feed-forward network.

use mlx_ffi::{Array, Dtype, Result, ops};

use super::{Fusion, Linear, Workspace};
use crate::kernels::{Activation, Columns, Kernels};

/// The two projections into the network: the gate and what it lets through.
#[derive(Debug)]
pub(crate) enum GateUp<L> {
    /// One matrix for each.
    Separate { gate_proj: L, up_proj: L },
    /// One matrix: the rows of the gate, then those of the other.
    Halves(L),
    /// One matrix: a row of the gate, a row of the other, and so on.
    Interleaved(L),
    /// One matrix whose result is both: a ReLU of it as its gate is its square above 0.
    Shared(L),
}

impl<L> GateUp<L> {
    /// Bytes that the products take, where `of` tells those of one; separate ones may be computed
    /// at once.
    pub fn workspace(&self, of: impl Fn(&L) -> Workspace) -> Workspace {
        match self {
            GateUp::Separate { gate_proj, up_proj } => of(gate_proj).and(of(up_proj)),
            GateUp::Halves(both) | GateUp::Interleaved(both) | GateUp::Shared(both) => of(both),
        }
    }

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
            GateUp::Shared(both) => {
                let both = project(both)?;
                Ok((Columns::all(both.share()?), Columns::all(both)))
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
    /// The factors of the gate, before its activation, and of the result (Falcon H1).
    pub multipliers: Option<[f32; 2]>,
    /// Whose kernels compute the gate.
    pub kernels: Kernels,
}

impl Mlp {
    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        let gate_up = self.gate_up.workspace(|linear| linear.workspace(dtype));
        gate_up.then(self.down_proj.workspace(dtype))
    }

    /// `[b, l, hidden_size]` to the same, with its `fusion`.
    pub fn forward(&self, x: &Array, fusion: Fusion<'_>) -> Result<Array> {
        let epilogue = fusion.only_epilogue();
        if self.multipliers.is_none()
            && let GateUp::Halves(both) = &self.gate_up
            && let Some(inner) = both.gated(x, self.activation, fusion)
        {
            return self.down_proj.forward_fused(&inner?, epilogue);
        }
        let (gate, up) = match &self.gate_up {
            // One product, which may begin with the norm.
            GateUp::Shared(_) | GateUp::Halves(_) => {
                let before = fusion.only_prologue();
                self.gate_up.forward(|linear| linear.forward_fused(x, before))?
            }
            GateUp::Separate { .. } | GateUp::Interleaved(_) => {
                let x = &fusion.prologue(x)?;
                self.gate_up.forward(|linear| linear.forward(x))?
            }
        };
        let Some([of_gate, of_result]) = self.multipliers else {
            let inner = self.kernels.gated(self.activation, &gate, &up)?;
            return self.down_proj.forward_fused(&inner, epilogue);
        };
        let gate = Columns::all(self.kernels.scaled(&gate, of_gate)?);
        let inner = self.kernels.gated(self.activation, &gate, &up)?;
        let y = Columns::all(self.down_proj.forward(&inner)?);
        let y = self.kernels.scaled(&y, of_result)?;
        epilogue.epilogue(self.kernels, y)
    }
}
