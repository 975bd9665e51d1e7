//! Products of activations as whole numbers, of 8 or 16 bits, with packed weights.
//!
//! Each group of a row of x gets a scale. With 8 bits its largest value becomes 127 or -127. With
//! 16 bits the scale is a power of two, and the largest value becomes a number of 15 bits: values
//! of bf16 down to 1/128 of it stay exact, and values of f16 down to 1/16. The products with codes
//! are added up exactly within a group; the scales of both are applied to that sum.

#[cfg(target_arch = "x86_64")]
#[allow(clippy::wildcard_imports, reason = "intrinsics are named like nothing else")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(clippy::wildcard_imports, reason = "intrinsics are named like nothing else")]
mod avx512;
mod lanes;
mod panel;
mod plain;
mod product;
mod source;
#[cfg(target_arch = "x86_64")]
#[allow(clippy::wildcard_imports, reason = "intrinsics are named like nothing else")]
mod steps;
mod x;

use std::cell::RefCell;
use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use self::lanes::CHUNK;
use self::lanes::LANES;
use self::product::{Product, Scratch};
use self::source::Source;
#[cfg(target_arch = "x86_64")]
use self::steps::Steps;
use self::x::{Form, X};
#[cfg(target_arch = "x86_64")]
use self::x::{QUAD, codes_of_quad};
use crate::floats::Groups;
use crate::kind::{FP4, packed};
use crate::output::Output;
use crate::pool::{panels, split};
use crate::{Dtype, Level, Packing, Problem, Weights};

/// Bytes of codes that stay in a core's second-level cache while x passes.
const PANEL_SIZE: usize = 384 << 10;

/// From so many positions of a sequence on it is multiplied in panels, which all of its rows pass.
const POSITIONS: usize = 16;

thread_local! {
    static ROWS: RefCell<X> = RefCell::default();
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// How codes are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dots {
    /// In loops over arrays.
    Plain,
    /// AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-VNNI, without AVX-512.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// AVX-512 with VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
}

