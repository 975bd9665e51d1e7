//! Columns of an array, taken where they lie.

use std::ops::Range;

use mlx_ffi::step::Heads;
use mlx_ffi::{Array, Result, ops};

/// Some columns of an array: kernels that take them where they lie need no operation to cut them
/// out.
#[derive(Debug)]
pub(crate) struct Columns {
    /// `[b, l, …]`.
    pub of: Array,
    /// Which, of the last dimension.
    pub range: Range<i32>,
}

impl Columns {
    /// All columns of an array.
    pub fn all(of: Array) -> Columns {
        let range = 0..of.shape().last().copied().unwrap_or(0);
        Columns { of, range }
    }

    /// The first half of these columns, and the second.
    pub fn halves(self) -> Result<[Columns; 2]> {
        let Range { start, end } = self.range;
        let middle = start + (end - start) / 2;
        let first = Columns { of: self.of.share()?, range: start..middle };
        Ok([first, Columns { of: self.of, range: middle..end }])
    }

    /// How many.
    pub fn count(&self) -> i32 {
        self.range.end - self.range.start
    }

    /// These columns as kernels take them.
    pub fn heads(&self) -> Heads<'_> {
        Heads { array: &self.of, at: self.range.start }
    }

    /// These values within ± `limit`.
    pub fn within(&self, limit: f32) -> Result<Columns> {
        let x = self.array()?;
        let scalar = |value| Array::scalar(value, x.dtype());
        let clipped = ops::maximum(&ops::minimum(&x, &scalar(limit)?)?, &scalar(-limit)?)?;
        Ok(Columns::all(clipped))
    }

    /// An array of these columns alone.
    pub fn array(&self) -> Result<Array> {
        let Range { start, end } = self.range;
        if self.of.shape().last() == Some(&(end - start)) {
            return self.of.share();
        }
        ops::slice_axis(&self.of, -1, start, end)
    }
}
