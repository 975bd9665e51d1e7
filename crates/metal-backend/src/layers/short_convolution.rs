//! A gated short convolution: each position sees the few before it.

use mlx_ffi::cpu::{ConvolutionActivation, Filter};
use mlx_ffi::{Array, Dtype, Result};

use super::recur::recur;
use super::{Fusion, Linear, Positions, Workspace};
use crate::cache::{Recurrent, RecurrentSpec};
use crate::kernels::{Activation, Columns, Kernels};

/// A short convolution of gated inputs, whose result is gated too (LFM 2):
/// `out(C · conv(B · X))` with `[B | C | X] = in(x)`.
#[derive(Debug)]
pub(crate) struct ShortConvolution {
    /// Positions that a position sees, itself included, and values of each.
    pub sizes: [i32; 2],
    /// `hidden_size` to three times as many values.
    pub in_proj: Linear,
    /// `[taps, hidden_size]`.
    pub convolution: Array,
    /// Of the convolution, `[hidden_size]`.
    pub bias: Option<Array>,
    pub out_proj: Linear,
    /// Whose kernels compute the convolution.
    pub kernels: Kernels,
}

impl ShortConvolution {
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
        let [_, channels] = self.sizes;
        let part = |index: i32| {
            let range = index * channels..(index + 1) * channels;
            all.share().map(|of| Columns { of, range })
        };
        let product = |x: &Columns, y: &Columns| self.kernels.gated(Activation::Identity, x, y);
        let inputs = product(&part(0)?, &part(2)?)?;
        let filter = Filter {
            weight: &self.convolution,
            bias: self.bias.as_ref(),
            activation: ConvolutionActivation::None,
        };
        let convolved = |[inputs]: [Columns; 1], lengths: &[i32], state: &mut Recurrent| {
            let [before] = state.take(inputs.of.dtype())?;
            let [y, before] = self.kernels.convolution(&inputs, before, filter, lengths)?;
            state.set([before]);
            Ok(y)
        };
        let y = recur([Columns::all(inputs)], self.kernels, positions, state, convolved)?;
        self.out_proj.forward_fused(&product(&part(1)?, &Columns::all(y))?, fusion.only_epilogue())
    }

    /// The recurrent state that it keeps.
    pub fn spec(&self) -> RecurrentSpec {
        let [taps, channels] = self.sizes;
        RecurrentSpec { convolution: [taps - 1, channels], state: None }
    }

    /// Values of one position between the projections: three parts, the gated inputs, their
    /// convolution and what passes its gate.
    pub fn activations(&self) -> u64 {
        6 * self.sizes[1] as u64
    }

    /// Bytes that its products take.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.in_proj.workspace(dtype).then(self.out_proj.workspace(dtype))
    }
}
