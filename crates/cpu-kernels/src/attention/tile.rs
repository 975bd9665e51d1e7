//! How the work is cut: tiles of a few rows of q that share the keys of one head.

use std::cell::RefCell;
use std::ops::Range;

use super::softmax::Shape;
use super::{Attention, plain};
use crate::output::Output;
use crate::values::narrow;
use crate::{Dtype, Level, pool};

/// Rows of q that are computed together, at most: their sums fit in registers.
pub(crate) const ROWS: usize = 6;
/// Tiles that a thread takes at once.
const TILES: usize = 4;
/// Keys and columns that threads share a tile by, where there are too few tiles.
const KEYS: usize = 256;
const COLUMNS: usize = 64;

/// Rows of q that share keys: for each query, those heads that belong to one head of k.
pub(crate) struct Tile {
    /// Of the batch.
    pub(crate) row: usize,
    pub(crate) kv_head: usize,
    /// Heads of q for each of k.
    group: usize,
    /// Query and head of the first row: `query · group + head`.
    first: usize,
    pub(crate) count: usize,
}

/// A part of the sum over values.
pub(crate) struct Mix<'a> {
    pub(crate) keys: Range<usize>,
    /// For each row, one for each of `keys`.
    pub(crate) weights: &'a [&'a [f32]],
    pub(crate) columns: Range<usize>,
}

impl Tile {
    fn query_and_head(&self, i: usize) -> (usize, usize) {
        let at = self.first + i;
        (at / self.group, self.kv_head * self.group + at % self.group)
    }

    /// The bytes from row `i` of q on.
    pub(crate) fn query<'a>(&self, task: &Attention<'a>, i: usize) -> &'a [u8] {
        let (query, head) = self.query_and_head(i);
        task.q.from(task.dtype, self.row, head, query)
    }

    fn visible(&self, task: &Attention<'_>, i: usize) -> Range<usize> {
        task.visible(self.row, self.query_and_head(i).0)
    }

    /// From the first key that some row sees to the last.
    fn keys(&self, task: &Attention<'_>) -> Range<usize> {
        let seen =
            || (0..self.count).map(|i| self.visible(task, i)).filter(|seen| !seen.is_empty());
        let first = seen().map(|seen| seen.start).min();
        first.map_or(0..0, |first| first..seen().map(|seen| seen.end).max().unwrap_or(first))
    }
}

