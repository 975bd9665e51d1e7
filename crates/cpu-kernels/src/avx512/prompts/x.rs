//! Rows of x as pairs in the order in which a panel has its weights.

use std::arch::x86_64::*;

use super::sizes::UNROLLED;
use crate::pool::{Parts, run};

/// Words that are brought into another order at a time.
const LINE: usize = 32;

/// Rows of x; kept from product to product for their memory.
#[derive(Default)]
pub(super) struct X {
    /// `[rows, stride]`.
    pairs: Vec<[u32; UNROLLED]>,
    /// `[rows, groups]`: the sums of groups of each row.
    sums: Vec<f32>,
    /// Used of each row; there is space between rows, whose starts would share places in a cache
    /// otherwise.
    in_row: usize,
    stride: usize,
    groups: usize,
}

impl X {
    /// Steps of a row, a pair each, with the zeros after its end.
    pub(super) fn steps(&self) -> usize {
        self.in_row * UNROLLED
    }

    /// Row `i`.
    pub(super) fn row(&self, i: usize) -> &[[u32; UNROLLED]] {
        &self.pairs[i * self.stride..][..self.in_row]
    }

    /// The sums of the groups of row `i`, none where they were not asked for.
    pub(super) fn sums(&self, i: usize) -> &[f32] {
        &self.sums[i * self.groups..][..self.groups]
    }

    /// `x`, `[m, k]` of bf16. Of each `codes` values in a row, the first half are paired with the
    /// second half. With the sums of groups of `summed` values.
    pub(super) fn set(
        &mut self,
        x: &[u8],
        (m, k): (usize, usize),
        codes: usize,
        summed: Option<usize>,
    ) {
        self.in_row = k.div_ceil(2 * UNROLLED);
        self.stride = self.in_row.next_multiple_of(4) + 2;
        self.groups = summed.map_or(0, |size| k / size);
        let (stride, in_row, groups) = (self.stride, self.in_row, self.groups);
        // Only growing, so that memory is not cleared for each product.
        self.pairs.resize(self.pairs.len().max(m * stride), [0; UNROLLED]);
        self.sums.resize(self.sums.len().max(m * groups), 0.0);
        let pairs = Parts::of(&mut self.pairs[..m * stride]);
        let sums = Parts::of(&mut self.sums[..m * groups]);
        let order = order(codes);
        run(m, &|row| {
            let bytes = &x[row * 2 * k..][..2 * k];
            // SAFETY: each unit has a row of its own.
            let (pairs, sums) = unsafe {
                (
                    pairs.part(row * stride..row * stride + in_row),
                    sums.part(row * groups..(row + 1) * groups),
                )
            };
            // SAFETY: the level has AVX-512.
            unsafe { reorder(bytes, &order, pairs.as_flattened_mut()) };
            if let Some(size) = summed {
                // SAFETY: the level has AVX-512.
                unsafe { sum(bytes, size, sums) };
            }
        });
    }
}

/// The source index of each word of a line.
fn order(codes: usize) -> [u16; LINE] {
    std::array::from_fn(|at| {
        let (step, half) = (at / 2, at % 2);
        let (block, step) = (step / (codes / 2), step % (codes / 2));
        (block * codes + step + half * codes / 2) as u16
    })
}

/// The words of `row` in the order of each line, zeros after its end.
#[target_feature(enable = "avx512f,avx512bw")]
fn reorder(row: &[u8], order: &[u16; LINE], to: &mut [u32]) {
    // SAFETY: the array has 64 bytes.
    let order = unsafe { _mm512_loadu_si512(order.as_ptr().cast()) };
    let mut parts = row.chunks(2 * LINE);
    for to in to.chunks_mut(LINE / 2) {
        let part = parts.next().unwrap_or_default();
        // SAFETY: the mask lets only the part be read.
        let words = unsafe { _mm512_maskz_loadu_epi16(mask(part.len() / 2), part.as_ptr().cast()) };
        let words = _mm512_permutexvar_epi16(order, words);
        // SAFETY: the mask lets only `to` be written.
        unsafe { _mm512_mask_storeu_epi16(to.as_mut_ptr().cast(), mask(2 * to.len()), words) };
    }
}

/// The sums of groups of `size` values of `row`, in f32.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn sum(row: &[u8], size: usize, to: &mut [f32]) {
    let ones = _mm512_set1_epi32(0x3f80_3f80);
    // SAFETY: both types are 64 bytes of plain bits.
    let ones = unsafe { std::mem::transmute::<__m512i, __m512bh>(ones) };
    for (to, group) in to.iter_mut().zip(row.chunks_exact(2 * size)) {
        let mut sums = _mm512_setzero_ps();
        for part in group.chunks(2 * LINE) {
            // SAFETY: the mask lets only the part be read.
            let words =
                unsafe { _mm512_maskz_loadu_epi16(mask(part.len() / 2), part.as_ptr().cast()) };
            // SAFETY: both types are 64 bytes of plain bits.
            let words = unsafe { std::mem::transmute::<__m512i, __m512bh>(words) };
            sums = _mm512_dpbf16_ps(sums, words, ones);
        }
        *to = _mm512_reduce_add_ps(sums);
    }
}

/// The lowest `count` of 32 bits.
fn mask(count: usize) -> u32 {
    ((1u64 << count) - 1) as u32
}
