//! Rows of packed weights.

use std::ops::Range;

use super::lanes::Lanes;
use crate::floats::{self, Groups};
use crate::kind::{FP4, bits};

/// A matrix of weights.
pub(super) struct Source<'a> {
    pub(super) k: usize,
    pub(super) data: &'a [u8],
    pub(super) groups: Groups<'a>,
}

impl Source<'_> {
    /// The codes of row `row`.
    #[inline(always)]
    pub(super) fn row<const KIND: u8>(&self, row: usize) -> &[u8] {
        self.rows::<KIND>(row..row + 1)
    }

    /// The codes of several.
    #[inline(always)]
    pub(super) fn rows<const KIND: u8>(&self, rows: Range<usize>) -> &[u8] {
        let size = self.k / 8 * bits(KIND);
        &self.data[rows.start * size..rows.end * size]
    }
}

/// The scales and biases of a row of weights, for codes as they are multiplied.
#[derive(Default)]
pub(super) struct OfRow(floats::OfRow);

impl OfRow {
    #[inline(always)]
    pub(super) fn set<V: Lanes, const KIND: u8, const FMA: bool>(
        &mut self,
        groups: &Groups<'_>,
        row: usize,
    ) {
        self.0.set_at::<FMA>(groups, row);
        let (scales, biases) = self.0.both();
        if KIND == FP4 {
            // Codes are twice the values, and 12.
            for (scale, bias) in scales.iter_mut().zip(biases) {
                (*scale, *bias) = (*scale * 0.5, *scale * -6.0);
            }
        } else if bits(KIND) == 8 && V::OFFSET != 0.0 {
            for (scale, bias) in scales.iter_mut().zip(biases) {
                *bias += *scale * V::OFFSET;
            }
        }
    }

    pub(super) fn prepare(&mut self, groups: &Groups<'_>) {
        self.0.prepare(groups);
    }

    pub(super) fn scales(&self) -> &[f32] {
        self.0.scales()
    }

    pub(super) fn biases(&self) -> &[f32] {
        self.0.biases()
    }
}
