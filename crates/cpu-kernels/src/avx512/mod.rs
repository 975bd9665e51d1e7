//! Kernels for AVX-512 with VBMI and BF16.
//!
//! A lane of a vector adds up its own part of k, for one row (decode) as for many (prefill), and
//! the lanes are added at the end. Weights are never written back in another form, but for the
//! panel that a thread unpacks for all rows of x.

pub(crate) mod attention;
mod dense;
mod lanes;
mod packed;
mod rows;
mod scales;
pub(crate) mod tiles;
mod unpack;

use std::cell::RefCell;

use self::dense::{Dense, X_ROWS};
use self::packed::{Packed, Panel};
use self::rows::Rows;
use self::scales::Groups;
use self::unpack::{CHUNK, order_of};
use crate::kind::{FP4, FP8, packed as kind_of};
use crate::output::Output;
use crate::pool::split;
use crate::{Dtype, Packing, Problem, Weights};

/// Bytes of weights, as they are multiplied, that stay in a core's cache while x passes.
const PANEL_SIZE: usize = 192 << 10;

thread_local! {
    static ROWS: RefCell<Rows> = RefCell::default();
    static PANEL: RefCell<Panel> = RefCell::default();
}

/// Computes a checked problem of at least one element.
pub(crate) fn run(problem: &mut Problem<'_>) {
    ROWS.with_borrow_mut(|rows| match problem.weights {
        Weights::Dense { dtype, data } => dense(problem, rows, dtype, data),
        Weights::Packed { packing, group_size, data, scales, biases } => {
            let kind = kind_of(packing);
            let groups = Groups::new(packing, kind, (problem.k, group_size), scales, biases);
            let summed = matches!(packing, Packing::Affine { .. }).then_some(group_size);
            let Problem { m, n, k, dtype, x, .. } = *problem;
            // SAFETY: this level was chosen because the processor has its features.
            unsafe { rows.set_parts((dtype, x), k, order_of(kind), summed) };
            let count = m * rows.parts;
            let out = &Output::of(problem);
            packed(kind, &Packed { n, k, rows, count, data, groups, out });
        }
    });
}

fn dense(problem: &mut Problem<'_>, rows: &mut Rows, dtype: Dtype, data: &[u8]) {
    let Problem { m, n, k, dtype: x_dtype, x, .. } = *problem;
    let pairs = dtype == Dtype::Bf16 && x_dtype == Dtype::Bf16;
    if pairs {
        rows.set_pairs(x, k)
    } else {
        rows.set_floats(x_dtype, x, k)
    }
    let dense = Dense { k, rows, m, dtype, pairs, data, out: &Output::of(problem) };
    let height = if m <= X_ROWS { usize::MAX } else { PANEL_SIZE / (k * dtype.size()) };
    // SAFETY: this level was chosen because the processor has its features.
    split(n, height, &|columns| unsafe { dense.columns(columns) });
}

fn packed(kind: u8, packed: &Packed<'_>) {
    match kind {
        2 => packed_kind::<2>(packed),
        3 => packed_kind::<3>(packed),
        4 => packed_kind::<4>(packed),
        5 => packed_kind::<5>(packed),
        6 => packed_kind::<6>(packed),
        8 => packed_kind::<8>(packed),
        FP4 => packed_kind::<FP4>(packed),
        FP8 => packed_kind::<FP8>(packed),
        _ => unreachable!("bits were checked at the entry"),
    }
}

fn packed_kind<const KIND: u8>(packed: &Packed<'_>) {
    let height = PANEL_SIZE / (packed.k.next_multiple_of(CHUNK) * 2);
    let all = usize::MAX;
    match packed.count {
        // SAFETY: this level was chosen because the processor has its features.
        1 => split(packed.n, all, &|columns| unsafe { packed.few::<KIND, 1>(columns) }),
        // SAFETY: this level was chosen because the processor has its features.
        2 => split(packed.n, all, &|columns| unsafe { packed.few::<KIND, 2>(columns) }),
        // SAFETY: this level was chosen because the processor has its features.
        3 => split(packed.n, all, &|columns| unsafe { packed.few::<KIND, 3>(columns) }),
        // SAFETY: this level was chosen because the processor has its features.
        4 => split(packed.n, all, &|columns| unsafe { packed.few::<KIND, 4>(columns) }),
        // SAFETY: this level was chosen because the processor has its features.
        _ => split(packed.n, height, &|columns| unsafe {
            PANEL.with_borrow_mut(|panel| packed.many::<KIND>(columns, panel));
        }),
    }
}
