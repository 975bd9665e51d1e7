//! Mamba 2: a state space whose steps depend on what it reads.

use mlx_ffi::cpu::{ConvolutionActivation, Filter, SelectiveScan};
use mlx_ffi::distributed::Group;
use mlx_ffi::{Array, Dtype, Result, ops};

use super::recur::recur;
use super::{Fusion, Linear, Positions, RmsNorm, Workspace};
use crate::cache::{Recurrent, RecurrentSpec};
use crate::kernels::{Activation, Columns, GatedNorm, Kernels, Norm};

/// The sizes of a Mamba 2 layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MambaSizes {
    pub heads: i32,
    /// Values of a head.
    pub head_dim: i32,
    /// Groups of neighbouring heads that share what they write into their states and read from
    /// them.
    pub groups: i32,
    /// Columns of a head's state.
    pub state_dim: i32,
    /// Positions that a position's convolution sees, itself included.
    pub taps: i32,
}

impl MambaSizes {
    /// Values of all heads.
    pub fn inner(&self) -> i32 {
        self.heads * self.head_dim
    }

    /// Values that pass the convolution.
    pub fn mixed(&self) -> i32 {
        self.inner() + 2 * self.groups * self.state_dim
    }
}

/// The position of the result's norm, `[groups, inner / groups]`, relative to the gate.
#[derive(Debug)]
pub(crate) enum GateNorm {
    /// There is none.
    None,
    /// It sees what the gate lets through.
    BehindGate(RmsNorm),
    /// The gate sees what it gives.
    BeforeGate(RmsNorm),
}

/// A group of heads of which several ranks have some each.
#[derive(Clone, Debug)]
pub(crate) struct SharedGroup {
    pub ranks: Group,
    /// Groups of all ranks.
    pub groups: i32,
    /// Which one of them this rank has heads of.
    pub group: i32,
    /// Values of a group.
    pub size: i32,
}

impl SharedGroup {
    /// `y`, `[…, n]`, this rank's values of a group, normed beside those of the others: ranks sum
    /// the squares of each group.
    fn normed(&self, norm: &RmsNorm, y: &Array) -> Result<Array> {
        let values = ops::astype(y, Dtype::F32)?;
        let squares = ops::sum(&ops::multiply(&values, &values)?, -1, true)?;
        let own: Vec<f32> = (0..self.groups).map(|at| f32::from(at == self.group)).collect();
        let own = Array::from_f32(&own, &[self.groups])?;
        let squares = self.ranks.all_sum(&ops::multiply(&squares, &own)?)?;
        let squares = ops::slice_axis(&squares, -1, self.group, self.group + 1)?;
        let part = Array::scalar((self.size as f32).recip(), Dtype::F32)?;
        let eps = Array::scalar(norm.eps, Dtype::F32)?;
        let root = ops::sqrt(&ops::add(&ops::multiply(&squares, &part)?, &eps)?)?;
        let weight = ops::reshape(&ops::astype(&norm.weight, Dtype::F32)?, &[-1])?;
        ops::astype(&ops::multiply(&ops::divide(&values, &root)?, &weight)?, y.dtype())
    }
}

/// A Mamba 2 layer (arXiv 2405.21060): a projection, a short convolution, the selective scan, and a
/// norm beside a gate.
#[derive(Debug)]
pub(crate) struct Mamba2 {
    pub sizes: MambaSizes,
    /// Set when other ranks have heads of the same group.
    pub shared: Option<SharedGroup>,
    /// From `hidden_size` to the gate, what passes the convolution, and a step of each head.
    pub in_proj: Linear,
    /// Factors of the result of `in_proj`, one for each value.
    pub multipliers: Option<Array>,
    /// `[taps, mixed]`.
    pub convolution: Array,
    /// Of the convolution, `[mixed]`.
    pub bias: Option<Array>,
    /// `[heads]` F32.
    pub a_log: Array,
    /// `[heads]` F32.
    pub dt_bias: Array,
    /// Factors of the inputs that bypass the state, `[heads]` F32.
    pub d: Array,
    /// The least step and the largest.
    pub limits: [f32; 2],
    pub norm: GateNorm,
    pub out_proj: Linear,
    /// Whose kernels compute it.
    pub kernels: Kernels,
}

