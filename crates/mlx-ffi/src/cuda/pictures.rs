//! Operations between the products of layers over pictures: modulated norms, and the heads of two
//! streams.

use super::constants::{LANES, THREADS};
use super::kernel::{Constant, Launch, Source};
use super::launch::launch;
use crate::{Array, Dtype, Error, Result};

const MODULATED: Source = Source {
    name: c"modulated",
    inputs: &[c"x", c"y", c"gate", c"out_norm", c"norm", c"scale", c"shift"],
    outputs: &[c"h", c"normed"],
    body: include_str!("modulated.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("common.cu")),
    takes_strides: false,
    written: &[],
};
const HEADS: Source = Source {
    name: c"picture_heads",
    inputs: &[
        c"q",
        c"k",
        c"v",
        c"next_q",
        c"next_k",
        c"next_v",
        c"q_norm",
        c"k_norm",
        c"next_q_norm",
        c"next_k_norm",
        c"cosines",
        c"sines",
    ],
    outputs: &[c"queries", c"keys", c"values"],
    body: include_str!("picture_heads.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("common.cu")),
    takes_strides: false,
    written: &[],
};

/// The most columns of a row, which the threads of a block hold.
const MOST_COLUMNS: i32 = 1 << 14;
/// The most rows, a block each.
const MOST_ROWS: i32 = 1 << 22;
/// The most values of a head.
const MOST_HEAD: i32 = 512;

/// A branch that is added to a stream.
#[derive(Clone, Copy, Debug)]
pub struct Branch<'a> {
    /// As the stream.
    pub y: &'a Array,
    /// The weights of the RMS norm that it has first, `[columns]`.
    pub norm: Option<&'a Array>,
    /// Factors, `[1, columns]` for all rows or as the stream.
    pub gate: Option<&'a Array>,
    /// The gate is the tangent of that.
    pub tanh: bool,
}

/// A norm that is scaled and shifted.
#[derive(Clone, Copy, Debug)]
pub struct ScaledNorm<'a> {
    /// The weights of an RMS norm, `[columns]`; `None`: a layer norm.
    pub weight: Option<&'a Array>,
    /// Factors of the norm, `[1, columns]` or `[columns]` for all rows, or as the stream.
    pub scale: Option<&'a Array>,
    /// One is added to the scale.
    pub one_more: bool,
    /// Added to the norm, as `scale`.
    pub shift: Option<&'a Array>,
}

/// Returns true when [`modulated`] supports these operands.
pub fn takes_modulated(
    x: &Array,
    branch: Option<&Branch<'_>>,
    norm: Option<&ScaledNorm<'_>>,
) -> bool {
    let columns = x.shape().last().copied().unwrap_or(0);
    let sizes_fit = columns % 8 == 0
        && (1..=MOST_COLUMNS).contains(&columns)
        && x.size() > 0
        && x.size() / columns as usize <= MOST_ROWS as usize;
    let is_alike = |of: &Array| of.dtype() == x.dtype() && of.shape() == x.shape();
    let is_weight = |of: &Array| of.dtype() == x.dtype() && of.shape() == [columns];
    let branch_fits = branch.is_none_or(|of| is_alike(of.y) && of.norm.is_none_or(is_weight));
    let norm_fits = norm.is_none_or(|of| of.weight.is_none_or(is_weight));
    x.dtype().is_half()
        && sizes_fit
        && branch_fits
        && norm_fits
        && rows_of_modulation(x, branch, norm).is_some()
}

/// Returns true for a modulation of each row of `x`, false for one of all rows. `None`: it is mixed
/// or does not fit.
fn rows_of_modulation(
    x: &Array,
    branch: Option<&Branch<'_>>,
    norm: Option<&ScaledNorm<'_>>,
) -> Option<bool> {
    let columns = x.shape().last().copied().unwrap_or(0);
    let gate = branch.and_then(|of| of.gate);
    let all = [gate, norm.and_then(|of| of.scale), norm.and_then(|of| of.shift)];
    let mut all = all.into_iter().flatten();
    if !all.clone().all(|of| of.dtype() == x.dtype()) {
        return None;
    }
    let is_one = |of: &Array| of.size() == columns as usize && of.shape().last() == Some(&columns);
    if all.clone().all(is_one) {
        return Some(false);
    }
    all.all(|of| of.shape() == x.shape()).then_some(true)
}

