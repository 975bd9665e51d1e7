//! A short causal convolution of each channel by itself (depthwise), with an activation behind it.

use crate::functions::{add_product, exp};
use crate::level::{Kernel, run_at};
use crate::output::Output;
use crate::problem::buffer;
use crate::values::widen;
use crate::{Dtype, Error, Heads, Level, pool};

/// Channels that are computed at a time.
const SOME: usize = 64;

/// The activation of the sums of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvolutionActivation {
    /// They stay as they are.
    None,
    /// `x · sigmoid(x)`.
    Silu,
}

/// `out[t] = act(bias + Σ weight[j] · x[t - (taps - 1) + j])` for each channel; what stands before
/// the first position is the state.
#[derive(Debug)]
pub struct Convolution<'a> {
    /// Of x, the state, the weights and the result.
    pub dtype: Dtype,
    /// Rows of the batch.
    pub b: usize,
    /// Positions of each row.
    pub l: usize,
    /// Values of a position.
    pub channels: usize,
    /// Positions that a position sees, itself included.
    pub taps: usize,
    /// `[b, 1, l, channels]`.
    pub x: Heads<'a>,
    /// `[b, taps - 1, channels]`: the positions before the first one, and afterwards those before
    /// the next.
    pub state: &'a mut [u8],
    /// Positions of each row that count, from its first one; empty: all.
    pub lengths: &'a [i32],
    /// `[taps, channels]`.
    pub weight: &'a [u8],
    /// `[channels]`; `None`: 0.
    pub bias: Option<&'a [u8]>,
    /// Behind the sums.
    pub activation: ConvolutionActivation,
    /// `[b, l, channels]`.
    pub out: &'a mut [u8],
}

/// Computes `task.out`, in f32 and rounded once.
///
/// # Errors
/// Buffers whose sizes do not fit; nothing is written then.
pub fn convolution(task: Convolution<'_>) -> Result<(), Error> {
    convolution_at(Level::current(), task)
}

/// Computes `task.out` with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// Those of [`convolution`], and a level that this processor does not have.
pub fn convolution_at(level: Level, task: Convolution<'_>) -> Result<(), Error> {
    level.check()?;
    let Convolution { dtype, b, l, channels, taps, .. } = task;
    if taps == 0 {
        return Err(Error("a convolution without taps".to_owned()));
    }
    task.x.check("x", [b, 1, l, channels], dtype)?;
    buffer("the state", task.state, &[b, taps - 1, channels, dtype.size()])?;
    if !task.lengths.is_empty() && task.lengths.len() != b {
        return Err(Error(format!("{} lengths of {b} rows", task.lengths.len())));
    }
    buffer("the weight", task.weight, &[taps, channels, dtype.size()])?;
    if let Some(bias) = task.bias {
        buffer("the bias", bias, &[channels, dtype.size()])?;
    }
    buffer("out", task.out, &[b, l, channels, dtype.size()])?;
    let Convolution { out, state, .. } = task;
    let out = Output::new(out, (b * l, channels), dtype);
    let task = &Convolution { out: &mut [], state: &mut [], ..task };
    let before: &[u8] = state;
    let work = |row: usize| {
        // SAFETY: the level was checked.
        unsafe { run_at(level, ConvolutionKernel { task, before, row, out: &out }) }
    };
    // A step of one row is not worth a second thread.
    if b * l == 1 {
        work(0);
    } else {
        pool::run(b * l, &work);
    }
    let size = channels * dtype.size();
    for (row, state) in state.chunks_exact_mut(((taps - 1) * size).max(1)).enumerate() {
        let length = task.lengths.get(row).map_or(l, |length| l.min((*length).max(0) as usize));
        for tap in 0..taps - 1 {
            match (length + tap).checked_sub(taps - 1) {
                Some(own) => {
                    let from = &task.x.from(dtype, row, 0, own)[..size];
                    state[tap * size..(tap + 1) * size].copy_from_slice(from);
                }
                None => {
                    state.copy_within((length + tap) * size..(length + tap + 1) * size, tap * size)
                }
            }
        }
    }
    Ok(())
}

/// One position of one row.
struct ConvolutionKernel<'a> {
    task: &'a Convolution<'a>,
    /// The state.
    before: &'a [u8],
    row: usize,
    out: &'a Output<'a>,
}

impl Kernel for ConvolutionKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let ConvolutionKernel { task, before, row, out } = self;
        let &Convolution { dtype, l, channels, taps, .. } = task;
        let (b, t) = (row / l, row % l);
        let size = dtype.size();
        let (mut x, mut weight) = ([0.0; SOME], [0.0; SOME]);
        let mut first = 0;
        while first < channels {
            let count = SOME.min(channels - first);
            let bytes = first * size..(first + count) * size;
            let mut sums = [0.0; SOME];
            if let Some(bias) = task.bias {
                widen(dtype, &bias[bytes.clone()], &mut sums);
            }
            for tap in 0..taps {
                // The position it looks at, counted from the first one of the state.
                let position = t + tap;
                let from = match position.checked_sub(taps - 1) {
                    Some(own) => task.x.from(dtype, b, 0, own),
                    None => &before[(b * (taps - 1) + position) * channels * size..],
                };
                widen(dtype, &from[bytes.clone()], &mut x);
                let at = tap * channels * size;
                widen(dtype, &task.weight[at + bytes.start..at + bytes.end], &mut weight);
                for ((sum, x), weight) in sums.iter_mut().zip(&x).zip(&weight) {
                    *sum = add_product::<FMA>(*x, *weight, *sum);
                }
            }
            if task.activation == ConvolutionActivation::Silu {
                sums.iter_mut().for_each(|sum| *sum /= 1.0 + exp::<FMA>(-*sum));
            }
            // SAFETY: each row of the result is one unit of work.
            unsafe { out.store(row, first, &sums[..count]) };
            first += count;
        }
    }
}