thread_local! {
    static SCRATCH: RefCell<(Vec<f32>, Vec<f32>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// Computes a checked task whose result is not empty.
pub(super) fn run(level: Level, task: &mut Attention<'_>) {
    let Attention { b, n_heads, n_kv_heads, l, n, d, dv, dtype, .. } = *task;
    let out = std::mem::take(&mut task.out);
    let out = Output::new(out, (b * l, n_heads * dv), dtype);
    let task = &*task;
    let group = n_heads / n_kv_heads;
    let in_head = (l * group).div_ceil(ROWS);
    // As equal as can be, so that no tile of one row reads all keys for itself.
    let height = (l * group).div_ceil(in_head);
    let tile = |index: usize| {
        let (head, index) = (index / in_head, index % in_head);
        // Later queries see more: the longest work comes first.
        let first = (in_head - 1 - index) * height;
        let count = height.min((l * group).saturating_sub(first));
        Tile { row: head / n_kv_heads, kv_head: head % n_kv_heads, group, first, count }
    };
    let tiles = b * n_kv_heads * in_head;
    let compute = |index: usize| {
        let tile = tile(index);
        let keys = tile.keys(task);
        SCRATCH.with_borrow_mut(|(scores, acc)| {
            scores.resize(scores.len().max(tile.count * keys.len()), 0.0);
            let scores = &mut scores[..tile.count * keys.len()];
            products(level, task, &tile, keys.clone(), scores);
            finish(level, task, &tile, (keys, 0..dv), scores, acc, &out);
        });
    };
    let threads = pool::threads();
    if tiles >= 2 * threads || threads == 1 || n * (d + dv) < (1 << 16) {
        let each = TILES.min(tiles.div_ceil(4 * threads));
        pool::run(tiles.div_ceil(each), &|unit| {
            (unit * each..tiles.min((unit + 1) * each)).for_each(compute);
        });
        return;
    }
    // First all scores, by ranges of keys; then the values, by ranges of columns.
    let mut all = vec![0; tiles * ROWS * n * 4];
    let shared = Output::new(&mut all, (tiles * ROWS, n), Dtype::F32);
    let ranges = n.div_ceil(KEYS);
    pool::run(tiles * ranges, &|unit| {
        let (index, range) = (unit / ranges, unit % ranges);
        let tile = tile(index);
        let keys = tile.keys(task);
        let keys = keys.start.max(range * KEYS)..keys.end.min((range + 1) * KEYS);
        if keys.is_empty() {
            return;
        }
        SCRATCH.with_borrow_mut(|(scores, _)| {
            scores.resize(scores.len().max(tile.count * keys.len()), 0.0);
            let scores = &mut scores[..tile.count * keys.len()];
            products(level, task, &tile, keys.clone(), scores);
            for (i, scores) in scores.chunks_exact(keys.len()).enumerate() {
                // SAFETY: each unit has tiles and keys of its own.
                unsafe { shared.store(index * ROWS + i, keys.start, scores) };
            }
        });
    });
    let parts = dv.div_ceil(COLUMNS);
    pool::run(tiles * parts, &|unit| {
        let (index, part) = (unit / parts, unit % parts);
        let tile = tile(index);
        let keys = tile.keys(task);
        SCRATCH.with_borrow_mut(|(scores, acc)| {
            scores.resize(scores.len().max(tile.count * keys.len()), 0.0);
            let scores = &mut scores[..tile.count * keys.len()];
            for (i, to) in scores.chunks_exact_mut(keys.len().max(1)).enumerate() {
                // SAFETY: all units that write have ended.
                unsafe { shared.load(index * ROWS + i, keys.start, to) };
            }
            let columns = part * COLUMNS..dv.min((part + 1) * COLUMNS);
            finish(level, task, &tile, (keys, columns), scores, acc, &out);
        });
    });
}

/// From the products of q and k over `keys` to `columns` of the result.
fn finish(
    level: Level,
    task: &Attention<'_>,
    tile: &Tile,
    (keys, columns): (Range<usize>, Range<usize>),
    scores: &mut [f32],
    acc: &mut Vec<f32>,
    out: &Output<'_>,
) {
    let width = columns.len();
    acc.clear();
    acc.resize(tile.count * width, 0.0);
    let visible = |i: usize| tile.visible(task, i);
    let mut sums = [0.0; ROWS];
    for (i, scores) in scores.chunks_exact_mut(keys.len().max(1)).enumerate() {
        let seen = visible(i);
        if seen.is_empty() {
            continue;
        }
        let sink = task.sinks.get(tile.query_and_head(i).1).copied();
        let shape = Shape { scale: task.scale, softcap: task.softcap, sink };
        let scores = &mut scores[seen.start - keys.start..seen.end - keys.start];
        sums[i] = weights(level, scores, shape);
    }
    let scores = &*scores;
    let weight = |i: usize, seen: &Range<usize>| {
        &scores[i * keys.len()..][seen.start - keys.start..seen.end - keys.start]
    };
    // What all rows see is added for all at once, what is before and after it row by row.
    let shared = (0..tile.count)
        .map(visible)
        .fold(0..usize::MAX, |all, seen| all.start.max(seen.start)..all.end.min(seen.end));
    let mut add = |rows: Range<usize>, seen: Range<usize>| {
        if seen.is_empty() {
            return;
        }
        let mut all: [&[f32]; ROWS] = [&[]; ROWS];
        for (weights, i) in all.iter_mut().zip(rows.clone()) {
            *weights = weight(i, &seen);
        }
        let weights = &all[..rows.len()];
        let mix = Mix { keys: seen, weights, columns: columns.clone() };
        add_values(level, task, tile, &mix, &mut acc[rows.start * width..rows.end * width]);
    };
    let first = |seen: &Range<usize>| if shared.is_empty() { seen.end } else { shared.start };
    for i in 0..tile.count {
        let seen = visible(i);
        add(i..i + 1, seen.start..first(&seen));
    }
    if !shared.is_empty() {
        add(0..tile.count, shared.clone());
        for i in 0..tile.count {
            add(i..i + 1, shared.end..visible(i).end);
        }
    }
    for (i, acc) in acc.chunks_exact_mut(width.max(1)).enumerate() {
        let (query, head) = tile.query_and_head(i);
        if !visible(i).is_empty() {
            acc.iter_mut().for_each(|value| *value /= sums[i]);
        }
        narrow(task.dtype, acc, |at, bytes| {
            let column = head * task.dv + columns.start + at;
            // SAFETY: each unit has rows and columns of its own.
            unsafe { out.store_bytes(tile.row * task.l + query, column, bytes) }
        });
    }
}

#[cfg(target_arch = "x86_64")]
fn products(level: Level, task: &Attention<'_>, tile: &Tile, keys: Range<usize>, out: &mut [f32]) {
    match level {
        Level::Portable => plain::scores::<false>(task, tile, keys, out),
        // SAFETY: `attention_at` lets only levels through that the processor has.
        Level::Avx2 => unsafe { products_avx2(task, tile, keys, out) },
        // SAFETY: as above.
        Level::Avx512 => unsafe { crate::avx512::attention::products(task, tile, keys, out) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn products_avx2(task: &Attention<'_>, tile: &Tile, keys: Range<usize>, out: &mut [f32]) {
    plain::scores::<true>(task, tile, keys, out);
}

#[cfg(target_arch = "x86_64")]
fn add_values(level: Level, task: &Attention<'_>, tile: &Tile, mix: &Mix<'_>, acc: &mut [f32]) {
    match level {
        Level::Portable => plain::add_values::<false>(task, tile, mix, acc),
        // SAFETY: `attention_at` lets only levels through that the processor has.
        Level::Avx2 => unsafe { add_values_avx2(task, tile, mix, acc) },
        // SAFETY: as above.
        Level::Avx512 => unsafe { crate::avx512::attention::add_values(task, tile, mix, acc) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_values_avx2(task: &Attention<'_>, tile: &Tile, mix: &Mix<'_>, acc: &mut [f32]) {
    plain::add_values::<true>(task, tile, mix, acc);
}

#[cfg(target_arch = "x86_64")]
fn weights(level: Level, scores: &mut [f32], shape: Shape) -> f32 {
    match level {
        Level::Portable => plain::weights::<false>(scores, shape),
        // SAFETY: `attention_at` lets only levels through that the processor has.
        Level::Avx2 => unsafe { weights_avx2(scores, shape) },
        // SAFETY: as above.
        Level::Avx512 => unsafe { weights_avx512(scores, shape) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn weights_avx2(scores: &mut [f32], shape: Shape) -> f32 {
    plain::weights::<true>(scores, shape)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
fn weights_avx512(scores: &mut [f32], shape: Shape) -> f32 {
    plain::weights::<true>(scores, shape)
}

#[cfg(not(target_arch = "x86_64"))]
const FMA: bool = cfg!(target_arch = "aarch64");

#[cfg(not(target_arch = "x86_64"))]
fn products(_: Level, task: &Attention<'_>, tile: &Tile, keys: Range<usize>, out: &mut [f32]) {
    plain::scores::<FMA>(task, tile, keys, out);
}

#[cfg(not(target_arch = "x86_64"))]
fn add_values(_: Level, task: &Attention<'_>, tile: &Tile, mix: &Mix<'_>, acc: &mut [f32]) {
    plain::add_values::<FMA>(task, tile, mix, acc);
}

#[cfg(not(target_arch = "x86_64"))]
fn weights(_: Level, scores: &mut [f32], shape: Shape) -> f32 {
    plain::weights::<FMA>(scores, shape)
}