/// `x + gate · y`, where `y` may be normed first, and the norm of that, scaled and shifted, over
/// the last dimension; all norms have `eps`. Without a branch the first result is `x`, without a
/// norm the second is nothing.
///
/// # Errors
/// Operands that [`takes_modulated`] rejects; neither a branch nor a norm; a device without CUDA.
pub fn modulated(
    x: &Array,
    branch: Option<&Branch<'_>>,
    norm: Option<&ScaledNorm<'_>>,
    eps: f32,
) -> Result<(Array, Option<Array>)> {
    let is_nothing = branch.is_none() && norm.is_none();
    if is_nothing || !takes_modulated(x, branch, norm) {
        return Err(Error::new(format!("no modulation of {x:?} by {branch:?} and {norm:?}")));
    }
    let columns = x.shape().last().copied().unwrap_or(0);
    let packs = columns / 8;
    let each = (packs + THREADS - 1) / THREADS;
    let together = (packs + each - 1) / each;
    let threads = (together + LANES - 1) / LANES * LANES;
    let (gate, out_norm) = (branch.and_then(|of| of.gate), branch.and_then(|of| of.norm));
    let [weight, scale, shift] = norm.map_or([None; 3], |of| [of.weight, of.scale, of.shift]);
    let of_rows = rows_of_modulation(x, branch, norm).unwrap_or(false);
    let dtype = x.dtype();
    let constants = [
        (c"T", Constant::Type(dtype)),
        (c"COLUMNS", Constant::Int(columns)),
        (c"EACH", Constant::Int(each)),
        (c"EPS", Constant::Float(eps)),
        (c"OF_ROWS", Constant::Bool(of_rows)),
        (c"HAS_Y", Constant::Bool(branch.is_some())),
        (c"HAS_GATE", Constant::Bool(gate.is_some())),
        (c"TANH", Constant::Bool(branch.is_some_and(|of| of.tanh))),
        (c"HAS_OUT_NORM", Constant::Bool(out_norm.is_some())),
        (c"HAS_NORM", Constant::Bool(norm.is_some())),
        (c"HAS_WEIGHT", Constant::Bool(weight.is_some())),
        (c"HAS_SCALE", Constant::Bool(scale.is_some())),
        (c"HAS_SHIFT", Constant::Bool(shift.is_some())),
        (c"ONE_MORE", Constant::Bool(norm.is_some_and(|of| of.one_more))),
    ];
    let result = |is_there: bool| if is_there { x.shape() } else { &[1] };
    let outputs = [(result(branch.is_some()), dtype), (result(norm.is_some()), dtype)];
    let (grid, block) = ([threads * x.rows(), 1, 1], [threads, 1, 1]);
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    let y = branch.map_or(x, |of| of.y);
    let [gate, out_norm, weight, scale, shift] =
        [gate, out_norm, weight, scale, shift].map(|of| of.unwrap_or(x));
    let found = launch(&MODULATED, &[x, y, gate, out_norm, weight, scale, shift], &all)?;
    let [h, normed] = <[Array; 2]>::try_from(found)
        .map_err(|found| Error::new(format!("{} results of a modulation", found.len())))?;
    let h = if branch.is_some() { h } else { x.share()? };
    Ok((h, norm.map(|_| normed)))
}

