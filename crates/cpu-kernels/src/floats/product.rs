//! Products of floats with weights that become floats.

use std::ops::Range;

use super::chunk::{Chunk, blocks, chains, set, vectors};
use super::codes::chunk_size;
use super::groups::{Groups, OfRow};
use super::lanes::Lanes;
use super::sizes::{CHAINS, CHUNK, STEPS, W_TILE};
use crate::kind::{bits, is_dense};
use crate::output::Output;
use crate::prefetch::prefetch;

/// Rows of x up to which weights stay in registers.
pub(super) const FEW: usize = 4;

/// How many bytes ahead of the weights at hand memory is asked for more.
const AHEAD: usize = 2048;

/// Rows of x, and of weights, that are multiplied with each other at a time: a sum for each pair,
/// and what they are made of, fit in sixteen registers.
const X_TILE: usize = 3;

/// Rows of x that pass a panel together: their share of `DEPTH` stays in the second-level cache.
const X_BLOCK: usize = 63;

/// The largest chunk, of f32.
pub(super) const MAX_CHUNK_SIZE: usize = 4 * CHUNK;

/// Buffers of a thread, kept from product to product.
#[derive(Default)]
pub(super) struct Scratch {
    /// Rows of weights.
    panel: Vec<Chunk>,
    /// Results of a block of x, four columns in each.
    totals: Vec<[f32; W_TILE]>,
    groups: OfRow,
}

/// A product whose sizes were checked.
pub(super) struct Product<'a> {
    /// Rows of x.
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) x: &'a [Chunk],
    pub(super) data: &'a [u8],
    /// Of packed weights.
    pub(super) groups: Option<Groups<'a>>,
    pub(super) out: &'a Output<'a>,
}

