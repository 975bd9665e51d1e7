//! Attention for one new position of each row.

use std::cell::RefCell;

use crate::{Attention, Dtype, Error, Heads, Norm, Rotation, Rows, attention, rows};

/// One new position of each row of a batch, over buffers with room for it.
#[derive(Debug)]
pub struct Step<'a> {
    /// Of all but the turns.
    pub dtype: Dtype,
    /// Rows of the batch.
    pub b: usize,
    /// Heads of queries, a multiple of `n_kv_heads`.
    pub n_heads: usize,
    /// Heads of keys and values.
    pub n_kv_heads: usize,
    /// Values of a head.
    pub d: usize,
    /// `[b, 1, n_heads, d]`: queries before their norm and rotation.
    pub q: Heads<'a>,
    /// `[b, 1, n_kv_heads, d]`, keys likewise.
    pub k: Heads<'a>,
    /// `[b, 1, n_kv_heads, d]`.
    pub v: Heads<'a>,
    /// The norms of each head of queries, and of keys.
    pub norms: Option<[Norm<'a>; 2]>,
    /// The rotation of both.
    pub rotation: Option<Rotation<'a>>,
    /// The index of the new position in the buffers.
    pub at: usize,
    /// `[b, n_kv_heads, more than at, d]`: the keys before it.
    pub keys: &'a mut [u8],
    /// Elements from one batch row, head and position to the next.
    pub key_strides: [usize; 3],
    /// The values likewise.
    pub values: &'a mut [u8],
    /// As of the keys.
    pub value_strides: [usize; 3],
    /// The first position of each row; empty: 0 for all.
    pub starts: &'a [i32],
    /// How many positions a position sees, itself included; `None`: all.
    pub window: Option<usize>,
    /// Factor of the scores.
    pub scale: f32,
    /// Scores are then squashed to ± this by tanh.
    pub softcap: Option<f32>,
    /// One more score for each head of q, which takes part in the softmax and adds nothing; or
    /// none.
    pub sinks: &'a [f32],
    /// `[b, 1, n_heads, d]`.
    pub out: &'a mut [u8],
}

thread_local! {
    /// Queries, and keys, of all rows.
    static SCRATCH: RefCell<[Vec<u8>; 2]> = const { RefCell::new([const { Vec::new() }; 2]) };
}

/// Norms and rotates, writes key and value at `task.at`, and attends to all that each row sees up
/// to there: the same bits as [`rows()`] and [`attention`] give.
///
/// # Errors
/// Buffers whose sizes do not fit. Keys and values before `at` stay as they are.
pub fn step(task: Step<'_>) -> Result<(), Error> {
    let Step { dtype, b, n_heads, n_kv_heads, d, at, .. } = task;
    let n = at.checked_add(1).ok_or_else(|| Error("no position after the last one".to_owned()))?;
    held(task.keys, task.key_strides).check("keys", [b, n_kv_heads, n, d], dtype)?;
    held(task.values, task.value_strides).check("values", [b, n_kv_heads, n, d], dtype)?;
    task.v.check("v", [b, 1, n_kv_heads, d], dtype)?;
    let [q_norm, k_norm] = task.norms.map_or([None, None], |norms| norms.map(Some));
    let rotation = task.rotation;
    SCRATCH.with_borrow_mut(|[q, k]| {
        for (x, count, norm, out) in
            [(task.q, n_heads, q_norm, &mut *q), (task.k, n_kv_heads, k_norm, &mut *k)]
        {
            out.resize(b * count * d * dtype.size(), 0);
            rows(Rows { dtype, sizes: [b, 1, count], d, x, norm, rotation, out })?;
        }
        let k = Heads { data: &k[..], strides: [n_kv_heads * d, 0, d] };
        for (new, buffer, [row_step, head_step, step]) in [
            (k, &mut *task.keys, task.key_strides),
            (task.v, &mut *task.values, task.value_strides),
        ] {
            for (row, head) in (0..b).flat_map(|row| (0..n_kv_heads).map(move |head| (row, head))) {
                let bytes = &new.from(dtype, row, 0, head)[..d * dtype.size()];
                let first = (row * row_step + head * head_step + at * step) * dtype.size();
                buffer[first..first + bytes.len()].copy_from_slice(bytes);
            }
        }
        attention(Attention {
            dtype,
            b,
            n_heads,
            n_kv_heads,
            l: 1,
            n,
            d,
            dv: d,
            q: Heads { data: &q[..], strides: [n_heads * d, d, d] },
            k: held(task.keys, task.key_strides),
            v: held(task.values, task.value_strides),
            scale: task.scale,
            softcap: task.softcap,
            sinks: task.sinks,
            starts: task.starts,
            causal: false,
            window: task.window,
            out: task.out,
        })
    })
}

fn held(data: &[u8], strides: [usize; 3]) -> Heads<'_> {
    Heads { data, strides }
}
