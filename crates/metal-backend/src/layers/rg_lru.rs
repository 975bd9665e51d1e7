//! A real-gated linear recurrent unit: each channel is a number that decays.

use mlx_ffi::cpu::{ConvolutionActivation, Filter};
use mlx_ffi::{Array, Dtype, Result, ops};

use super::recur::recur;
use super::{Fusion, HeadLinear, Linear, Positions, Workspace};
use crate::cache::{Recurrent, RecurrentSpec};
use crate::kernels::{Activation, Columns, Kernels, counting, linear_recurrence};

/// A gate of the recurrence, whose heads each have a matrix.
#[derive(Debug)]
pub(crate) struct HeadGate {
    /// `[heads, width / heads, width / heads]`.
    pub weight: HeadLinear,
    /// `[width]` F32.
    pub bias: Array,
}

/// The recurrent block of Griffin (arXiv 2402.19427): a projection, a short convolution and the
/// RG-LRU, beside a projection that gates them.
#[derive(Debug)]
pub(crate) struct RgLru {
    pub heads: i32,
    /// Positions that a position's convolution sees, itself included, and channels.
    pub sizes: [i32; 2],
    /// To what gates the result.
    pub gate_proj: Linear,
    pub activation: Activation,
    /// To what passes the convolution.
    pub in_proj: Linear,
    /// `[taps, width]`.
    pub convolution: Array,
    /// Of the convolution, `[width]`.
    pub bias: Array,
    pub input_gate: HeadGate,
    pub decay_gate: HeadGate,
    /// The logarithm of what is left of a channel where its gate is open, `[width]` F32.
    pub log_decay: Array,
    pub out_proj: Linear,
    /// Whose kernels compute it.
    pub kernels: Kernels,
}

impl HeadGate {
    /// `x`, `[b, l, width]`, to the same in F32.
    fn forward(&self, x: &Array, heads: i32) -> Result<Array> {
        let [b, l, width] = x.dims()?;
        let y = self.weight.forward(&ops::reshape(x, &[b, l, heads, width / heads])?)?;
        let y = ops::astype(&ops::reshape(&y, &[b, l, width])?, Dtype::F32)?;
        ops::sigmoid(&ops::add(&y, &self.bias)?)
    }
}

impl RgLru {
    /// `x` is `[b, l, hidden_size]`; so is the result, with its `fusion`. `state` goes `l`
    /// positions on.
    pub fn forward(
        &self,
        x: &Array,
        fusion: Fusion<'_>,
        positions: &mut Positions,
        state: &mut Recurrent,
    ) -> Result<Array> {
        let x = fusion.only_prologue().prologue(x)?;
        let gate = Columns::all(self.gate_proj.forward(&x)?);
        let inputs = Columns::all(self.in_proj.forward(&x)?);
        let scanned = |[inputs]: [Columns; 1], lengths: &[i32], state: &mut Recurrent| {
            self.scan(&inputs, lengths, state)
        };
        let y = recur([inputs], self.kernels, positions, state, scanned)?;
        let y = self.kernels.gated(self.activation, &gate, &Columns::all(y))?;
        self.out_proj.forward_fused(&y, fusion.only_epilogue())
    }

    /// The convolution of `inputs` and its recurrence: `[b, l, width]`.
    fn scan(&self, inputs: &Columns, lengths: &[i32], state: &mut Recurrent) -> Result<Array> {
        let dtype = inputs.of.dtype();
        let [before, held] = state.take(dtype)?;
        let filter = Filter {
            weight: &self.convolution,
            bias: Some(&self.bias),
            activation: ConvolutionActivation::None,
        };
        let [x, before] = self.kernels.convolution(inputs, before, filter, lengths)?;
        let [b, l, width] = x.dims()?;
        let counts = counting(b, l, lengths)?;
        let log_left = ops::multiply(&self.decay_gate.forward(&x, self.heads)?, &self.log_decay)?;
        let left = ops::exp(&ops::multiply(&log_left, &counts)?)?;
        let one = Array::scalar(1.0, Dtype::F32)?;
        let two = Array::scalar(2.0, Dtype::F32)?;
        let share = ops::exp(&ops::multiply(&log_left, &two)?)?;
        let norm = ops::sqrt(&ops::subtract(&one, &share)?)?;
        let row = |index| {
            let row = ops::slice_axis(&held, 2, index, index + 1)?;
            ops::reshape(&row, &[b, 1, width])
        };
        let norm = behind_first(&norm, &row(1)?)?;
        let gated = ops::multiply(
            &ops::astype(&x, Dtype::F32)?,
            &self.input_gate.forward(&x, self.heads)?,
        )?;
        let added = ops::multiply(&ops::multiply(&gated, &norm)?, &counts)?;
        let states = linear_recurrence(&left, &added, &row(0)?)?;
        let last = ops::reshape(&ops::slice_axis(&states, 1, l - 1, l)?, &[b, 1, 1, width])?;
        let begun = ops::broadcast_to(&one, &[b, 1, 1, width])?;
        state.set([before, ops::concatenate(&[&last, &begun], 2)?]);
        ops::astype(&states, dtype)
    }

    /// The recurrent state that it keeps: what each channel is, and 1 once a position has passed.
    pub fn spec(&self) -> RecurrentSpec {
        let [taps, width] = self.sizes;
        RecurrentSpec { convolution: [taps - 1, width], state: Some([1, 2, width]) }
    }

    /// Values of one position between the projections: the gate, what passes the convolution before
    /// and behind it, the result in three forms, and in F32 both gates, what is left and added,
    /// each before and after a round of the recurrence.
    pub fn activations(&self) -> u64 {
        let width = self.sizes[1] as u64;
        (1 + 2 + 3 + 2 * 9) * width
    }

    /// Bytes that its products take.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        let into = self.gate_proj.workspace(dtype).and(self.in_proj.workspace(dtype));
        into.then(self.out_proj.workspace(dtype))
    }
}

/// The factors of inputs, `[b, l, width]`: that of the very first position is 1, where `begun`,
/// `[b, 1, width]`, is 0.
fn behind_first(norm: &Array, begun: &Array) -> Result<Array> {
    let [_, l, _] = norm.dims()?;
    let zero = Array::scalar(0.0, Dtype::F32)?;
    let one = Array::scalar(1.0, Dtype::F32)?;
    let first = ops::slice_axis(norm, 1, 0, 1)?;
    let first = ops::where_(&ops::greater(begun, &zero)?, &first, &one)?;
    ops::concatenate(&[&first, &ops::slice_axis(norm, 1, 1, l)?], 1)
}
