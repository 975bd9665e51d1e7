//! Work on rows that need nothing of each other, at any level and on several threads.

use std::ops::Range;

use crate::{Level, pool};

/// Elements that are worth another thread.
const ELEMENTS: usize = 16 << 10;

/// What is to be done with each row.
pub(crate) trait Rows: Sync {
    /// Computes rows of the result. `FMA` is whether the processor multiplies and adds in one
    /// instruction. To be inlined, so that it is compiled for each level.
    fn compute<const FMA: bool>(&self, rows: Range<usize>);
}

/// Computes `count` rows of `size` elements. Each is computed once, by one thread.
pub(crate) fn run(level: Level, count: usize, size: usize, rows: &impl Rows) {
    let each = (ELEMENTS / size.max(1)).max(count.div_ceil(8 * pool::threads())).max(1);
    pool::run(count.div_ceil(each), &|unit| {
        dispatch(level, rows, unit * each..count.min((unit + 1) * each));
    });
}

#[cfg(target_arch = "x86_64")]
fn dispatch(level: Level, rows: &impl Rows, range: Range<usize>) {
    match level {
        Level::Portable => rows.compute::<false>(range),
        // SAFETY: callers let only levels through that the processor has.
        Level::Avx2 => unsafe { avx2(rows, range) },
        // SAFETY: as above.
        Level::Avx512 => unsafe { avx512(rows, range) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn avx2(rows: &impl Rows, range: Range<usize>) {
    rows.compute::<true>(range);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn avx512(rows: &impl Rows, range: Range<usize>) {
    rows.compute::<true>(range);
}

#[cfg(not(target_arch = "x86_64"))]
fn dispatch(_: Level, rows: &impl Rows, range: Range<usize>) {
    rows.compute::<{ cfg!(target_arch = "aarch64") }>(range);
}
