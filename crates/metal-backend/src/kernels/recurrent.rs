//! The operations of layers with a recurrent state: a short convolution and the gated delta rule.

use mlx_ffi::cpu::{self, ConvolutionActivation, DeltaRule, Filter};
use mlx_ffi::{Array, Dtype, Result, cuda, metal, ops};

use super::activation::{silu, softplus};
use super::choice::Kernels;
use super::columns::Columns;

/// Keeps the length of a query or a key above 0, as in transformers.
const EPS: f32 = 1e-6;

impl Kernels {
    /// A causal convolution of each channel by itself: columns `x` of `[b, l, …]`, after `state`,
    /// `[b, 1, taps - 1, channels]`, by `filter`. The result, and the state afterwards, for which
    /// nothing else may hold `state`. Of each row so many positions count as `lengths` says; empty:
    /// all.
    pub fn convolution(
        self,
        x: &Columns,
        state: Array,
        filter: Filter<'_>,
        lengths: &[i32],
    ) -> Result<[Array; 2]> {
        let Filter { weight, bias, activation } = filter;
        let mut others = [&state, weight].into_iter().chain(bias);
        let has_one_type = others.all(|array| array.dtype() == x.of.dtype());
        if self.is_ours_on_cpu() && has_one_type {
            return cpu::convolution(x.heads(), &state, filter, lengths);
        }
        let on_cuda = self == Kernels::Cuda;
        if on_cuda && cuda::takes_convolution(x.heads(), &state, filter, lengths) {
            return cuda::convolution(x.heads(), &state, filter, lengths);
        }
        if self == Kernels::Metal
            && let Some(found) = metal::convolution(x.heads(), &state, filter, lengths)?
        {
            return Ok(found);
        }
        let x = &x.array()?;
        let held = state.shape().to_vec();
        let state = ops::squeeze(&state, 1)?;
        let [_, l, _] = x.dims()?;
        let [taps, channels] = weight.dims()?;
        let all = ops::concatenate(&[&state, x], 1)?;
        let mut sum = bias.map(Array::share).transpose()?;
        for tap in 0..taps {
            let weight = ops::reshape(&ops::slice_axis(weight, 0, tap, tap + 1)?, &[channels])?;
            let part = ops::multiply(&ops::slice_axis(&all, 1, tap, tap + l)?, &weight)?;
            sum = Some(match sum {
                None => part,
                Some(sum) => ops::add(&sum, &part)?,
            });
        }
        let sum = sum.ok_or_else(|| mlx_ffi::Error::new("a convolution without taps"))?;
        let y = match activation {
            ConvolutionActivation::None => sum,
            ConvolutionActivation::Silu => silu(&sum)?,
        };
        Ok([y, ops::reshape(&last_positions(&all, taps - 1, lengths)?, &held)?])
    }

    /// The gated delta rule over queries, keys and values: `[b, l, v_heads · dv]`, and the state
    /// afterwards, for which nothing else may hold that of `rule`.
    pub fn delta(self, rule: &DeltaRule<'_>) -> Result<[Array; 2]> {
        let dtype = rule.mixed.dtype();
        if self.is_ours_on_cpu() && [rule.a, rule.b].iter().all(|of| of.array.dtype() == dtype) {
            return cpu::delta(rule);
        }
        if self == Kernels::Cuda && cuda::takes_delta(rule) {
            return cuda::delta(rule);
        }
        if self == Kernels::Metal
            && let Some(found) = metal::delta(rule)?
        {
            return Ok(found);
        }
        by_mlx(rule)
    }
}

/// The last `count` of each row's positions that count, `[b, count, channels]`, of `count` older
/// ones and those of the row.
fn last_positions(all: &Array, count: i32, lengths: &[i32]) -> Result<Array> {
    let [_, n, _] = all.dims()?;
    if lengths.is_empty() {
        return ops::slice_axis(all, 1, n - count, n);
    }
    let rows = (0..).zip(lengths).map(|(row, &length)| {
        let row = ops::slice_axis(all, 0, row, row + 1)?;
        ops::slice_axis(&row, 1, length, length + count)
    });
    let rows = rows.collect::<Result<Vec<_>>>()?;
    ops::concatenate(&rows.iter().collect::<Vec<_>>(), 0)
}

