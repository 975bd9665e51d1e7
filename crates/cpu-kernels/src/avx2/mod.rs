//! Kernels for AVX2 with FMA and F16C.
//!
//! Weights become floats, a chunk of 64 at a time: in registers for a few rows of x, in a panel of a
//! thread's own for many. A row's result is the sum over the same chunks either way, lane by lane, so
//! that it is the same to the last bit.

mod product;
mod unpack;

use std::arch::x86_64::*;
use std::cell::RefCell;

use self::product::{Product, Scratch};
use self::unpack::{FP4, FP8, FROM_BF16, FROM_F16, FROM_F32, Groups};
use crate::output::Output;
use crate::pool::split;
use crate::values::widen;
use crate::{Dtype, Packing, Problem, Weights};

/// Values that are multiplied before their sum is added to that of a row.
const CHUNK: usize = 64;

/// Vectors of a chunk.
const STEPS: usize = CHUNK / 8;

/// Rows of x up to which weights stay in registers.
const FEW: usize = 4;

/// Bytes of weights, as they are multiplied, that stay in a core's cache while x passes.
const PANEL_SIZE: usize = 192 << 10;

thread_local! {
    static X: RefCell<Vec<Chunk>> = const { RefCell::new(Vec::new()) };
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A chunk at rest.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Chunk([[f32; 8]; STEPS]);

impl Chunk {
    const ZERO: Chunk = Chunk([[0.0; 8]; STEPS]);

    #[inline]
    #[target_feature(enable = "avx2")]
    fn step(&self, step: usize) -> __m256 {
        // SAFETY: a step is 32 bytes that begin at a multiple of 32.
        unsafe { _mm256_load_ps(self.0[step].as_ptr()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn set(&mut self, values: [__m256; STEPS]) {
        for (to, value) in self.0.iter_mut().zip(values) {
            // SAFETY: a step is 32 bytes that begin at a multiple of 32.
            unsafe { _mm256_store_ps(to.as_mut_ptr(), value) };
        }
    }
}

/// Computes a checked problem of at least one element.
pub(crate) fn run(problem: &mut Problem<'_>) {
    X.with_borrow_mut(|x| {
        let Problem { m, n, k, dtype, x: bytes, weights, .. } = *problem;
        let kind = kind(weights);
        let (data, groups) = match weights {
            Weights::Dense { data, .. } => (data, None),
            Weights::Packed { packing, group_size, data, scales, biases } => {
                (data, Some(Groups { packing, group_size, in_row: k / group_size, scales, biases }))
            }
        };
        // SAFETY: this level was chosen because the processor has its features.
        unsafe { set_rows(x, (dtype, bytes), k, groups.is_some()) };
        let product = Product { m, k, x, data, groups, out: &Output::of(problem) };
        match kind {
            2 => multiply::<2>(n, &product),
            3 => multiply::<3>(n, &product),
            4 => multiply::<4>(n, &product),
            5 => multiply::<5>(n, &product),
            6 => multiply::<6>(n, &product),
            8 => multiply::<8>(n, &product),
            FP4 => multiply::<FP4>(n, &product),
            FP8 => multiply::<FP8>(n, &product),
            FROM_BF16 => multiply::<FROM_BF16>(n, &product),
            FROM_F16 => multiply::<FROM_F16>(n, &product),
            FROM_F32 => multiply::<FROM_F32>(n, &product),
            _ => unreachable!("bits were checked at the entry"),
        }
    });
}

/// What the weights are, as a constant that kernels are compiled for.
fn kind(weights: Weights<'_>) -> u8 {
    match weights {
        Weights::Dense { dtype: Dtype::Bf16, .. } => FROM_BF16,
        Weights::Dense { dtype: Dtype::F16, .. } => FROM_F16,
        Weights::Dense { dtype: Dtype::F32, .. } => FROM_F32,
        Weights::Packed { packing: Packing::Affine { bits, .. }, .. } => bits as u8,
        Weights::Packed { packing: Packing::Mxfp4 | Packing::Nvfp4, .. } => FP4,
        Weights::Packed { packing: Packing::Mxfp8, .. } => FP8,
    }
}

fn multiply<const KIND: u8>(n: usize, product: &Product<'_>) {
    let height = PANEL_SIZE / (product.chunks() * size_of::<Chunk>());
    let height = if product.m <= FEW { usize::MAX } else { height };
    split(n, height, &|columns| {
        SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: this level was chosen because the processor has its features.
            unsafe {
                match product.m {
                    1 => product.few::<KIND, 1>(columns, scratch),
                    2 => product.few::<KIND, 2>(columns, scratch),
                    3 => product.few::<KIND, 3>(columns, scratch),
                    FEW => product.few::<KIND, FEW>(columns, scratch),
                    _ => product.many::<KIND>(columns, scratch),
                }
            }
        });
    });
}

/// `x`, `[m, k]`, as floats, in whole chunks; `packed`: in the order of packed weights, where lane `i`
/// has the eight neighbours from `8 i` on, one in each step.
#[target_feature(enable = "avx2,fma,f16c")]
fn set_rows(to: &mut Vec<Chunk>, (dtype, x): (Dtype, &[u8]), k: usize, packed: bool) {
    let (size, chunks) = (dtype.size(), k.div_ceil(CHUNK));
    to.resize(x.len() / (k * size) * chunks, Chunk::ZERO);
    for (to, row) in to.chunks_exact_mut(chunks).zip(x.chunks_exact(k * size)) {
        for (to, bytes) in to.iter_mut().zip(row.chunks(CHUNK * size)) {
            let mut values = [[0.0; 8]; STEPS];
            widen(dtype, bytes, values.as_flattened_mut());
            if !packed {
                to.0 = values;
                continue;
            }
            for (step, to) in to.0.iter_mut().enumerate() {
                for (lane, to) in to.iter_mut().enumerate() {
                    *to = values[lane][step];
                }
            }
        }
    }
}
