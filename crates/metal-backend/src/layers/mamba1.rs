//! Mamba 1: a state space whose channels each have states of their own.

use mlx_ffi::cpu::{ConvolutionActivation, Filter};
use mlx_ffi::{Array, Dtype, Result};

use super::recur::recur;
use super::{Fusion, Linear, Positions, RmsNorm, Workspace};
use crate::cache::{Recurrent, RecurrentSpec};
use crate::kernels::{Activation, ChannelScan, Columns, Kernels, channel_scan};

/// The sizes of a Mamba 1 layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mamba1Sizes {
    /// Values between its projections.
    pub channels: i32,
    /// Values of a channel's state.
    pub state_dim: i32,
    /// Values that the steps of all channels are made of.
    pub rank: i32,
    /// Positions that a position's convolution sees, itself included.
    pub taps: i32,
}

/// Norms of what steps are made of, and of what is written into states and reads them.
#[derive(Debug)]
pub(crate) struct SelectionNorms {
    pub step: RmsNorm,
    pub written: RmsNorm,
    pub reading: RmsNorm,
}

/// A Mamba 1 layer (arXiv 2312.00752): a projection, a short convolution, the selective scan and a
/// gate.
#[derive(Debug)]
pub(crate) struct Mamba1 {
    pub sizes: Mamba1Sizes,
    /// From `hidden_size` to what passes the convolution, and the gate.
    pub in_proj: Linear,
    /// `[taps, channels]`.
    pub convolution: Array,
    /// Of the convolution, `[channels]`.
    pub bias: Option<Array>,
    /// From the convolution's result to what steps are made of, what is written into states, and
    /// what reads them.
    pub x_proj: Linear,
    /// Norms of these three (Falcon Mamba).
    pub norms: Option<SelectionNorms>,
    /// From `rank` values to all channels.
    pub dt_proj: Linear,
    /// Of `dt_proj`, `[channels]` F32.
    pub dt_bias: Array,
    /// `[channels, state_dim]` F32.
    pub a_log: Array,
    /// Factors of the inputs that bypass the state, `[channels]` F32.
    pub d: Array,
    pub out_proj: Linear,
    /// Whose kernels compute it.
    pub kernels: Kernels,
}

impl Mamba1 {
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
        let [inputs, gate] = Columns::all(all).halves()?;
        let scanned = |[inputs]: [Columns; 1], lengths: &[i32], state: &mut Recurrent| {
            self.scan(&inputs, lengths, state)
        };
        let y = recur([inputs], self.kernels, positions, state, scanned)?;
        let y = self.kernels.gated(Activation::Silu, &gate, &Columns::all(y))?;
        self.out_proj.forward_fused(&y, fusion.only_epilogue())
    }

    /// The convolution of `inputs` and its scan: `[b, l, channels]`.
    fn scan(&self, inputs: &Columns, lengths: &[i32], state: &mut Recurrent) -> Result<Array> {
        let [before, sum] = state.take(inputs.of.dtype())?;
        let filter = Filter {
            weight: &self.convolution,
            bias: self.bias.as_ref(),
            activation: ConvolutionActivation::Silu,
        };
        let [x, before] = self.kernels.convolution(inputs, before, filter, lengths)?;
        let [dt, b, c] = self.selection(&x)?;
        let [y, sum] = channel_scan(&ChannelScan {
            x: &x,
            dt: &self.dt_proj.forward(&dt.array()?)?,
            b,
            c,
            a_log: &self.a_log,
            dt_bias: &self.dt_bias,
            d: &self.d,
            lengths,
            state: &sum,
        })?;
        state.set([before, sum]);
        Ok(y)
    }

    /// The sources of steps, the values written into states, and those that read them.
    fn selection(&self, x: &Array) -> Result<[Columns; 3]> {
        let Mamba1Sizes { state_dim: n, rank, .. } = self.sizes;
        let all = self.x_proj.forward(x)?;
        let part = |range| all.share().map(|of| Columns { of, range });
        let parts = [part(0..rank)?, part(rank..rank + n)?, part(rank + n..rank + 2 * n)?];
        let Some(SelectionNorms { step, written, reading }) = &self.norms else {
            return Ok(parts);
        };
        let normed = |norm: &RmsNorm, part: Columns| norm.forward(&part.array()?).map(Columns::all);
        let [dt, b, c] = parts;
        Ok([normed(step, dt)?, normed(written, b)?, normed(reading, c)?])
    }

    /// The recurrent state that it keeps.
    pub fn spec(&self) -> RecurrentSpec {
        let Mamba1Sizes { channels, state_dim, taps, .. } = self.sizes;
        RecurrentSpec { convolution: [taps - 1, channels], state: Some([1, channels, state_dim]) }
    }

    /// Values of one position between the projections: what `in_proj` gives, what passed the
    /// convolution, the selection, the result in three forms, and in F32 inputs, steps and what
    /// these bring.
    pub fn activations(&self) -> u64 {
        let Mamba1Sizes { channels, state_dim, rank, .. } = self.sizes;
        let (channels, selection) = (channels as u64, (rank + 2 * state_dim) as u64);
        2 * channels + 2 * channels + 2 * selection + 3 * channels + 8 * channels
    }

    /// Bytes that its products take, and those of a chunk's states in F32: what is left of each,
    /// what is added, and both of the round before.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        let Mamba1Sizes { channels, state_dim, .. } = self.sizes;
        let states =
            Workspace { row: 16 * channels as u64 * state_dim as u64, ..Workspace::default() };
        let inside = self.x_proj.workspace(dtype).then(self.dt_proj.workspace(dtype)).and(states);
        self.in_proj.workspace(dtype).then(inside).then(self.out_proj.workspace(dtype))
    }
}