/// The gated delta rule by MLX's operations, position by position, in F32.
fn by_mlx(rule: &DeltaRule<'_>) -> Result<[Array; 2]> {
    let &DeltaRule { mixed, a, b, a_log, dt_bias, k_heads, lengths, state } = rule;
    let dtype = mixed.dtype();
    let [rows, l, _] = mixed.dims()?;
    let [_, v_heads, dv, dk] = state.dims()?;
    let a = ops::slice_axis(a.array, -1, a.at, a.at + dt_bias.size() as i32)?;
    let b = ops::slice_axis(b.array, -1, b.at, b.at + v_heads)?;
    let scalar = |value| Array::scalar(value, Dtype::F32);
    let mixed = ops::astype(mixed, Dtype::F32)?;
    let keys = k_heads * dk;
    // Each key head as often as value heads share it: [b, l, v_heads, dk].
    let unit = |first: i32, scale: f32| -> Result<Array> {
        let x = ops::slice_axis(&mixed, -1, first, first + keys)?;
        let x = ops::reshape(&x, &[rows, l, k_heads, 1, dk])?;
        let square = ops::sum(&ops::multiply(&x, &x)?, -1, true)?;
        let length = ops::power(&ops::add(&square, &scalar(EPS)?)?, &scalar(0.5)?)?;
        let x = ops::multiply(&ops::divide(&x, &length)?, &scalar(scale)?)?;
        let x = ops::broadcast_to(&x, &[rows, l, k_heads, v_heads / k_heads, dk])?;
        ops::reshape(&x, &[rows, l, v_heads, dk])
    };
    let (q, k) = (unit(0, (dk as f32).sqrt().recip())?, unit(keys, 1.0)?);
    let v = ops::slice_axis(&mixed, -1, 2 * keys, 2 * keys + v_heads * dv)?;
    let v = ops::reshape(&v, &[rows, l, v_heads, dv])?;
    let counts = counting(rows, l, lengths)?;
    let beta = ops::multiply(&ops::sigmoid(&ops::astype(&b, Dtype::F32)?)?, &counts)?;
    // One for each head, or one for each value of its key: [b, l, v_heads, 1 or dk].
    let decays = dt_bias.size() as i32 / v_heads;
    let step = softplus(&ops::add(&ops::astype(&a, Dtype::F32)?, dt_bias)?)?;
    let step = ops::reshape(&step, &[rows, l, v_heads, decays])?;
    let rate = ops::reshape(&ops::negative(&ops::exp(a_log)?)?, &[v_heads, 1])?;
    let counts = ops::expand_dims(&counts, -1)?;
    let decay = ops::exp(&ops::multiply(&ops::multiply(&rate, &step)?, &counts)?)?;
    let mut state = state.share()?;
    let mut out = Vec::with_capacity(l as usize);
    for t in 0..l {
        let at = |x: &Array, shape: &[i32]| ops::reshape(&ops::slice_axis(x, 1, t, t + 1)?, shape);
        let (q, k) = (at(&q, &[rows, v_heads, dk, 1])?, at(&k, &[rows, v_heads, dk, 1])?);
        let (v, one) = (at(&v, &[rows, v_heads, dv, 1])?, [rows, v_heads, 1, 1]);
        state = ops::multiply(&state, &at(&decay, &[rows, v_heads, 1, decays])?)?;
        let wrong = ops::subtract(&v, &ops::matmul(&state, &k)?)?;
        let wrong = ops::multiply(&wrong, &at(&beta, &one)?)?;
        let k = ops::reshape(&k, &[rows, v_heads, 1, dk])?;
        state = ops::add(&state, &ops::multiply(&wrong, &k)?)?;
        out.push(ops::reshape(&ops::matmul(&state, &q)?, &[rows, 1, v_heads * dv])?);
    }
    let out = ops::concatenate(&out.iter().collect::<Vec<_>>(), 1)?;
    Ok([ops::astype(&out, dtype)?, state])
}

/// `[b or 1, l, 1]`: 1 where a position counts, 0 where it does not.
pub(crate) fn counting(rows: i32, l: i32, lengths: &[i32]) -> Result<Array> {
    if lengths.is_empty() {
        return Array::from_f32(&[1.0], &[1, 1, 1]);
    }
    let counts = lengths.iter().flat_map(|length| (0..l).map(move |t| f32::from(t < *length)));
    Array::from_f32(&counts.collect::<Vec<f32>>(), &[rows, l, 1])
}
