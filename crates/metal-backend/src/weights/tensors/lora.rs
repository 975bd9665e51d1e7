//! Adapters of modules: of a module of which a rank has a part, that part.

use mlx_ffi::{Array, Dtype, ops};

use super::Weights;
use crate::error::{Error, Result};
use crate::layers::Lora;
use crate::weights::Cut;
use crate::weights::adapter::{Factor, Taken};

impl Weights {
    /// The adapter of the module under this cursor, whose weight is `[output, input]`.
    ///
    /// # Errors
    /// Tensors that do not fit.
    pub(super) fn lora(&self, input: i32, output: i32) -> Result<Option<Lora>> {
        let Some((taken, [a, b])) = self.factors(&[output, input])? else { return Ok(None) };
        let (a, b) = match taken.transposed && !self.describes() {
            true => (ops::swap_axes(&a, 0, 1)?, ops::swap_axes(&b, 0, 1)?),
            false => (a, b),
        };
        Ok(Some(Lora { a, b, scale: taken.scale }))
    }

    /// The adapter's pair for the module under this cursor, whose weight is of `shape`.
    ///
    /// # Errors
    /// Tensors that do not fit.
    pub(super) fn factors(&self, shape: &[i32]) -> Result<Option<(Taken, [Array; 2])>> {
        let Some(adapter) = &self.shared.adapter else { return Ok(None) };
        let cut = self.cut_of("weight");
        let part = cut.and_then(|cut| cut.part("weight", shape));
        let whole = part.as_ref().map_or(shape, |part| &part.whole);
        let Some(taken) = adapter.take(&self.prefix, whole)? else { return Ok(None) };
        // No type that stands for another one differs from it in size.
        self.shared.totals.borrow_mut().bytes += taken.bytes(self.shared.dtype);
        let factor = |factor: &Factor| {
            let dtype = self.factor_dtype(factor.header.dtype);
            let array = self.read(&adapter.files, &factor.header, dtype)?;
            if dtype == Dtype::F16 && factor.header.dtype != Dtype::F16 {
                self.check_f16(&factor.name, &array)?;
            }
            Ok::<Array, Error>(array)
        };
        let [a, b] = [factor(&taken.a)?, factor(&taken.b)?];
        let Some(cut) = cut.filter(|_| !self.describes()) else {
            return Ok(Some((taken, [a, b])));
        };
        // `a` has the columns of the weight, and `b` its rows.
        let is_turned = taken.transposed || shape.len() > 2;
        let factors = match (cut.leaves_terms(), is_turned) {
            (true, false) => [of_rank(&a, 0, cut)?, b],
            (true, true) => [of_rank(&a, -1, cut)?, b],
            (false, false) => [a, of_rank(&b, -1, cut)?],
            (false, true) => [a, of_rank(&b, -2, cut)?],
        };
        Ok(Some((taken, factors)))
    }
}

/// The rank's part of `factor` along `axis`, as a copy of that part alone.
pub(super) fn of_rank(factor: &Array, axis: i32, cut: &Cut) -> Result<Array> {
    let part = |range: &std::ops::Range<i32>| ops::slice_axis(factor, axis, range.start, range.end);
    let parts = cut.ranges().iter().map(part).collect::<mlx_ffi::Result<Vec<_>>>()?;
    let part = ops::concatenate(&parts.iter().collect::<Vec<_>>(), axis)?;
    let part = ops::contiguous(&part)?;
    part.eval()?;
    Ok(part)
}
