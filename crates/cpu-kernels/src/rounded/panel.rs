//! Codes in bytes or pairs of bytes, column beside column.

use std::ops::Range;

use super::lanes::{LANES, Lanes, Line, is_spread};
use super::source::{OfRow, Source};
use crate::kind::bits;

/// Columns of weights; kept from product to product for their memory.
#[derive(Default)]
pub(super) struct Panel {
    /// `[blocks of 16 columns, steps]`
    values: Vec<Line>,
    /// `[blocks of 16 columns, groups]`
    scales: Vec<[f32; LANES]>,
    biases: Vec<[f32; LANES]>,
    steps: usize,
    groups: usize,
}

/// Sixteen columns of a panel.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    /// By steps of as many rows as fit in four bytes.
    pub(super) values: &'a [Line],
    /// By groups.
    pub(super) scales: &'a [[f32; LANES]],
    pub(super) biases: &'a [[f32; LANES]],
}

impl Panel {
    pub(super) fn block(&self, block: usize) -> Block<'_> {
        Block {
            values: &self.values[block * self.steps..][..self.steps],
            scales: &self.scales[block * self.groups..][..self.groups],
            biases: &self.biases[block * self.groups..][..self.groups],
        }
    }

    /// Takes rows `columns` of a matrix.
    #[inline(always)]
    pub(super) fn fill<V: Lanes, const KIND: u8, const FMA: bool>(
        &mut self,
        source: &Source<'_>,
        columns: Range<usize>,
        of_row: &mut OfRow,
    ) {
        let (steps, groups) = (source.k * V::X / 4, source.groups.in_row);
        (self.steps, self.groups) = (steps, groups);
        let blocks = columns.len().div_ceil(LANES);
        // Only growing, so that memory is not cleared for each panel.
        self.values.resize(self.values.len().max(blocks * steps), Line([0; 64]));
        self.scales.resize(self.scales.len().max(blocks * groups), [0.0; LANES]);
        self.biases.resize(self.biases.len().max(blocks * groups), [0.0; LANES]);
        // Bits of a code as it is loaded.
        let loaded = if is_spread(KIND) { 8 } else { bits(KIND) };
        let in_line = 512 / loaded * V::X / 4;
        let size_of_line = 64 * bits(KIND) / loaded;
        for (block, first) in columns.clone().step_by(LANES).enumerate() {
            let count = LANES.min(columns.end - first);
            let values = &mut self.values[block * steps..][..steps];
            for (at, to) in values.chunks_mut(in_line).enumerate() {
                let size = to.len() * size_of_line / in_line;
                let mut rows = [V::load(&[0; 64]); LANES];
                for i in 0..count {
                    let bytes = &source.row::<KIND>(first + i)[at * size_of_line..][..size];
                    let mut padded = [0; 64];
                    rows[i] = if is_spread(KIND) && size == size_of_line {
                        V::spread::<KIND>(bytes)
                    } else if let Some(line) = bytes.as_array() {
                        V::load(line)
                    } else {
                        padded[..size].copy_from_slice(bytes);
                        if is_spread(KIND) { V::spread::<KIND>(&padded) } else { V::load(&padded) }
                    };
                }
                let each = in_line / LANES;
                for (to, words) in to.chunks_mut(each).zip(V::transpose(rows)) {
                    for (to, codes) in to.iter_mut().zip(V::codes::<KIND>(words)) {
                        V::store(codes, to);
                    }
                }
            }
            let scales = &mut self.scales[block * groups..][..groups];
            let biases = &mut self.biases[block * groups..][..groups];
            for lane in 0..count {
                of_row.set::<V, KIND, FMA>(&source.groups, first + lane);
                for group in 0..groups {
                    scales[group][lane] = of_row.scales()[group];
                    biases[group][lane] = of_row.biases()[group];
                }
            }
        }
    }
}
