//! Kernels that multiply floats, for AVX2, for AVX-512 without BF16, and for any processor.
//!
//! Weights become floats, a chunk of 64 at a time: in registers for a few rows of x, in a panel of
//! a thread's own for many. A row's result is the sum over the same chunks either way, lane by
//! lane, so that it is the same to the last bit.

#[cfg(target_arch = "x86_64")]
#[allow(clippy::wildcard_imports, reason = "intrinsics are named like nothing else")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(clippy::wildcard_imports, reason = "intrinsics are named like nothing else")]
mod avx512f;
mod chunk;
mod codes;
mod groups;
mod lanes;
mod plain;
mod product;
mod sizes;
mod unpack;

use std::cell::RefCell;
use std::ops::Range;

use self::chunk::{Chunk, blocks, set};
pub(crate) use self::groups::{Groups, OfRow};
#[cfg(target_arch = "x86_64")]
pub(crate) use self::lanes::Lanes;
use self::product::{FEW, Product, Scratch};
use self::sizes::{CHUNK, STEPS};
pub use self::unpack::{unpack, unpack_at};
#[cfg(target_arch = "x86_64")]
pub(crate) use self::{avx2::Floats as Avx2, avx512f::Floats as Avx512f};
use crate::kind::{FP4, FP8, FROM_BF16, FROM_F16, FROM_F32, kind};
use crate::level::{Kernel, run_at};
use crate::output::Output;
use crate::pool::split;
use crate::values::widen;
use crate::{Dtype, Level, Problem, Weights};

/// Bytes of weights, as they are multiplied, that stay in a core's cache while x passes.
const PANEL_SIZE: usize = 192 << 10;

thread_local! {
    static X: RefCell<Vec<Chunk>> = const { RefCell::new(Vec::new()) };
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Computes a checked problem of at least one element.
pub(crate) fn run(level: Level, problem: &mut Problem<'_>) {
    X.with_borrow_mut(|x| {
        let Problem { m, n, k, dtype, x: bytes, weights, .. } = *problem;
        let kind = kind(weights);
        let (data, groups) = match weights {
            Weights::Dense { data, .. } => (data, None),
            Weights::Packed { packing, group_size, data, scales, biases } => {
                (data, Some(Groups { packing, group_size, in_row: k / group_size, scales, biases }))
            }
        };
        set_rows(x, (dtype, bytes), k, groups.is_some());
        let product = Product { m, k, x, data, groups, out: &Output::of(problem) };
        match kind {
            2 => multiply::<2>(level, n, &product),
            3 => multiply::<3>(level, n, &product),
            4 => multiply::<4>(level, n, &product),
            5 => multiply::<5>(level, n, &product),
            6 => multiply::<6>(level, n, &product),
            8 => multiply::<8>(level, n, &product),
            FP4 => multiply::<FP4>(level, n, &product),
            FP8 => multiply::<FP8>(level, n, &product),
            FROM_BF16 => multiply::<FROM_BF16>(level, n, &product),
            FROM_F16 => multiply::<FROM_F16>(level, n, &product),
            FROM_F32 => multiply::<FROM_F32>(level, n, &product),
            _ => unreachable!("bits were checked at the entry"),
        }
    });
}

fn multiply<const KIND: u8>(level: Level, n: usize, product: &Product<'_>) {
    let height = PANEL_SIZE / (product.chunks() * size_of::<Chunk>());
    let height = if product.m <= FEW { usize::MAX } else { height };
    split(n, height, &|columns| {
        SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: `matmul_at` lets only levels through that the processor has.
            unsafe { run_at(level, Columns::<KIND> { product, columns, scratch }) }
        });
    });
}

/// Columns of a product.
struct Columns<'a, const KIND: u8> {
    product: &'a Product<'a>,
    columns: Range<usize>,
    scratch: &'a mut Scratch,
}

impl<const KIND: u8> Kernel for Columns<'_, KIND> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Columns { product, columns, scratch } = self;
        #[cfg(target_arch = "x86_64")]
        if FMA {
            return product.columns::<avx2::Floats, KIND>(columns, scratch);
        }
        product.columns::<plain::Floats<FMA>, KIND>(columns, scratch);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn run_avx512f(self) {
        self.product.columns::<avx512f::Floats, KIND>(self.columns, self.scratch);
    }
}

/// `x`, `[m, k]`, as floats, in whole chunks, those of a chain one after the other; `packed`: in
/// the order of `Lanes::packed`.
fn set_rows(to: &mut Vec<Chunk>, (dtype, x): (Dtype, &[u8]), k: usize, packed: bool) {
    let (size, chunks) = (dtype.size(), k.div_ceil(CHUNK));
    to.resize(x.len() / (k * size) * chunks, Chunk::ZERO);
    for (to, row) in to.chunks_exact_mut(chunks).zip(x.chunks_exact(k * size)) {
        for block in blocks(chunks) {
            for chunk in 0..block.len() {
                let bytes = &row[(block.start + chunk) * CHUNK * size..];
                let bytes = &bytes[..bytes.len().min(CHUNK * size)];
                let mut values = [[0.0; 8]; STEPS];
                widen(dtype, bytes, values.as_flattened_mut());
                if packed {
                    values =
                        std::array::from_fn(|step| std::array::from_fn(|lane| values[lane][step]));
                }
                set(&mut to[block.clone()], chunk, values.map(plain::Floats::<false>));
            }
        }
    }
}