impl Mamba2 {
    /// `x` is `[b, l, hidden_size]`; so is the result, with its `fusion`. `state` goes `l`
    /// positions on.
    pub fn forward(
        &self,
        x: &Array,
        fusion: Fusion<'_>,
        positions: &mut Positions,
        state: &mut Recurrent,
    ) -> Result<Array> {
        let all = self.in_proj.forward_fused(x, fusion.only_prologue())?;
        let all = match &self.multipliers {
            None => all,
            Some(multipliers) => self.kernels.times(&all, multipliers)?,
        };
        let (inner, mixed) = (self.sizes.inner(), self.sizes.mixed());
        let part = |first: i32, count: i32| {
            all.share().map(|of| Columns { of, range: first..first + count })
        };
        let (inputs, dt) = (part(inner, mixed)?, part(inner + mixed, self.sizes.heads)?);
        let filter = Filter {
            weight: &self.convolution,
            bias: self.bias.as_ref(),
            activation: ConvolutionActivation::Silu,
        };
        let scanned = |[inputs, dt]: [Columns; 2], lengths: &[i32], state: &mut Recurrent| {
            let [before, sum] = state.take(inputs.of.dtype())?;
            let [mixed, before] = self.kernels.convolution(&inputs, before, filter, lengths)?;
            let [y, sum] = self.kernels.scan(&SelectiveScan {
                mixed: &mixed,
                dt: dt.heads(),
                a_log: &self.a_log,
                dt_bias: &self.dt_bias,
                d: &self.d,
                groups: self.sizes.groups,
                limits: self.limits,
                lengths,
                state: &sum,
            })?;
            state.set([before, sum]);
            Ok(y)
        };
        let y = recur([inputs, dt], self.kernels, positions, state, scanned)?;
        let (gate, activation) = (part(0, inner)?, Activation::Silu);
        let (norm, gate_is_first) = match &self.norm {
            GateNorm::None => {
                let y = self.kernels.gated(activation, &gate, &Columns::all(y))?;
                return self.out_proj.forward_fused(&y, fusion.only_epilogue());
            }
            GateNorm::BehindGate(norm) => (norm, true),
            GateNorm::BeforeGate(norm) => (norm, false),
        };
        let opened = |y| self.kernels.gated(activation, &gate, &Columns::all(y));
        let y = match (&self.shared, gate_is_first) {
            (Some(shared), true) => shared.normed(norm, &opened(y)?)?,
            (Some(shared), false) => opened(shared.normed(norm, &y)?)?,
            (None, _) => {
                let norm = Norm { weight: &norm.weight, eps: norm.eps };
                let by = GatedNorm { norm, activation, gate: &gate, gate_is_first };
                self.kernels.gated_norm(&y, &by)?
            }
        };
        self.out_proj.forward_fused(&y, fusion.only_epilogue())
    }

    /// The recurrent state that it keeps.
    pub fn spec(&self) -> RecurrentSpec {
        let MambaSizes { heads, head_dim, state_dim, taps, .. } = self.sizes;
        RecurrentSpec {
            convolution: [taps - 1, self.sizes.mixed()],
            state: Some([heads, head_dim, state_dim]),
        }
    }

    /// Values of one position between the projections: what `in_proj` gives, twice where it is
    /// multiplied, what passes the convolution before and behind it, the result in three forms, and
    /// steps and decays in F32.
    pub fn activations(&self) -> u64 {
        let (inner, mixed) = (self.sizes.inner() as u64, self.sizes.mixed() as u64);
        let heads = self.sizes.heads as u64;
        let all = inner + mixed + heads;
        let copies = 1 + u64::from(self.multipliers.is_some());
        copies * all + 2 * mixed + 3 * inner + 5 * heads
    }

    /// Bytes that its products take.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.in_proj.workspace(dtype).then(self.out_proj.workspace(dtype))
    }
}
