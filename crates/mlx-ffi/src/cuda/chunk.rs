//! Attention for several new positions of each row.

use super::attention::{are_aligned, made_with, making, scoring, sinks_fit};
use super::constants::{ATTENDING, QUERIES, THREADS};
use super::kernel::{Constant, Launch, Source};
use super::launch::{first, launch};
use crate::step::Step;
use crate::{Array, Dtype, Error, Result};

const HEADS: Source = Source {
    name: c"heads",
    inputs: &[
        c"q", c"k", c"v", c"keys", c"values", c"at", c"rows", c"radians", c"q_norm", c"k_norm",
    ],
    outputs: &[c"queries"],
    body: include_str!("heads.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("head.cu")),
    takes_strides: true,
    written: &[3, 4],
};
const ATTENTION: Source = Source {
    name: c"chunk_attention",
    inputs: &[c"queries", c"keys", c"values", c"at", c"rows", c"sinks"],
    outputs: &[c"out"],
    body: include_str!("chunk_attention.cu"),
    header: concat!(
        include_str!("chained.cu"),
        include_str!("common.cu"),
        include_str!("tensor.cu"),
        include_str!("warpgroup.cu"),
        include_str!("softmax.cu"),
        include_str!("chunk_tiles.cu")
    ),
    takes_strides: true,
    written: &[],
};

/// Returns true when [`chunk_attention`] has a kernel for heads of so many values, of this type.
pub fn attends_chunks(head_dim: i32, dtype: Dtype) -> bool {
    matches!(head_dim, 32 | 64 | 128 | 256) && dtype.is_half()
}

/// Norms and rotates, writes `l` keys and values from `at` on, and lets each position attend to all
/// from its row's first one to itself: `[b, l, n_heads · d]`, then keys and values with the new
/// positions. These share the buffers of `step.keys` and `step.values`, of which nothing may read
/// those positions before.
///
/// # Errors
/// Shapes or types that do not fit; a device without CUDA.
pub fn chunk_attention(step: &Step<'_>) -> Result<[Array; 3]> {
    let Step { q, k, v, n_heads, keys, values, on_device, rows, .. } = *step;
    let &[_, l, _] = q.array.shape() else { return Err(step.misfit()) };
    let [b, n_kv_heads, _, d] = step.sizes(l)?;
    let dtype = keys.dtype();
    let is_known = attends_chunks(d, dtype) && !step.norms_values();
    if !(is_known && are_aligned(step) && sinks_fit(step)) {
        return Err(step.misfit());
    }
    let shared_by = (c"SHARED_BY", Constant::Int(n_heads / n_kv_heads));
    let [radians, q_norm, k_norm] = made_with(step);
    let inputs =
        [q.array, k.array, v.array, keys, values, on_device, rows, radians, q_norm, k_norm];
    let constants = [&making(step, d)[..], &[shared_by]].concat();
    let outputs: [(&[i32], Dtype); 1] = [(&[b, l, n_heads, d], dtype)];
    let (grid, block) = ([THREADS * l, b, 1], [THREADS, 1, 1]);
    let made = Launch { grid, block, constants: &constants, outputs: &outputs };
    let found = launch(&HEADS, &inputs, &made)?;
    let [queries, keys, values] = <[Array; 3]>::try_from(found)
        .map_err(|found| Error::new(format!("{} results of the heads", found.len())))?;

    let of_heads = [(c"T", Constant::Type(dtype)), (c"D", Constant::Int(d)), shared_by];
    let constants = [&of_heads[..], &scoring(step)].concat();
    let outputs: [(&[i32], Dtype); 1] = [(&[b, l, n_heads * d], dtype)];
    let blocks = (l + QUERIES - 1) / QUERIES;
    let (grid, block) = ([ATTENDING * blocks, n_heads, b], [ATTENDING, 1, 1]);
    let attended = Launch { grid, block, constants: &constants, outputs: &outputs };
    let sinks = step.sinks.unwrap_or(&queries);
    let out =
        first(launch(&ATTENTION, &[&queries, &keys, &values, on_device, rows, sinks], &attended)?)?;
    Ok([out, keys, values])
}
