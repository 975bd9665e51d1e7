//! Kernels for AVX-512 with VBMI and BF16.
//!
//! A lane of a vector adds up its own part of k, for one row (decode) as for many (prefill), and
//! the lanes are added at the end. In f32 a lane has a column instead (`floats`). Weights are never
//! written back in another form, but for the panel that a thread unpacks for all rows of x.

pub(crate) mod attention;
mod dense;
pub(crate) mod floats;
mod lanes;
mod packed;
pub(crate) mod prompts;
mod rows;
pub(crate) mod scales;
pub(crate) mod tiles;
mod transpose;
mod unpack;
pub(crate) mod whole;

use std::cell::RefCell;

use self::dense::{Dense, X_ROWS};
pub(crate) use self::lanes::sum_lanes;
use self::packed::{Packed, Panel};
use self::rows::Rows;
use self::scales::Groups;
pub(crate) use self::transpose::transpose;
use self::unpack::{CHUNK, order_of};
use crate::kind::{for_kind, packed as kind_of};
use crate::output::Output;
use crate::pool::split;
use crate::{Dtype, Packing, Problem, Weights};

/// Bytes of weights, as they are multiplied, that stay in a core's cache while x passes.
const PANEL_SIZE: usize = 192 << 10;

thread_local! {
    static ROWS: RefCell<Rows> = RefCell::default();
    static PANEL: RefCell<Panel> = RefCell::default();
}

/// From so many positions of a sequence on it is multiplied in panels, which all of its rows pass.
const POSITIONS: usize = 16;

/// Returns true for a product of a prompt in bf16. That depends on the kinds and the length of a
/// sequence alone, so that a row does not depend on the other rows.
pub(crate) fn is_prompt(problem: &Problem<'_>) -> bool {
    let weights = match problem.weights {
        Weights::Dense { dtype, .. } => dtype == Dtype::Bf16,
        Weights::Packed { .. } => true,
    };
    weights && problem.dtype == Dtype::Bf16 && problem.positions >= POSITIONS
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
            let packed = Packed { n, k, rows, count, data, groups, out };
            for_kind!(kind, packed.run());
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

impl Packed<'_> {
    fn run<const KIND: u8>(&self) {
        let packed = self;
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
            5 => split(packed.n, all, &|columns| unsafe { packed.few::<KIND, 5>(columns) }),
            // SAFETY: this level was chosen because the processor has its features.
            6 => split(packed.n, all, &|columns| unsafe { packed.few::<KIND, 6>(columns) }),
            // SAFETY: this level was chosen because the processor has its features.
            7 => split(packed.n, all, &|columns| unsafe { packed.few::<KIND, 7>(columns) }),
            // SAFETY: this level was chosen because the processor has its features.
            8 => split(packed.n, all, &|columns| unsafe { packed.few::<KIND, 8>(columns) }),
            // SAFETY: this level was chosen because the processor has its features.
            _ => split(packed.n, height, &|columns| unsafe {
                PANEL.with_borrow_mut(|panel| packed.many::<KIND>(columns, panel));
            }),
        }
    }
}
