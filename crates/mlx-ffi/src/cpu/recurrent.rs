//! Layers with a recurrent state, by our own kernels for CPUs.

use cpu_kernels::{Convolution, ConvolutionActivation, Delta, Heads};

use super::operation::{Inputs, Outcome, View, are_row_major, floats, in_place};
use super::{failed, kernel_dtype};
use crate::step::Heads as Columns;
use crate::{Array, Dtype, Error, Result};

/// Parameters of a short convolution.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    /// `[taps, channels]`.
    pub weight: &'a Array,
    /// `[channels]`; `None`: 0.
    pub bias: Option<&'a Array>,
    /// Behind the sums.
    pub activation: ConvolutionActivation,
}

impl Filter<'_> {
    /// Returns true when it has the type and the channels of columns `x` and of what was before
    /// them, `state`.
    pub(crate) fn fits(&self, x: Columns<'_>, state: &Array, lengths: &[i32]) -> bool {
        let Filter { weight, bias, .. } = *self;
        let (Ok([b, l, _]), Ok([taps, channels])) = (x.array.dims(), weight.dims()) else {
            return false;
        };
        let mut others = [state, weight].into_iter().chain(bias);
        others.all(|array| array.dtype() == x.array.dtype())
            && fits_columns(x, [b, l, channels])
            && taps > 0
            && state.shape() == [b, 1, taps - 1, channels]
            && bias.is_none_or(|bias| bias.shape() == [channels])
            && (lengths.is_empty() || lengths.len() == b as usize)
    }
}

/// A short causal convolution of each channel by itself: columns `x` of an array of `[b, l, …]`
/// after `state`, `[b, 1, taps - 1, channels]`, by `filter`, to `[b, l, channels]`, and the state
/// afterwards. All have one type; state and weight are row-major. Of each row so many positions
/// count as `lengths` says; empty: all. The state shares the buffer of `state`, which nothing may
/// read any more.
///
/// # Errors
/// Shapes or types that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn convolution(
    x: Columns<'_>,
    state: &Array,
    filter: Filter<'_>,
    lengths: &[i32],
) -> Result<[Array; 2]> {
    let Filter { weight, bias, activation } = filter;
    let fits = filter.fits(x, state, lengths);
    let Columns { array: x, at } = x;
    let dtype = kernel_dtype(x.dtype())?;
    let [b, l, _] = x.dims()?;
    let [taps, channels] = weight.dims()?;
    if !fits {
        return Err(Error::new(format!(
            "columns from {at} on of {x:?}, {} lengths, those before them {state:?}, weights {weight:?} and biases {bias:?} do not fit",
            lengths.len()
        )));
    }
    let shape = [b, l, channels];
    let outcome = Outcome::row_major(x.dtype(), &shape);
    let [b, l, channels, taps] = [b, l, channels, taps].map(|size| size as usize);
    let lengths = lengths.to_vec();
    let inputs: Vec<&Array> = [state, x, weight].into_iter().chain(bias).collect();
    in_place(&inputs, Inputs::Strided, &[0], outcome, move |inputs, outputs| {
        let ([x, weight, bias @ ..], [out, state]) = (inputs, outputs) else {
            return Err(Error::new("a convolution without operands"));
        };
        let found: ([usize; 3], [usize; 1]) = (state.strides(), weight.strides());
        let is_state = are_row_major(found.0, &[b, 1, taps - 1, channels]);
        if !is_state || !are_row_major(found.1, &[taps, channels]) {
            return Err(Error::new(format!(
                "the state or the weights of a convolution are not row-major: {found:?}"
            )));
        }
        let task = Convolution {
            dtype,
            b,
            l,
            channels,
            taps,
            x: positions(x, at, dtype),
            state: state.bytes,
            lengths: &lengths,
            weight: weight.bytes,
            bias: bias.first().map(|bias| bias.bytes),
            activation,
            out: out.bytes,
        };
        cpu_kernels::convolution(task).map_err(failed)
    })
}

/// The operands of [`delta`].
#[derive(Clone, Copy, Debug)]
pub struct DeltaRule<'a> {
    /// `[b, l, 2 · k_heads · dk + v_heads · dv]`: queries, keys and values of all heads.
    pub mixed: &'a Array,
    /// Columns of an array of `[b, l, …]`: what decay is made of, one for each head, or one for
    /// each value of a head's key, as many as of `dt_bias`.
    pub a: Columns<'a>,
    /// `v_heads` such columns: what beta is made of.
    pub b: Columns<'a>,
    /// `[v_heads]` F32.
    pub a_log: &'a Array,
    /// `[v_heads]` or `[v_heads · dk]` F32.
    pub dt_bias: &'a Array,
    /// Heads of queries and keys.
    pub k_heads: i32,
    /// Positions of each row that count; empty: all.
    pub lengths: &'a [i32],
    /// `[b, v_heads, dv, dk]` F32, row-major.
    pub state: &'a Array,
}