impl Product<'_> {
    /// Chunks in a row.
    pub(super) fn chunks(&self) -> usize {
        self.k.div_ceil(CHUNK)
    }

    /// Row `i` of x.
    fn row(&self, i: usize) -> &[Chunk] {
        &self.x[i * self.chunks()..][..self.chunks()]
    }

    /// Columns `columns` of all rows.
    #[inline(always)]
    pub(super) fn columns<V: Lanes, const KIND: u8>(
        &self,
        columns: Range<usize>,
        scratch: &mut Scratch,
    ) {
        match self.m {
            1 => self.few::<V, KIND, 1>(columns, scratch),
            2 => self.few::<V, KIND, 2>(columns, scratch),
            3 => self.few::<V, KIND, 3>(columns, scratch),
            FEW => self.few::<V, KIND, FEW>(columns, scratch),
            _ => self.many::<V, KIND>(columns, scratch),
        }
    }

    /// Columns `columns` for the only `M` rows of x, unpacking in registers.
    #[inline(always)]
    fn few<V: Lanes, const KIND: u8, const M: usize>(
        &self,
        columns: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let x: [&[Chunk]; M] = std::array::from_fn(|i| self.row(i));
        let groups = &mut scratch.groups;
        self.prepare(groups);
        let mut padded = [0; MAX_CHUNK_SIZE];
        for first in columns.clone().step_by(4) {
            let count = 4.min(columns.end - first);
            let mut totals = [[0.0; 4]; M];
            for j in 0..count {
                let row = self.weights_of::<V, KIND>(first + j, groups);
                for block in blocks(self.chunks()) {
                    let x = x.map(|x| chains(&x[block.clone()]));
                    let mut dots = [[V::start(); CHAINS]; M];
                    for chunk in 0..block.len() {
                        let weights = row.chunk::<V, KIND>(block.start + chunk, &mut padded);
                        for i in 0..M {
                            for (chain, dot) in dots[i].iter_mut().enumerate() {
                                let weights = [weights[chain], weights[chain + CHAINS]];
                                *dot = V::add_products(*dot, &x[i][chain][chunk], weights);
                            }
                        }
                    }
                    for i in 0..M {
                        let [a, b, c, d] = dots[i];
                        let [a, b, c, d] = [V::end(a), V::end(b), V::end(c), V::end(d)];
                        let sum = a.add(b).add(c).add(d);
                        totals[i][j] += V::sums([sum, V::zero(), V::zero(), V::zero()])[0];
                    }
                }
            }
            for (i, totals) in totals.iter().enumerate() {
                // SAFETY: a unit of work has columns of its own, and is claimed by one thread.
                unsafe { self.out.store(i, first, &totals[..count]) };
            }
        }
    }

    /// Columns `columns` for any number of rows of x, each row of weights unpacked once.
    #[inline(always)]
    fn many<V: Lanes, const KIND: u8>(&self, columns: Range<usize>, scratch: &mut Scratch) {
        let (chunks, Scratch { panel, totals, groups }) = (self.chunks(), scratch);
        self.prepare(groups);
        let mut padded = [0; MAX_CHUNK_SIZE];
        // Only growing, so that memory is not cleared for each panel.
        panel.resize(panel.len().max(columns.len() * chunks), Chunk::ZERO);
        for (row, to) in columns.clone().zip(panel.chunks_exact_mut(chunks)) {
            let row = self.weights_of::<V, KIND>(row, groups);
            for block in blocks(chunks) {
                for chunk in 0..block.len() {
                    let weights = row.chunk::<V, KIND>(block.start + chunk, &mut padded);
                    set(&mut to[block.clone()], chunk, weights);
                }
            }
        }
        let width = columns.len().div_ceil(W_TILE);
        for first in (0..self.m).step_by(X_BLOCK) {
            let rows = first..self.m.min(first + X_BLOCK);
            totals.clear();
            totals.resize(rows.len() * width, [0.0; W_TILE]);
            for chunks in blocks(chunks) {
                self.block::<V>(&rows, &chunks, (columns.len(), panel), totals);
            }
            for (row, totals) in rows.zip(totals.chunks_exact(width)) {
                let totals = &totals.as_flattened()[..columns.len()];
                // SAFETY: a unit of work has columns of its own, and is claimed by one thread.
                unsafe { self.out.store(row, columns.start, totals) };
            }
        }
    }

    /// Adds to `totals` what chunks `chunks` of rows `rows` of x and of a panel of `height` rows
    /// make.
    #[inline(always)]
    fn block<V: Lanes>(
        &self,
        rows: &Range<usize>,
        chunks: &Range<usize>,
        (height, panel): (usize, &[Chunk]),
        totals: &mut [[f32; W_TILE]],
    ) {
        let width = height.div_ceil(W_TILE);
        for j in 0..width {
            // A missing row repeats the last one.
            let w: [&[Chunk]; W_TILE] = std::array::from_fn(|i| {
                let row = (j * W_TILE + i).min(height - 1);
                &panel[row * self.chunks()..][chunks.clone()]
            });
            for first in rows.clone().step_by(X_TILE) {
                let totals = &mut totals[(first - rows.start) * width..];
                match rows.end - first {
                    1 => self.tile::<V, 1>((first, chunks), w, (j, width), totals),
                    2 => self.tile::<V, 2>((first, chunks), w, (j, width), totals),
                    _ => self.tile::<V, X_TILE>((first, chunks), w, (j, width), totals),
                }
            }
        }
    }

    /// `M` rows of x from row `first` on, times `w`, added to column `j` of `totals`, of `width`
    /// columns.
    #[inline(always)]
    fn tile<V: Lanes, const M: usize>(
        &self,
        (first, chunks): (usize, &Range<usize>),
        w: [&[Chunk]; W_TILE],
        (j, width): (usize, usize),
        totals: &mut [[f32; W_TILE]],
    ) {
        let x: [&[Chunk]; M] = std::array::from_fn(|i| &self.row(first + i)[chunks.clone()]);
        let (x, w) = (x.map(vectors), w.map(vectors));
        let length = chunks.len() * STEPS / CHAINS;
        let mut sums = [[V::zero(); W_TILE]; M];
        for chain in 0..CHAINS {
            let of = chain * length..(chain + 1) * length;
            let dots = V::dots::<M>(x.map(|x| &x[of.clone()]), w.map(|w| &w[of.clone()]));
            for i in 0..M {
                for j in 0..W_TILE {
                    sums[i][j] = if chain == 0 { dots[i][j] } else { sums[i][j].add(dots[i][j]) };
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            let sums = V::sums(*sums);
            for (total, sum) in totals[i * width + j].iter_mut().zip(sums) {
                *total += sum;
            }
        }
    }

    pub(super) fn prepare(&self, of_row: &mut OfRow) {
        if let Some(groups) = &self.groups {
            of_row.prepare(groups);
        }
    }

    /// Row `row` of the weights, whose groups are put into `groups`.
    #[inline(always)]
    pub(super) fn weights_of<'r, V: Lanes, const KIND: u8>(
        &'r self,
        row: usize,
        groups: &'r mut OfRow,
    ) -> Row<'r> {
        if let Some(of_matrix) = &self.groups {
            groups.set::<V>(of_matrix, row);
        }
        let size = self.k * bits(KIND) / 8;
        Row { bytes: &self.data[row * size..][..size], groups }
    }
}

/// A row of weights.
pub(super) struct Row<'a> {
    bytes: &'a [u8],
    /// Of packed weights.
    groups: &'a OfRow,
}

impl Row<'_> {
    /// Chunk `chunk`. What is after the row's end is finite: `padded` has zeros there.
    #[inline(always)]
    pub(super) fn chunk<V: Lanes, const KIND: u8>(
        &self,
        chunk: usize,
        padded: &mut [u8; MAX_CHUNK_SIZE],
    ) -> [V; STEPS] {
        let size = chunk_size(KIND);
        let rest = &self.bytes[chunk * size..];
        for line in 0..size.div_ceil(64) {
            // Rows follow each other, so this runs ahead into the next ones.
            prefetch(rest.as_ptr().wrapping_add(AHEAD + 64 * line));
        }
        let bytes = if rest.len() >= size {
            &rest[..size]
        } else {
            padded[..rest.len()].copy_from_slice(rest);
            &padded[..size]
        };
        if !is_dense(KIND) {
            let [scale, bias] = self.groups.of_chunk(chunk);
            return V::packed::<KIND>(bytes, scale, bias);
        }
        let mut values = [V::zero(); STEPS];
        for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(bits(KIND))) {
            *value = V::dense::<KIND>(bytes);
        }
        values
    }
}
