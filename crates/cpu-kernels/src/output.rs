//! The result, written by several threads.

use std::marker::PhantomData;

use crate::values::narrow;
use crate::{Dtype, Problem};

/// `[m, n]` elements that threads fill, each its own columns.
pub(crate) struct Output<'a> {
    first: *mut u8,
    m: usize,
    n: usize,
    dtype: Dtype,
    of: PhantomData<&'a mut [u8]>,
}

// SAFETY: every access is by way of an unsafe function, whose callers promise that no two threads
// use an element at the same time.
unsafe impl Sync for Output<'_> {}

impl<'a> Output<'a> {
    /// The result of `problem`, whose sizes were checked.
    pub(crate) fn of(problem: &'a mut Problem<'_>) -> Output<'a> {
        let Problem { m, n, dtype, .. } = *problem;
        Output::new(problem.out, (m, n), dtype)
    }

    /// `out` as `[m, n]` elements.
    pub(crate) fn new(out: &'a mut [u8], (m, n): (usize, usize), dtype: Dtype) -> Output<'a> {
        assert_eq!(out.len(), m * n * dtype.size(), "checked at the entry");
        Output { first: out.as_mut_ptr(), m, n, dtype, of: PhantomData }
    }

    /// Reads f32 elements of row `row` from column `column` on.
    ///
    /// # Safety
    /// No other thread writes these elements at the same time.
    pub(crate) unsafe fn load(&self, row: usize, column: usize, to: &mut [f32]) {
        assert!(self.dtype == Dtype::F32 && row < self.m && column + to.len() <= self.n);
        for (i, to) in to.iter_mut().enumerate() {
            // SAFETY: by the assertion the four bytes lie inside the buffer, which is borrowed for
            // 'a and, as the caller promises, not written meanwhile.
            let bytes =
                unsafe { *self.first.add((row * self.n + column + i) * 4).cast::<[u8; 4]>() };
            *to = f32::from_le_bytes(bytes);
        }
    }

    /// The type of the elements.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Writes `values` to row `row` from column `column` on.
    ///
    /// # Safety
    /// No other thread writes these elements at the same time.
    #[inline(always)]
    pub(crate) unsafe fn store(&self, row: usize, column: usize, values: &[f32]) {
        match self.dtype {
            // SAFETY: as the caller promises.
            Dtype::F32 => unsafe { self.store_f32(row, column, values) },
            dtype => narrow(dtype, values, |before, bytes| {
                // SAFETY: as the caller promises.
                unsafe { self.store_bytes(row, column + before, bytes) }
            }),
        }
    }

    /// Writes f32 elements to row `row` from column `column` on.
    ///
    /// # Safety
    /// No other thread writes these elements at the same time.
    #[inline(always)]
    unsafe fn store_f32(&self, row: usize, column: usize, values: &[f32]) {
        assert!(row < self.m && column + values.len() <= self.n, "inside the result");
        for (i, value) in values.iter().enumerate() {
            let at = (row * self.n + column + i) * 4;
            // SAFETY: by the assertion the four bytes lie inside the buffer, which is borrowed for
            // 'a and, as the caller promises, used by nobody else meanwhile.
            unsafe { *self.first.add(at).cast::<[u8; 4]>() = value.to_le_bytes() };
        }
    }

    /// Writes whole elements to row `row` from column `column` on.
    ///
    /// # Safety
    /// No other thread writes these elements at the same time.
    #[inline]
    pub(crate) unsafe fn store_bytes(&self, row: usize, column: usize, bytes: &[u8]) {
        let size = self.dtype.size();
        assert!(row < self.m && column * size + bytes.len() <= self.n * size, "inside the result");
        // SAFETY: by the assertion the elements lie inside the buffer, which is borrowed for 'a;
        // no one else holds a slice over these bytes, as the caller promises.
        let out = unsafe {
            let first = self.first.add((row * self.n + column) * size);
            std::slice::from_raw_parts_mut(first, bytes.len())
        };
        // Four elements are the rule, which take one move.
        match (out.as_mut_array::<8>(), bytes.as_array::<8>()) {
            (Some(out), Some(bytes)) => *out = *bytes,
            _ => out.copy_from_slice(bytes),
        }
    }
}