impl DeltaRule<'_> {
    /// Returns true when its shapes fit each other, and its parameters and its state are F32.
    pub(crate) fn fits(&self) -> bool {
        let DeltaRule { mixed, a, b, a_log, dt_bias, k_heads, lengths, state } = *self;
        let (Ok([rows, l, columns]), Ok([_, v_heads, dv, dk])) = (mixed.dims(), state.dims())
        else {
            return false;
        };
        let keys = i64::from(k_heads) * 2 * i64::from(dk);
        let all_keys = v_heads.checked_mul(dk).unwrap_or(v_heads);
        i64::from(columns) == keys + i64::from(v_heads) * i64::from(dv)
            && state.shape() == [rows, v_heads, dv, dk]
            && [v_heads, all_keys].iter().any(|count| dt_bias.shape() == [*count])
            && fits_columns(a, [rows, l, dt_bias.size() as i32])
            && fits_columns(b, [rows, l, v_heads])
            && a_log.shape() == [v_heads]
            && (lengths.is_empty() || lengths.len() == rows as usize)
            && k_heads > 0
            && [a_log, dt_bias, state].iter().all(|array| array.dtype() == Dtype::F32)
    }
}

/// The gated delta rule: `[b, l, v_heads · dv]`, and the state afterwards. This shares the buffer
/// of `rule.state`, which nothing may read any more.
///
/// # Errors
/// Shapes or types that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn delta(rule: &DeltaRule<'_>) -> Result<[Array; 2]> {
    let DeltaRule { mixed, a, b, a_log, dt_bias, k_heads, lengths, state } = *rule;
    let dtype = kernel_dtype(mixed.dtype())?;
    let [rows, l, _] = mixed.dims()?;
    let [_, v_heads, dv, dk] = state.dims()?;
    let types_fit = [a, b].iter().all(|of| of.array.dtype() == mixed.dtype());
    if !(rule.fits() && types_fit) {
        return Err(Error::new(format!(
            "{mixed:?} of {k_heads} key heads, {a:?}, {b:?}, {a_log:?}, {dt_bias:?} and the state {state:?} of {} lengths do not fit",
            lengths.len()
        )));
    }
    let shape = [rows, l, v_heads * dv];
    let outcome = Outcome::row_major(mixed.dtype(), &shape);
    let sizes = [rows as usize, l as usize];
    let decays = dt_bias.size() / v_heads.max(1) as usize;
    let [k_heads, v_heads, dk, dv] = [k_heads, v_heads, dk, dv].map(|size| size as usize);
    let lengths = lengths.to_vec();
    let inputs = [state, mixed, a.array, b.array, a_log, dt_bias];
    let [a_at, b_at] = [a.at, b.at];
    in_place(&inputs, Inputs::Strided, &[0], outcome, move |inputs, outputs| {
        let ([mixed, a, b, a_log, dt_bias], [out, state]) = (inputs, outputs) else {
            return Err(Error::new("a delta rule without operands"));
        };
        let [a_log, dt_bias]: [Vec<f32>; 2] =
            [a_log, dt_bias].map(|view| floats(view.bytes).collect());
        let found: [usize; 3] = state.strides();
        if !are_row_major(found, &[sizes[0], v_heads, dv, dk]) {
            return Err(Error::new(format!(
                "the state of a delta rule is not row-major: {found:?}"
            )));
        }
        let task = Delta {
            dtype,
            sizes,
            k_heads,
            v_heads,
            dk,
            dv,
            mixed: positions(mixed, 0, dtype),
            decays,
            a: positions(a, a_at, dtype),
            b: positions(b, b_at, dtype),
            a_log: &a_log,
            dt_bias: &dt_bias,
            lengths: &lengths,
            state: state.bytes,
            out: out.bytes,
        };
        cpu_kernels::delta(task).map_err(failed)
    })
}

/// `[b, l, …]` from a column on, as kernels take it.
pub(super) fn positions<'a>(view: &View<'a>, at: i32, dtype: cpu_kernels::Dtype) -> Heads<'a> {
    let [row, position] = view.strides();
    Heads { data: view.from(at as usize, dtype), strides: [row, 0, position] }
}

/// Returns true when `count` columns from `at` on are some of `columns`.
fn are_inside(at: i32, count: i32, columns: i32) -> bool {
    at >= 0 && count >= 0 && at.checked_add(count).is_some_and(|end| end <= columns)
}

/// Returns true when the array of `of` is `[b, l, …]` and has `count` columns from there on.
pub(crate) fn fits_columns(of: Columns<'_>, [b, l, count]: [i32; 3]) -> bool {
    matches!(*of.array.shape(), [rows, positions, columns]
        if (rows, positions) == (b, l) && are_inside(of.at, count, columns))
}
