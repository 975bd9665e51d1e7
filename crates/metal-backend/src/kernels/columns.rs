//! Columns of an array, taken where they lie.

use std::ops::Range;

use mlx_ffi::step::Heads;
use mlx_ffi::{Array, Result, cuda, ops};

/// Some columns of an array: kernels that take them where they lie need no operation to cut them out.
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
    pub fn halves(self) -> Result<(Columns, Option<Columns>)> {
        let Range { start, end } = self.range;
        let middle = start + (end - start) / 2;
        let first = Columns { of: self.of.share()?, range: start..middle };
        Ok((first, Some(Columns { of: self.of, range: middle..end })))
    }

    /// Whether these are the halves of one array whose rows kernels for CUDA can gate.
    pub fn are_halves(gate: &Columns, up: &Columns) -> bool {
        let half = gate.range.end;
        let are_halves = gate.range.start == 0 && up.range == (half..2 * half);
        let are_of_one = gate.of.shape() == up.of.shape();
        are_halves && are_of_one && cuda::takes_gate(&gate.of)
    }

    /// These columns as the kernel of a step takes them.
    pub fn heads(&self) -> Heads<'_> {
        Heads { array: &self.of, at: self.range.start }
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
