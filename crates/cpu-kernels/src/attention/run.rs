//! How the work is cut, and who computes which part of it.

use std::cell::RefCell;
use std::ops::Range;

use super::plain;
use super::softmax::{Shape, weigh};
use super::task::{Attention, Mix, ROWS, Tile};
#[cfg(target_arch = "x86_64")]
use super::vectors;
#[cfg(target_arch = "x86_64")]
use crate::avx512::whole;
#[cfg(target_arch = "x86_64")]
use crate::floats::{Avx2, Avx512f};
use crate::level::{Kernel, run_at};
use crate::output::Output;
use crate::values::narrow;
use crate::{Dtype, Level, pool};

/// Tiles that a thread takes at once.
const TILES: usize = 4;
/// Keys and columns that threads share a tile by, where there are too few tiles.
const KEYS: usize = 256;
const COLUMNS: usize = 64;

thread_local! {
    static SCRATCH: RefCell<(Vec<f32>, Vec<f32>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// Computes a checked task whose result is not empty, at a level that the processor has.
pub(super) fn run(level: Level, task: &mut Attention<'_>) {
    let Attention { b, n_heads, n_kv_heads, l, n, d, dv, dtype, .. } = *task;
    let out = std::mem::take(&mut task.out);
    let out = Output::new(out, (b * l, n_heads * dv), dtype);
    let task = &*task;
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx512f && whole::fits(task) {
        return whole::run(task, &out);
    }
    let group = n_heads / n_kv_heads;
    // Sums of six fit in AVX-512's registers. Others bring keys and values into floats for as many
    // as there are.
    let rows = if level >= Level::Avx512 { ROWS / 2 } else { ROWS };
    let in_head = (l * group).div_ceil(rows);
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
            let products = Products { task, tile: &tile, keys: keys.clone(), out: scores };
            // SAFETY: the level was checked.
            unsafe { run_at(level, products) };
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
            let products = Products { task, tile: &tile, keys: keys.clone(), out: scores };
            // SAFETY: the level was checked.
            unsafe { run_at(level, products) };
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
        // SAFETY: the level was checked.
        sums[i] = unsafe { run_at(level, Weights { scores, shape }) };
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
        let acc = &mut acc[rows.start * width..rows.end * width];
        // SAFETY: the level was checked.
        unsafe { run_at(level, Values { task, tile, mix: &mix, acc }) };
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

/// `[tile.count, keys]` products of q and k.
struct Products<'a> {
    task: &'a Attention<'a>,
    tile: &'a Tile,
    keys: Range<usize>,
    out: &'a mut [f32],
}

impl Kernel for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        #[cfg(target_arch = "x86_64")]
        if FMA {
            return vectors::scores::<Avx2>(self.task, self.tile, self.keys, self.out);
        }
        plain::scores::<FMA>(self.task, self.tile, self.keys, self.out);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn run_avx512f(self) {
        vectors::scores::<Avx512f>(self.task, self.tile, self.keys, self.out);
    }

    #[cfg(target_arch = "x86_64")]
    const HAS_AVX512: bool = true;

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn run_avx512(self) {
        // SAFETY: the caller's promise.
        unsafe { crate::avx512::attention::products(self.task, self.tile, self.keys, self.out) }
    }
}

/// Adds the values of a mix to `acc`, `[rows, columns]`.
struct Values<'a> {
    task: &'a Attention<'a>,
    tile: &'a Tile,
    mix: &'a Mix<'a>,
    acc: &'a mut [f32],
}

impl Kernel for Values<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        #[cfg(target_arch = "x86_64")]
        if FMA {
            return vectors::add_values::<Avx2>(self.task, self.tile, self.mix, self.acc);
        }
        plain::add_values::<FMA>(self.task, self.tile, self.mix, self.acc);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn run_avx512f(self) {
        vectors::add_values::<Avx512f>(self.task, self.tile, self.mix, self.acc);
    }

    #[cfg(target_arch = "x86_64")]
    const HAS_AVX512: bool = true;

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn run_avx512(self) {
        // SAFETY: the caller's promise.
        unsafe { crate::avx512::attention::add_values(self.task, self.tile, self.mix, self.acc) }
    }
}

/// Replaces scores by weights, and gives their sum.
struct Weights<'a> {
    scores: &'a mut [f32],
    shape: Shape,
}

impl Kernel for Weights<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> f32 {
        weigh::<FMA>(self.scores, self.shape)
    }
}
