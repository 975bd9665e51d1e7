//! Products of rounded rows of x with codes.

use std::ops::Range;

use super::lanes::{CHUNK, LANES, Lanes, Line, RUN};
use super::panel::{Block, Panel};
use super::source::{OfRow, Source};
use super::x::{X, first_of_lane, group_of};
use crate::kind::bits;
use crate::output::Output;
use crate::prefetch::{Ahead, prefetch};

/// Rows of x that a row of weights in registers is multiplied with.
const FEW: usize = 4;

/// How many bytes ahead of the weights at hand memory is asked for more.
const AHEAD: usize = 2048;

/// Buffers of a thread, kept from product to product.
#[derive(Default)]
pub(super) struct Scratch {
    panel: Panel,
    of_row: OfRow,
}

/// A product whose sizes were checked.
pub(super) struct Product<'a> {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) x: &'a X,
    pub(super) source: Source<'a>,
    pub(super) out: &'a Output<'a>,
}

/// Rows of x that a row of weights is multiplied with.
struct Steps<'a, const M: usize> {
    x: [&'a [Line]; M],
    x_scales: [&'a [[f32; LANES]]; M],
    /// The group of each lane among those of a chunk.
    of_lane: [u32; LANES],
}

impl<const M: usize> Steps<'_, M> {
    /// Adds the products with chunk `chunk`, whose codes are `bytes`, to `totals`; `scales` are
    /// those from its first group on.
    // No closure: it would not be compiled for the level.
    #[inline(always)]
    fn add<V: Lanes, const KIND: u8>(
        &self,
        chunk: usize,
        bytes: &[u8],
        scales: &[f32],
        totals: &mut [V::Floats; M],
    ) {
        let codes = V::chunk::<KIND>(bytes);
        let scale = V::choose(scales.first_chunk().expect("zeros follow"), &self.of_lane);
        for i in 0..M {
            let x = &self.x[i][chunk * V::PARTS..][..V::PARTS];
            let mut run = V::begin::<KIND>(V::no_sums());
            for part in 0..V::PARTS {
                run = V::dot::<KIND>(run, codes[part], V::load(&x[part].0));
            }
            let dots = V::as_floats(V::end::<KIND>(V::no_sums(), run));
            let scale = V::mul(scale, V::floats(&self.x_scales[i][chunk]));
            totals[i] = V::mul_add(dots, scale, totals[i]);
        }
    }
}

