//! What attention does with one new position of each row.

use super::constants::THREADS;
use super::kernel::{Constant, Launch, Source};
use super::launch::launch;
use crate::step::Step;
use crate::{Array, Dtype, Error, Result};

/// Blocks that keep a large device busy.
const BLOCKS: i32 = 264;
/// Positions of a buffer that are worth a block of their own.
const WORTH_A_BLOCK: i32 = 64;
/// The most heads of all rows.
const MOST_COUNTED: i32 = 1 << 16;
/// The most blocks that share the keys of a row.
const MOST_SPLITS: i32 = 32;

const STEP: Source = Source {
    name: c"step_attention",
    inputs: &[
        c"q",
        c"k",
        c"v",
        c"keys",
        c"values",
        c"at",
        c"rows",
        c"counters",
        c"radians",
        c"q_norm",
        c"k_norm",
        c"sinks",
    ],
    outputs: &[c"out", c"sums", c"parts"],
    body: include_str!("step_attention.cu"),
    header: include_str!("chained.cu"),
    takes_strides: true,
    written: &[3, 4],
};

/// Whether [`step_attention`] has a kernel for heads of so many values, of this type.
pub fn attends(head_dim: i32, dtype: Dtype) -> bool {
    matches!(head_dim, 32 | 64 | 128 | 256) && dtype.is_half()
}

/// Norms and rotates, writes key and value at `at` and attends to all from each row's first position
/// to the new one: `[b, 1, n_heads · d]`, then keys and values with the new position. These share the
/// buffers of `step.keys` and `step.values`, of which nothing may read that position before.
///
/// # Errors
/// Shapes or types that do not fit; a device without CUDA.
pub fn step_attention(step: &Step<'_>) -> Result<[Array; 3]> {
    let Step { q, k, v, n_heads, keys, values, on_device, rows, counters, .. } = *step;
    let Step { turn, norms, .. } = *step;
    let [b, n_kv_heads, capacity, d] = step.sizes()?;
    let dtype = keys.dtype();
    let counted = i64::from(b) * i64::from(n_heads);
    let counters_fit = counters.count() as i64 >= counted && counted <= i64::from(MOST_COUNTED);
    // Sixteen bytes are read at once.
    let are_aligned = [q, k, v].iter().all(|heads| heads.at % 8 == 0);
    let sinks_fit =
        step.sinks.is_none_or(|sinks| sinks.shape() == [n_heads] && sinks.dtype() == dtype);
    if !(attends(d, dtype) && counters_fit && are_aligned && sinks_fit) {
        return Err(step.misfit());
    }
    let dims = turn.map_or(0, |turn| 2 * turn.radians.size() as i32);
    let shared_by = n_heads / n_kv_heads;
    // As many heads as leave registers for a second block.
    let most = if d < 128 { 4 } else { 2 };
    let group = (1..=most).rev().find(|group| shared_by % group == 0).unwrap_or(1);
    let blocks = b * n_heads / group;
    // By what the buffers hold, so that the steps that they have room for are launched alike.
    let splits = (BLOCKS / blocks).min(capacity / WORTH_A_BLOCK).clamp(1, MOST_SPLITS);
    let constants = [
        (c"T", Constant::Type(dtype)),
        (c"D", Constant::Int(d)),
        (c"GROUP", Constant::Int(group)),
        (c"SHARED_BY", Constant::Int(shared_by)),
        (c"NORM", Constant::Bool(norms.is_some())),
        (c"EPS", Constant::Float(norms.map_or(0.0, |norms| norms.eps))),
        (c"DIMS", Constant::Int(dims)),
        (c"SPEED", Constant::Float(turn.map_or(0.0, |turn| turn.scale))),
        (c"MAGNITUDE", Constant::Float(turn.map_or(0.0, |turn| turn.magnitude))),
        (c"WINDOW", Constant::Int(step.window.unwrap_or(0))),
        (c"Q_AT", Constant::Int(q.at)),
        (c"K_AT", Constant::Int(k.at)),
        (c"V_AT", Constant::Int(v.at)),
        (c"SCALE", Constant::Float(step.scale)),
        (c"SOFTCAP", Constant::Float(step.softcap.unwrap_or(0.0))),
        (c"HAS_SINKS", Constant::Bool(step.sinks.is_some())),
    ];
    let whole = [b, 1, n_heads * d];
    let (sums, parts) = match splits > 1 {
        true => ([b, n_heads, splits, d], [b, n_heads, splits, 2]),
        false => ([1; 4], [1; 4]),
    };
    let outputs: [(&[i32], Dtype); 3] =
        [(&whole, dtype), (&sums, Dtype::F32), (&parts, Dtype::F32)];
    let grid = [THREADS * splits, n_heads / group, b];
    let all = Launch { grid, block: [THREADS, 1, 1], constants: &constants, outputs: &outputs };
    // What is not there is not looked at.
    let radians = turn.map_or(rows, |turn| turn.radians);
    let (q_norm, k_norm) = norms.map_or((keys, keys), |norms| (norms.q, norms.k));
    let inputs = [
        q.array,
        k.array,
        v.array,
        keys,
        values,
        on_device,
        rows,
        counters.array(),
        radians,
        q_norm,
        k_norm,
        step.sinks.unwrap_or(keys),
    ];
    let found = launch(&STEP, &inputs, &all)?;
    let [out, _, _, keys, values] = <[Array; 5]>::try_from(found)
        .map_err(|found| Error::new(format!("{} results of a step of attention", found.len())))?;
    Ok([out, keys, values])
}
