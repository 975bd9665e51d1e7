//! Epilogues of products.

use std::ops::Range;

use crate::level::{Kernel, run_at};
use crate::output::Output;
use crate::problem::buffer;
use crate::rows::each;
use crate::{Activation, Dtype, Error, Level, Problem};

/// The epilogue of a product in f32: adds a bias, then activates, then adds a residual.
#[derive(Clone, Copy, Debug, Default)]
pub struct Finish<'a> {
    /// `[n]` f32.
    pub bias: Option<&'a [u8]>,
    /// Of each value.
    pub activation: Option<Activation>,
    /// `[m, n]` f32.
    pub residual: Option<&'a [u8]>,
}

impl Finish<'_> {
    /// Returns true when the product is written as it is.
    pub(crate) fn is_nothing(&self) -> bool {
        self.bias.is_none() && self.activation.is_none() && self.residual.is_none()
    }

    /// Checks every buffer against the sizes of `problem`: what [`apply`](Self::apply) relies on.
    pub(crate) fn check(&self, problem: &Problem<'_>) -> Result<(), Error> {
        let Problem { m, n, dtype, .. } = *problem;
        if dtype != Dtype::F32 && !self.is_nothing() {
            return Err(Error(format!("a product in {dtype:?} is written as it is")));
        }
        if let Some(bias) = self.bias {
            buffer("the bias", bias, &[n, 4])?;
        }
        self.residual.map_or(Ok(()), |residual| buffer("the residual", residual, &[m, n, 4]))
    }

    /// Makes of the products in `problem.out` what they become, at a level that the processor has.
    pub(crate) fn apply_to(&self, level: Level, problem: &mut Problem<'_>) {
        if self.is_nothing() {
            return;
        }
        let Problem { m, n, .. } = *problem;
        let out = &Output::of(problem);
        each(m, n, |first, end| {
            // SAFETY: the level was checked.
            unsafe { run_at(level, RowsKernel { finish: self, n, rows: first..end, out }) }
        });
    }

    /// Makes of products what they become: columns `columns` of row `row` of `n` columns.
    #[inline(always)]
    pub(crate) fn apply<const FMA: bool>(
        &self,
        (row, n): (usize, usize),
        columns: Range<usize>,
        values: &mut [f32],
    ) {
        if let Some(bias) = self.bias {
            add(&bias[columns.start * 4..columns.end * 4], values);
        }
        if let Some(activation) = self.activation {
            const ONES: [f32; 64] = [1.0; 64];
            for values in values.chunks_mut(ONES.len()) {
                activation.open::<FMA>(values, &ONES);
            }
        }
        if let Some(residual) = self.residual {
            add(&residual[(row * n + columns.start) * 4..(row * n + columns.end) * 4], values);
        }
    }
}

#[inline(always)]
fn add(from: &[u8], to: &mut [f32]) {
    for (to, from) in to.iter_mut().zip(from.as_chunks::<4>().0) {
        *to += f32::from_le_bytes(*from);
    }
}

struct RowsKernel<'a> {
    finish: &'a Finish<'a>,
    n: usize,
    rows: Range<usize>,
    out: &'a Output<'a>,
}

impl Kernel for RowsKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let mut values = vec![0.0; self.n];
        for row in self.rows {
            // SAFETY: each unit has rows of its own.
            unsafe { self.out.load(row, 0, &mut values) };
            self.finish.apply::<FMA>((row, self.n), 0..self.n, &mut values);
            // SAFETY: each unit has rows of its own.
            unsafe { self.out.store(row, 0, &values) };
        }
    }
}