impl Product<'_> {
    /// Columns `columns` of rows that are steps.
    #[inline(always)]
    pub(super) fn steps<V: Lanes, const KIND: u8, const FMA: bool>(
        &self,
        columns: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let of_row = &mut scratch.of_row;
        of_row.prepare(&self.source.groups);
        for first in (0..self.m).step_by(FEW) {
            match self.m - first {
                1 => self.few::<V, KIND, FMA, 1>(first, columns.clone(), of_row),
                2 => self.few::<V, KIND, FMA, 2>(first, columns.clone(), of_row),
                3 => self.few::<V, KIND, FMA, 3>(first, columns.clone(), of_row),
                _ => self.few::<V, KIND, FMA, FEW>(first, columns.clone(), of_row),
            }
        }
    }

    #[inline(always)]
    fn few<V: Lanes, const KIND: u8, const FMA: bool, const M: usize>(
        &self,
        first_x: usize,
        columns: Range<usize>,
        of_row: &mut OfRow,
    ) {
        let group_size = self.source.groups.group_size;
        let steps = Steps {
            x: std::array::from_fn(|i| self.x.row(first_x + i)),
            x_scales: std::array::from_fn(|i| self.x.of_lanes(first_x + i)),
            of_lane: std::array::from_fn(|lane| (first_of_lane(KIND, lane) / group_size) as u32),
        };
        let sums: [&[[f32; LANES]]; M] = std::array::from_fn(|i| self.x.sums(first_x + i));
        let chunks = self.source.k.div_ceil(CHUNK);
        // Groups divide chunks: a division for each would take as long as its products.
        let groups_of_chunk = CHUNK / group_size;
        let size = CHUNK / 8 * bits(KIND);
        for first in columns.clone().step_by(4) {
            let count = 4.min(columns.end - first);
            let mut results = [[0.0; 4]; M];
            for j in 0..count {
                of_row.set::<V, KIND, FMA>(&self.source.groups, first + j);
                let bytes = self.source.row::<KIND>(first + j);
                let scales = of_row.scales();
                let mut totals = [V::splat(0.0); M];
                let mut whole = bytes.chunks_exact(size);
                for (chunk, bytes) in whole.by_ref().enumerate() {
                    for line in 0..size.div_ceil(64) {
                        // Rows follow each other, so this runs ahead into the next ones.
                        prefetch(bytes.as_ptr().wrapping_add(AHEAD + 64 * line));
                    }
                    let scales = &scales[chunk * groups_of_chunk..];
                    steps.add::<V, KIND>(chunk, bytes, scales, &mut totals);
                }
                let rest = whole.remainder();
                if !rest.is_empty() {
                    let mut padded = [0; CHUNK];
                    padded[..rest.len()].copy_from_slice(rest);
                    let scales = &scales[(chunks - 1) * groups_of_chunk..];
                    steps.add::<V, KIND>(chunks - 1, &padded[..size], scales, &mut totals);
                }
                let biases = of_row.biases().as_chunks::<LANES>().0;
                for part in 0..sums[0].len() {
                    let bias = V::floats(&biases[part]);
                    for i in 0..M {
                        totals[i] = V::mul_add(bias, V::floats(&sums[i][part]), totals[i]);
                    }
                }
                for i in 0..M {
                    results[i][j] = V::total(totals[i]);
                }
            }
            for i in 0..M {
                // SAFETY: a unit of work has columns of its own, and is claimed by one thread.
                unsafe { self.out.store(first_x + i, first, &results[i][..count]) };
            }
        }
    }

    /// Columns `columns` of rows that are positions of prompts.
    #[inline(always)]
    pub(super) fn prompt<V: Lanes, const KIND: u8, const FMA: bool>(
        &self,
        columns: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let Scratch { panel, of_row } = scratch;
        of_row.prepare(&self.source.groups);
        panel.fill::<V, KIND, FMA>(&self.source, columns.clone(), of_row);
        if V::IS_WIDE {
            self.blocks::<V, KIND, 6, 2>(columns, panel);
        } else {
            self.blocks::<V, KIND, 4, 1>(columns, panel);
        }
    }

    #[inline(always)]
    fn blocks<V: Lanes, const KIND: u8, const M: usize, const C: usize>(
        &self,
        columns: Range<usize>,
        panel: &Panel,
    ) {
        let next = columns.end..self.n.min(columns.end + columns.len());
        let next = self.source.rows::<KIND>(next);
        let blocks = self.m.div_ceil(M) * columns.len().div_ceil(LANES * C);
        let groups = self.source.k / group_of(self.source.groups.group_size);
        let ahead = &mut Ahead::new(next, blocks * groups);
        for first in (0..self.m).step_by(M) {
            // Missing rows repeat the last one, whose results are written again.
            let rows: [usize; M] = std::array::from_fn(|i| self.m.min(first + i + 1) - 1);
            for (block, column) in columns.clone().step_by(LANES * C).enumerate() {
                let last = (columns.len() - 1) / LANES;
                let w: [Block<'_>; C] =
                    std::array::from_fn(|j| panel.block(last.min(block * C + j)));
                let totals = self.tile::<V, KIND, M, C>(rows, w, ahead);
                for (&row, totals) in rows.iter().zip(&totals) {
                    let count = (C * LANES).min(columns.end - column);
                    // SAFETY: a unit of work has columns of its own, and is claimed by one thread.
                    unsafe { self.out.store(row, column, &totals.as_flattened()[..count]) };
                }
            }
        }
    }

    #[inline(always)]
    fn tile<V: Lanes, const KIND: u8, const M: usize, const C: usize>(
        &self,
        rows: [usize; M],
        w: [Block<'_>; C],
        ahead: &mut Ahead<'_>,
    ) -> [[[f32; LANES]; C]; M] {
        let group_size = self.source.groups.group_size;
        let group = group_of(group_size);
        let each = group * V::X / 4;
        let groups = self.source.k / group;
        let mut x = [std::ptr::null::<i32>(); M];
        let mut x_scales: [&[f32]; M] = [&[]; M];
        let mut sums: [&[f32]; M] = [&[]; M];
        for i in 0..M {
            let row = self.x.row(rows[i]);
            assert!(row.len() * 64 >= groups * group * V::X);
            x[i] = row.as_ptr().cast();
            x_scales[i] = &self.x.scales(rows[i])[..groups];
            sums[i] = self.x.sums(rows[i]).as_flattened();
        }
        let mut totals = [[V::splat(0.0); C]; M];
        let shift = (group_size / group).trailing_zeros();
        for of in 0..groups {
            ahead.part();
            let mut dots = [[V::no_sums(); C]; M];
            let mut values: [&[[Line; RUN]]; C] = [&[]; C];
            for j in 0..C {
                values[j] = w[j].values[of * each..][..each].as_chunks().0;
            }
            for at in 0..each / RUN {
                let mut run = dots;
                for i in 0..M {
                    for j in 0..C {
                        run[i][j] = V::begin::<KIND>(dots[i][j]);
                    }
                }
                for step in 0..RUN {
                    let mut codes = [V::load(&[0; 64]); C];
                    for j in 0..C {
                        codes[j] = V::load(&values[j][at][step].0);
                    }
                    for i in 0..M {
                        let word = of * each + at * RUN + step;
                        // SAFETY: by the assertion the row has the word.
                        let x = V::word(unsafe { *x[i].add(word) });
                        for j in 0..C {
                            run[i][j] = V::dot::<KIND>(run[i][j], codes[j], x);
                        }
                    }
                }
                for i in 0..M {
                    for j in 0..C {
                        dots[i][j] = V::end::<KIND>(dots[i][j], run[i][j]);
                    }
                }
            }
            for j in 0..C {
                let scale = V::floats(&w[j].scales[of >> shift]);
                for i in 0..M {
                    let scale = V::mul(scale, V::splat(x_scales[i][of]));
                    totals[i][j] = V::mul_add(V::as_floats(dots[i][j]), scale, totals[i][j]);
                }
            }
        }
        for of in 0..self.source.groups.in_row {
            for j in 0..C {
                let bias = V::floats(&w[j].biases[of]);
                for i in 0..M {
                    totals[i][j] = V::mul_add(bias, V::splat(sums[i][of]), totals[i][j]);
                }
            }
        }
        let mut results = [[[0.0; LANES]; C]; M];
        for i in 0..M {
            for j in 0..C {
                V::put(totals[i][j], &mut results[i][j]);
            }
        }
        results
    }
}
