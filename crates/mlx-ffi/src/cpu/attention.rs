//! Attention by our own kernels for CPUs.

use cpu_kernels::Heads;

use super::operation::{Inputs, Outcome, View, floats, operation};
use super::{failed, kernel_dtype};
use crate::{Array, Dtype, Error, Result, ops};

/// What each query may see; keys lie at 0..n of the buffers, queries are the last `l` of the
/// positions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Visible<'a> {
    /// For each row of the batch, the first key that exists (what is before it is padding); empty:
    /// 0 for all.
    pub starts: &'a [i32],
    /// Query i sees keys up to n - l + i; otherwise all n.
    pub causal: bool,
    /// A query sees only the last `window` keys up to its own place, itself included. Where it is not
    /// `causal`, it sees as many from its own place on. None: all.
    pub window: Option<i32>,
}

/// `softmax(q kᵀ · scale) v` over the visible keys, for `q` of `[b, n_heads, l, d]`, `k` of
/// `[b, n_kv_heads, n, d]` and `v` of `[b, n_kv_heads, n, dv]`: `[b, l, n_heads · dv]`, a query's heads
/// beside each other, in their common type. Scores are squashed to ± `softcap`; `sinks`, `[n_heads]`, is one more score a head
/// that takes part in the softmax and adds nothing.
///
/// A query that sees nothing gives zeros. Its result depends on the query and on the keys and
/// values that it sees alone, to the bit. Nothing is copied where the last dimension of an operand
/// is contiguous.
///
/// # Errors
/// Shapes or types that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn attention(
    q: &Array,
    k: &Array,
    v: &Array,
    scale: f32,
    softcap: Option<f32>,
    sinks: Option<&Array>,
    visible: Visible<'_>,
) -> Result<Array> {
    let [b, n_heads, l, d] = q.dims()?;
    let [_, n_kv_heads, n, dv] = v.dims()?;
    let Visible { starts, causal, window } = visible;
    let heads_fit = n_kv_heads > 0 && n_heads % n_kv_heads == 0 && d > 0;
    let keys_fit = k.shape() == [b, n_kv_heads, n, d] && v.shape()[0] == b;
    let types_fit = k.dtype() == q.dtype() && v.dtype() == q.dtype();
    let sinks_fit = sinks.is_none_or(|sinks| sinks.shape() == [n_heads]);
    let starts_fit = starts.is_empty() || starts.len() == b as usize;
    if !(heads_fit && keys_fit && types_fit && sinks_fit && starts_fit) {
        return Err(Error::new(format!(
            "queries {q:?}, keys {k:?}, values {v:?}, sinks {sinks:?} and {} starts do not fit",
            starts.len()
        )));
    }
    let dtype = kernel_dtype(q.dtype())?;
    let window = window.map(|window| window.max(0) as usize);
    let starts = starts.to_vec();
    let sinks = sinks.map(|sinks| ops::astype(sinks, Dtype::F32)).transpose()?;
    let inputs: Vec<&Array> = [q, k, v].into_iter().chain(&sinks).collect();
    let sizes = [b, n_heads, n_kv_heads, l, n, d, dv].map(|size| size as usize);
    let columns = n_heads.checked_mul(dv).ok_or_else(|| {
        Error::new(format!("{n_heads} heads of {dv} values are more than an array has columns"))
    })?;
    let shape = [b, l, columns];
    let outcome = Outcome::row_major(q.dtype(), &shape);
    operation(&inputs, Inputs::Strided, outcome, move |inputs, out| {
        let [b, n_heads, n_kv_heads, l, n, d, dv] = sizes;
        let mut sinks = Vec::new();
        if let Some(view) = inputs.get(3) {
            sinks.extend(floats(view.bytes));
        }
        let [q, k, v] = [0, 1, 2].map(|i| heads(&inputs[i]));
        cpu_kernels::attention(cpu_kernels::Attention {
            dtype,
            b,
            n_heads,
            n_kv_heads,
            l,
            n,
            d,
            dv,
            q,
            k,
            v,
            scale,
            softcap,
            sinks: &sinks,
            starts: &starts,
            causal,
            window,
            out,
        })
        .map_err(failed)
    })
}

fn heads<'a>(view: &View<'a>) -> Heads<'a> {
    Heads { data: view.bytes, strides: view.strides() }
}
