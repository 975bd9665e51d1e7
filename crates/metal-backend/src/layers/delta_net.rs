//! The gated delta net: linear attention over a state that each position corrects.

use mlx_ffi::cpu::{ConvolutionActivation, DeltaRule, Filter};
use mlx_ffi::{Array, Dtype, Result};

use super::recur::recur;
use super::{DeltaProjections, DeltaSizes, Fusion, Linear, Positions, RmsNorm, Workspace};
use crate::cache::{Recurrent, RecurrentSpec};
use crate::kernels::{Activation, Columns, GatedNorm, Kernels, Norm};

/// A gated delta net (Qwen 3 Next and 3.5, Kimi): projections, a short convolution, the gated delta
/// rule, and a norm of each head that a gate follows.
#[derive(Debug)]
pub(crate) struct DeltaNet {
    pub sizes: DeltaSizes,
    pub projections: DeltaProjections,
    /// `[taps, mixed]`.
    pub convolution: Array,
    /// `[v_heads]` F32.
    pub a_log: Array,
    /// `[v_heads · decays]` F32.
    pub dt_bias: Array,
    /// Over each value head.
    pub norm: RmsNorm,
    /// The activation of the gate of the norm's result: `Silu` (Qwen) or `Sigmoid` (Kimi).
    pub gate: Activation,
    pub out_proj: Linear,
    /// Whose kernels compute it.
    pub kernels: Kernels,
}

impl DeltaNet {
    /// `x` is `[b, l, hidden_size]`; so is the result, with its `fusion`. `state` goes `l`
    /// positions on.
    pub fn forward(
        &self,
        x: &Array,
        fusion: Fusion<'_>,
        positions: &mut Positions,
        state: &mut Recurrent,
    ) -> Result<Array> {
        let [qkv, z, b, a] = self.projections.forward(self.sizes, x, fusion.only_prologue())?;
        let filter = Filter {
            weight: &self.convolution,
            bias: None,
            activation: ConvolutionActivation::Silu,
        };
        let part = |[qkv, b, a]: [Columns; 3], lengths: &[i32], state: &mut Recurrent| {
            let [inputs, sum] = state.take(qkv.of.dtype())?;
            let [mixed, inputs] = self.kernels.convolution(&qkv, inputs, filter, lengths)?;
            let [y, sum] = self.kernels.delta(&DeltaRule {
                mixed: &mixed,
                a: a.heads(),
                b: b.heads(),
                a_log: &self.a_log,
                dt_bias: &self.dt_bias,
                k_heads: self.sizes.k_heads,
                lengths,
                state: &sum,
            })?;
            state.set([inputs, sum]);
            Ok(y)
        };
        let y = recur([qkv, b, a], self.kernels, positions, state, part)?;
        let gated = self.kernels.gated_norm(
            &y,
            &GatedNorm {
                norm: Norm { weight: &self.norm.weight, eps: self.norm.eps },
                activation: self.gate,
                gate: &z,
                gate_is_first: false,
            },
        )?;
        self.out_proj.forward_fused(&gated, fusion.only_epilogue())
    }

    /// The recurrent state that it keeps.
    pub fn spec(&self) -> RecurrentSpec {
        let DeltaSizes { v_heads, k_dim, v_dim, taps, .. } = self.sizes;
        RecurrentSpec {
            convolution: [taps - 1, self.sizes.mixed()],
            state: Some([v_heads, v_dim, k_dim]),
        }
    }

    /// Values of one position between the projections, before and after the convolution; queries
    /// and keys and decays once more, in F32.
    pub fn activations(&self) -> u64 {
        let DeltaSizes { k_heads, v_heads, k_dim, decays, .. } = self.sizes;
        let (mixed, values) = (self.sizes.mixed() as u64, self.sizes.values() as u64);
        let decays = 3 * v_heads as u64 * decays as u64;
        2 * mixed + 4 * values + 4 * (k_heads * k_dim) as u64 + decays
    }

    /// Bytes that its products take.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.projections.workspace(dtype).then(self.out_proj.workspace(dtype))
    }
}