impl Dots {
    #[cfg(target_arch = "x86_64")]
    fn of(level: Level) -> Dots {
        match level {
            Level::Portable => Dots::Plain,
            Level::Avx2 if is_x86_feature_detected!("avxvnni") => Dots::AvxVnni,
            Level::Avx2 => Dots::Avx2,
            _ if is_x86_feature_detected!("avx512vnni") => Dots::Avx512Vnni,
            _ => Dots::Avx2,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of(_: Level) -> Dots {
        Dots::Plain
    }
}

/// With which instructions [`rounded_matmul`](crate::rounded_matmul) multiplies, in words.
pub fn rounded_dots() -> &'static str {
    match Dots::of(Level::current()) {
        Dots::Plain => "plain code",
        #[cfg(target_arch = "x86_64")]
        Dots::Avx2 => "AVX2",
        #[cfg(target_arch = "x86_64")]
        Dots::AvxVnni => "AVX-VNNI",
        #[cfg(target_arch = "x86_64")]
        Dots::Avx512Vnni => "AVX-512 with VNNI",
    }
}

/// Returns true when [`rounded_matmul`](crate::rounded_matmul) rounds fewer than 16 positions of
/// this type on this processor. [`rounded_gather_matmul`](crate::rounded_gather_matmul) then rounds
/// those of experts too.
pub fn rounds_steps(dtype: Dtype) -> bool {
    rounds_steps_at(Level::current(), dtype)
}

/// With AVX-512, products in bf16 read weights as fast as memory gives them.
fn rounds_steps_at(level: Level, dtype: Dtype) -> bool {
    level < Level::Avx512 || dtype != Dtype::Bf16
}

/// Computes a checked problem of at least one element with x rounded to 8 bits, if it is one of
/// these.
pub(crate) fn run(level: Level, problem: &mut Problem<'_>) -> bool {
    let Weights::Packed { packing, .. } = problem.weights else { return false };
    let has_form = matches!(packing, Packing::Affine { .. } | Packing::Mxfp4);
    let is_step = problem.positions < POSITIONS;
    if !has_form || (is_step && !rounds_steps_at(level, problem.dtype)) {
        return false;
    }
    multiply::<1>(level, problem);
    true
}

/// Computes a checked problem of at least one element with x as whole numbers of 16 bits, if that
/// is faster than multiplying x as it is.
pub(crate) fn run_words(level: Level, problem: &mut Problem<'_>) -> bool {
    let Weights::Packed { packing, .. } = problem.weights else { return false };
    if !takes_words(level, problem.dtype, packing) {
        return false;
    }
    multiply::<2>(level, problem);
    true
}

/// Vectors of 16-bit numbers beside those of floats, or of bf16.
fn takes_words(level: Level, dtype: Dtype, packing: Packing) -> bool {
    let has_form = matches!(packing, Packing::Affine { .. } | Packing::Mxfp4 | Packing::Nvfp4);
    let is_faster = match Dots::of(level) {
        Dots::Plain => false,
        #[cfg(target_arch = "x86_64")]
        Dots::Avx2 => level == Level::Avx2,
        #[cfg(target_arch = "x86_64")]
        Dots::AvxVnni => true,
        // Pairs of bf16 take one instruction too, and no scale of x. Of f16 they take two.
        #[cfg(target_arch = "x86_64")]
        Dots::Avx512Vnni => level == Level::Avx512f || dtype == Dtype::F16,
    };
    has_form && is_faster && dtype != Dtype::F32
}

/// `SIZE`: bytes of a rounded value.
fn multiply<const SIZE: usize>(level: Level, problem: &mut Problem<'_>) {
    let Weights::Packed { packing, group_size, data, scales, biases } = problem.weights else {
        return;
    };
    let dots = Dots::of(level);
    let is_split = SIZE == 2 && problem.positions < POSITIONS && splits(dots, packed(packing));
    ROWS.with_borrow_mut(|rows| {
        let Problem { m, n, k, dtype, x, positions, .. } = *problem;
        let is_panel = positions >= POSITIONS;
        let kind = packed(packing);
        let form = Form { kind, group_size, is_panel, size: SIZE, is_split };
        rows.set(level, (dtype, x), (m, k), form);
        let groups = Groups { packing, group_size, in_row: k / group_size, scales, biases };
        #[cfg(target_arch = "x86_64")]
        if is_split {
            let parts = form.parts();
            let codes = QUAD * CHUNK / parts;
            let groups =
                crate::avx512::scales::Groups::of_lanes(groups, codes, codes_of_quad(parts));
            let steps = Steps { m, k, x: rows, data, parts, groups, out: &Output::of(problem) };
            // SAFETY: `splits` has looked for the instructions.
            split(n, usize::MAX, &|columns| unsafe {
                match kind {
                    2 => steps.run::<2>(columns),
                    3 => steps.run::<3>(columns),
                    4 => steps.run::<4>(columns),
                    5 => steps.run::<5>(columns),
                    6 => steps.run::<6>(columns),
                    _ => steps.run::<FP4>(columns),
                }
            });
            return;
        }
        let source = Source { k, data, groups };
        let product = Product { m, n, x: rows, source, out: &Output::of(problem) };
        let columns = |columns: Range<usize>| {
            SCRATCH.with_borrow_mut(|scratch| {
                let work = Work::<SIZE> { product: &product, columns, is_panel, scratch };
                match kind {
                    2 => work.run::<2>(dots),
                    3 => work.run::<3>(dots),
                    4 => work.run::<4>(dots),
                    5 => work.run::<5>(dots),
                    6 => work.run::<6>(dots),
                    8 => work.run::<8>(dots),
                    _ => work.run::<FP4>(dots),
                }
            });
        };
        if is_panel {
            panels(n, PANEL_SIZE / (k * SIZE), 2 * LANES, &columns);
        } else {
            split(n, usize::MAX, &columns);
        }
    });
}

/// Returns true where steps take x byte by byte.
#[cfg(target_arch = "x86_64")]
fn splits(dots: Dots, kind: u8) -> bool {
    dots == Dots::Avx512Vnni && steps::takes(kind) && is_x86_feature_detected!("avx512vbmi")
}

#[cfg(not(target_arch = "x86_64"))]
fn splits(_: Dots, _: u8) -> bool {
    false
}

/// The columns of a product that a thread computes.
struct Work<'a, const SIZE: usize> {
    product: &'a Product<'a>,
    columns: Range<usize>,
    is_panel: bool,
    scratch: &'a mut Scratch,
}

impl<const SIZE: usize> Work<'_, SIZE> {
    fn run<const KIND: u8>(self, dots: Dots) {
        match dots {
            // Not compiled for words, which `takes_words` leaves to others there.
            Dots::Plain if const { SIZE == 2 } => {}
            Dots::Plain => {
                self.by::<plain::Plain<SIZE, { cfg!(target_arch = "aarch64") }>, KIND, false>()
            }
            // SAFETY: the level was checked, and its instructions were looked for.
            #[cfg(target_arch = "x86_64")]
            Dots::Avx2 => unsafe { self.avx2::<KIND>() },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Dots::AvxVnni => unsafe { self.avx_vnni::<KIND>() },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Dots::Avx512Vnni => unsafe { self.avx512_vnni::<KIND>() },
        }
    }

    /// `FMA` is whether the processor has AVX2.
    #[inline(always)]
    fn by<V: lanes::Lanes, const KIND: u8, const FMA: bool>(self) {
        let Work { product, columns, is_panel, scratch } = self;
        if is_panel {
            product.prompt::<V, KIND, FMA>(columns, scratch);
        } else {
            product.steps::<V, KIND, FMA>(columns, scratch);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn avx2<const KIND: u8>(self) {
        self.by::<avx2::Avx2<SIZE, false>, KIND, true>();
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
    fn avx_vnni<const KIND: u8>(self) {
        self.by::<avx2::Avx2<SIZE, true>, KIND, true>();
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    fn avx512_vnni<const KIND: u8>(self) {
        self.by::<avx512::Avx512<SIZE, true>, KIND, true>();
    }
}
