//! Attention by our own kernels for CPUs.

use cpu_kernels::Heads;

use super::operation::{Inputs, Outcome, View, floats, operation};
use super::{failed, kernel_dtype};
use crate::{Array, Dtype, Error, Result, ops};

/// The keys that each query may see. Keys lie at 0..n of the buffers, queries are the last `l` of
/// the positions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Visible<'a> {
    /// For each row of the batch, the first key that exists (what is before it is padding); empty:
    /// 0 for all.
    pub starts: &'a [i32],
    /// Query i sees keys up to n - l + i; otherwise all n.
    pub causal: bool,
    /// A query sees only the last `window` keys up to its own position, itself included. Where it
    /// is not `causal`, it sees as many from its own position on. None: all.
    pub window: Option<i32>,
}

/// `softmax(q kᵀ · scale) v` over the visible keys, for `q` of `[b, n_heads, l, d]`, `k` of `[b,
/// n_kv_heads, n, d]` and `v` of `[b, n_kv_heads, n, dv]`: `[b, l, n_heads · dv]`, a query's heads
/// beside each other, in their common type. Scores are squashed to ± `softcap`; `sinks`,
/// `[n_heads]`, is one more score a head that takes part in the softmax and adds nothing.
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
    let [_, n_kv_heads, n, _] = v.dims()?;
    let starts = visible.starts;
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
    let run = Run { first: 0, count: b, length: l };
    attend([q, k, v], (scale, softcap, sinks), visible, vec![run])
}

/// Neighbouring texts of one length in one row of positions.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The first position.
    pub first: i32,
    /// How many texts.
    pub count: i32,
    /// Positions of each.
    pub length: i32,
}

/// [`attention`] within each text of `runs`, which make up all positions of a row, in their order:
/// queries, keys and values are `[1, n, l, d]`. `visible` is what a query sees of its own text.
///
/// # Errors
/// As [`attention`], and runs that are not all positions.
pub fn attention_within(
    [q, k, v]: [&Array; 3],
    scale: f32,
    softcap: Option<f32>,
    sinks: Option<&Array>,
    visible: Visible<'_>,
    runs: Vec<Run>,
) -> Result<Array> {
    let [b, n_heads, l, d] = q.dims()?;
    let [_, n_kv_heads, n, _] = v.dims()?;
    let heads_fit = n_kv_heads > 0 && n_heads % n_kv_heads == 0 && d > 0;
    let keys_fit = k.shape() == [b, n_kv_heads, n, d] && v.shape()[0] == b;
    let types_fit = k.dtype() == q.dtype() && v.dtype() == q.dtype();
    let sinks_fit = sinks.is_none_or(|sinks| sinks.shape() == [n_heads]);
    let end = runs.iter().try_fold(0, |end, run| {
        let follows = run.first == end && run.count > 0 && run.length > 0;
        follows.then(|| run.count.checked_mul(run.length)?.checked_add(end)).flatten()
    });
    let runs_fit = b == 1 && n == l && end == Some(l) && visible.starts.is_empty();
    if !(heads_fit && keys_fit && types_fit && sinks_fit && runs_fit) {
        return Err(Error::new(format!(
            "queries {q:?}, keys {k:?}, values {v:?}, sinks {sinks:?} and texts {runs:?} do not fit"
        )));
    }
    attend([q, k, v], (scale, softcap, sinks), visible, runs)
}

/// The operation, whose operands fit: keys of the same positions as queries, unless there is one
/// run alone.
fn attend(
    [q, k, v]: [&Array; 3],
    (scale, softcap, sinks): (f32, Option<f32>, Option<&Array>),
    visible: Visible<'_>,
    runs: Vec<Run>,
) -> Result<Array> {
    let [b, n_heads, l, d] = q.dims()?;
    let [_, n_kv_heads, n, dv] = v.dims()?;
    let Visible { starts, causal, window } = visible;
    let dtype = kernel_dtype(q.dtype())?;
    let window = window.map(|window| window.max(0) as usize);
    let starts = starts.to_vec();
    let sinks = sinks.map(|sinks| ops::astype(sinks, Dtype::F32)).transpose()?;
    let inputs: Vec<&Array> = [q, k, v].into_iter().chain(&sinks).collect();
    let sizes = [n_heads, n_kv_heads, d, dv].map(|size| size as usize);
    // The keys of a text are its own; a single run may have others before them.
    let behind = n - l;
    let is_whole = runs.len() == 1 && runs[0].count == b;
    let columns = n_heads.checked_mul(dv).ok_or_else(|| {
        Error::new(format!("{n_heads} heads of {dv} values are more than an array has columns"))
    })?;
    let shape = [b, l, columns];
    let outcome = Outcome::row_major(q.dtype(), &shape);
    operation(&inputs, Inputs::Strided, outcome, move |inputs, out| {
        let [n_heads, n_kv_heads, d, dv] = sizes;
        let mut sinks = Vec::new();
        if let Some(view) = inputs.get(3) {
            sinks.extend(floats(view.bytes));
        }
        let mut rest = out;
        for &Run { first, count, length } in &runs {
            let size = count as usize * length as usize * n_heads * dv * dtype.size();
            let part = rest.split_off_mut(..size).ok_or_else(|| Error::new("a text too many"))?;
            let [first, b, l] = [first, count, length].map(|size| size as usize);
            let n = (length + behind) as usize;
            let [q, k, v] = [(0, l), (1, n), (2, n)].map(|(i, each)| {
                let heads = heads(&inputs[i]);
                if is_whole { heads } else { texts(heads, first, each, dtype) }
            });
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
                out: part,
            })
            .map_err(failed)?;
        }
        Ok(())
    })
}

/// The heads of texts of `each` positions from position `first` on, text by text.
fn texts<'a>(
    Heads { data, strides: [_, head, position] }: Heads<'a>,
    first: usize,
    each: usize,
    dtype: cpu_kernels::Dtype,
) -> Heads<'a> {
    let data = data.get(first * position * dtype.size()..).unwrap_or_default();
    Heads { data, strides: [each * position, head, position] }
}

fn heads<'a>(view: &View<'a>) -> Heads<'a> {
    Heads { data: view.bytes, strides: view.strides() }
}
