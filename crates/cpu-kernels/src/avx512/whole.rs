//! Attention in f32 of queries that see all keys, by the tiles of products: queries with keys, then
//! weights with values. Keys and values of a head are brought into panels once, and all of its
//! queries pass them.

use std::arch::x86_64::*;
use std::cell::RefCell;

use super::floats::{COLUMNS, LANES, ROWS, rows_at_a_time, tiles};
use super::lanes::Line;
use super::scales::floats;
use super::transpose::transpose;
use crate::attention::softmax::{Shape, weigh};
use crate::attention::task::Attention;
use crate::output::Output;
use crate::{Dtype, pool};

/// Queries that are worth panels.
const QUERIES: usize = 8;

/// Bytes of keys and values of a head that stay in a core's second-level cache.
const PANEL_SIZE: usize = 768 << 10;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Buffers of a thread, kept from head to head.
#[derive(Default)]
struct Scratch {
    /// Keys by values of a head, block of keys by block of keys.
    keys: Vec<[Line; 2]>,
    /// Values by keys, block of columns by block of columns.
    values: Vec<[Line; 2]>,
    queries: Vec<[u8; 4]>,
    /// Of each query, for all keys.
    scores: Vec<f32>,
    weights: Vec<[u8; 4]>,
    /// Of each query, all columns.
    totals: Vec<f32>,
}

/// Returns true when this file computes `task`. That depends on what a head is, not on how many
/// there are.
pub(crate) fn fits(task: &Attention<'_>) -> bool {
    let Attention { dtype, n_heads, n_kv_heads, l, n, d, dv, .. } = *task;
    let sees_all = !task.causal && task.window.is_none_or(|window| window >= n);
    let sees_all = sees_all && task.starts.is_empty();
    let plain = n_heads == n_kv_heads && task.sinks.is_empty() && dtype == Dtype::F32;
    sees_all && plain && l >= QUERIES && n > 0 && dv > 0 && n * (d + dv) * 4 <= PANEL_SIZE
}

/// Computes a checked task that [`fits`]; `out` is its result.
pub(crate) fn run(task: &Attention<'_>, out: &Output<'_>) {
    pool::run(task.b * task.n_heads, &|unit| {
        let at = (unit / task.n_heads, unit % task.n_heads);
        // SAFETY: this level was chosen because the processor has its features.
        SCRATCH.with_borrow_mut(|scratch| unsafe { head(task, at, scratch, out) });
    });
}

/// All queries of head `head` of row `row` of the batch.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn head(
    task: &Attention<'_>,
    (row, head): (usize, usize),
    scratch: &mut Scratch,
    out: &Output<'_>,
) {
    let Attention { l, n, d, dv, .. } = *task;
    let Scratch { keys, values, queries, scores, weights, totals } = scratch;
    set_keys(task, (row, head), keys);
    set_values(task, (row, head), values);
    let (n_wide, dv_wide) = (n.next_multiple_of(COLUMNS), dv.next_multiple_of(COLUMNS));
    queries.resize(ROWS * d, [0; 4]);
    let shape = Shape { scale: task.scale, softcap: task.softcap, sink: None };
    let mut first = 0;
    while first < l {
        let count = rows_at_a_time(l - first);
        for (i, to) in queries.chunks_exact_mut(d).take(count).enumerate() {
            let query = task.q.from(task.dtype, row, head, first + i).as_chunks().0;
            to.copy_from_slice(&query[..d]);
        }
        scores.clear();
        scores.resize(count * n_wide, 0.0);
        tiles(count, (queries, d, d), &keys[..n_wide / COLUMNS * d], (scores, n_wide));
        let mut sums = [0.0; ROWS];
        for (sum, scores) in sums.iter_mut().zip(scores.chunks_exact_mut(n_wide)) {
            *sum = weigh::<true>(&mut scores[..n], shape);
        }
        weights.clear();
        weights.extend(scores.iter().map(|weight| weight.to_ne_bytes()));
        totals.clear();
        totals.resize(count * dv_wide, 0.0);
        tiles(count, (weights, n_wide, n), &values[..dv_wide / COLUMNS * n], (totals, dv_wide));
        for (i, totals) in totals.chunks_exact_mut(dv_wide).enumerate() {
            let totals = &mut totals[..dv];
            totals.iter_mut().for_each(|value| *value /= sums[i]);
            // SAFETY: a unit of work has a head of its own, and is claimed by one thread.
            unsafe { out.store(row * l + first + i, head * dv, totals) };
        }
        first += count;
    }
}

/// Brings the keys of a head side by side; behind the last there are zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn set_keys(task: &Attention<'_>, (row, head): (usize, usize), to: &mut Vec<[Line; 2]>) {
    let Attention { n, d, dtype, .. } = *task;
    let blocks = n.div_ceil(COLUMNS);
    // Only growing, so that memory is not cleared for each head.
    to.resize(to.len().max(blocks * d), [Line::ZERO; 2]);
    for (block, to) in to.chunks_exact_mut(d).take(blocks).enumerate() {
        for (step, to) in (0..d).step_by(LANES).zip(to.chunks_mut(LANES)) {
            for half in 0..2 {
                let mut lines = [_mm512_setzero_si512(); LANES];
                for (lane, line) in lines.iter_mut().enumerate() {
                    let key = block * COLUMNS + half * LANES + lane;
                    if key < n {
                        let values = task.k.from(dtype, row, head, key);
                        let values = floats(dtype, values, step, to.len());
                        *line = _mm512_castps_si512(values);
                    }
                }
                for (to, line) in to.iter_mut().zip(transpose(lines)) {
                    to[half].set(line);
                }
            }
        }
    }
}

/// Brings the values of a head into blocks of columns; behind the last column there are zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn set_values(task: &Attention<'_>, (row, head): (usize, usize), to: &mut Vec<[Line; 2]>) {
    let Attention { n, dv, dtype, .. } = *task;
    let blocks = dv.div_ceil(COLUMNS);
    to.resize(to.len().max(blocks * n), [Line::ZERO; 2]);
    for key in 0..n {
        let values = task.v.from(dtype, row, head, key);
        for column in (0..blocks * COLUMNS).step_by(LANES) {
            let count = LANES.min(dv.saturating_sub(column));
            let line = &mut to[column / COLUMNS * n + key][column / LANES % 2];
            line.set_floats(floats(dtype, values, column.min(dv), count));
        }
    }
}
