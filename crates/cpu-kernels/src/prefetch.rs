//! Memory that is asked for before it is needed.

/// Bytes of a line of a cache.
const LINE: usize = 64;

/// Asks memory for the line at `at`, which need not be ours.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it does nothing that a program can see.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Memory that is read next, asked for a part at a time while other work runs.
pub(crate) struct Ahead<'a> {
    rest: &'a [u8],
    /// Bytes of a part.
    each: usize,
}

impl<'a> Ahead<'a> {
    /// `bytes`, in as many parts.
    pub(crate) fn new(bytes: &'a [u8], parts: usize) -> Ahead<'a> {
        Ahead { rest: bytes, each: bytes.len().div_ceil(parts.max(1)).next_multiple_of(LINE) }
    }

    /// Asks the second-level cache for the next part.
    #[inline(always)]
    pub(crate) fn part(&mut self) {
        let (part, rest) = self.rest.split_at(self.each.min(self.rest.len()));
        self.rest = rest;
        for line in part.chunks(LINE) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: every x86-64 has the instruction, and it does nothing that a program can see.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = line;
        }
    }
}