/// Queries, keys and values of a stream, `[1, l, heads · head_dim]` each, and the weights of the
/// norms of queries and keys, `[head_dim]`.
#[derive(Clone, Copy, Debug)]
pub struct StreamHeads<'a> {
    /// Queries, keys and values.
    pub qkv: [&'a Array; 3],
    /// The weights of the RMS norms of queries and keys.
    pub norms: Option<[&'a Array; 2]>,
}

/// Returns true when [`picture_heads`] supports these operands.
pub fn takes_picture_heads(streams: &[StreamHeads<'_>], turns: [&Array; 2], head_dim: i32) -> bool {
    let ([first] | [first, _]) = streams else { return false };
    let [q, k, _] = first.qkv;
    let columns = |of: &Array| of.shape().last().copied().unwrap_or(0);
    let mut positions = 0;
    for stream in streams {
        let [of_q, of_k, of_v] = stream.qkv;
        let &[1, l, _] = of_q.shape() else { return false };
        positions += l;
        let are_alike = of_q.shape() == [1, l, columns(q)]
            && [of_k, of_v].iter().all(|of| of.shape() == [1, l, columns(k)])
            && stream.qkv.iter().all(|of| of.dtype() == q.dtype());
        let is_norm = |of: &&Array| of.shape() == [head_dim] && of.dtype() == q.dtype();
        let norms_fit = stream.norms.is_some() == first.norms.is_some()
            && stream.norms.is_none_or(|of| of.iter().all(is_norm));
        if !are_alike || !norms_fit || l == 0 {
            return false;
        }
    }
    let is_turn = |of: &Array| {
        of.dtype() == Dtype::F32
            && of.size() as i64 == i64::from(positions) * i64::from(head_dim / 2)
    };
    q.dtype().is_half()
        && head_dim % 8 == 0
        && (8..=MOST_HEAD).contains(&head_dim)
        && [q, k].iter().all(|of| columns(of) > 0 && columns(of) % head_dim == 0)
        && positions <= MOST_ROWS
        && turns.iter().all(|of| is_turn(of))
}

/// The heads of one stream, or of two, the second behind the first: queries and keys normed with
/// `eps`, their pairs `2 i` and `2 i + 1` rotated by `turns`, and values. `[1, l, heads, head_dim]`
/// each, of all positions. `turns` are cosines and sines of the positions, `head_dim / 2` F32 for
/// each.
///
/// # Errors
/// Operands that [`takes_picture_heads`] rejects; a device without CUDA.
pub fn picture_heads(
    streams: &[StreamHeads<'_>],
    turns: [&Array; 2],
    head_dim: i32,
    eps: f32,
) -> Result<[Array; 3]> {
    let (Some(first), Some(last), true) =
        (streams.first(), streams.last(), takes_picture_heads(streams, turns, head_dim))
    else {
        return Err(Error::new(format!("no heads of {head_dim} values of {streams:?}")));
    };
    let ([q, k, v], [next_q, next_k, next_v]) = (first.qkv, last.qkv);
    let ([q_norm, k_norm], [next_q_norm, next_k_norm]) =
        (first.norms.unwrap_or([q, k]), last.norms.unwrap_or([q, k]));
    let constants = [
        (c"T", Constant::Type(q.dtype())),
        (c"D", Constant::Int(head_dim)),
        (c"NORM", Constant::Bool(first.norms.is_some())),
        (c"EPS", Constant::Float(eps)),
    ];
    let positions: i32 = streams.iter().filter_map(|stream| stream.qkv[0].shape().get(1)).sum();
    let shape = |of: &Array| {
        let columns = of.shape().last().copied().unwrap_or(0);
        [1, positions, columns / head_dim, head_dim]
    };
    let shapes = [shape(q), shape(k), shape(v)];
    let outputs = shapes.each_ref().map(|shape| (&shape[..], q.dtype()));
    let (grid, block) = ([THREADS * positions, 1, 1], [THREADS, 1, 1]);
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    let [cosines, sines] = turns;
    let inputs =
        [q, k, v, next_q, next_k, next_v, q_norm, k_norm, next_q_norm, next_k_norm, cosines, sines];
    <[Array; 3]>::try_from(launch(&HEADS, &inputs, &all)?)
        .map_err(|found| Error::new(format!("{} results of heads", found.len())))
}
