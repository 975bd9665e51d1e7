//! The scales and biases of groups, as floats.

use super::lanes::Lanes;
use super::sizes::CHUNK;
use crate::kind::{FROM_BF16, FROM_F16, FROM_F32, bits};
use crate::values::{E4M3, e8m0};
use crate::{Dtype, Packing};

/// The groups of a matrix of packed weights.
#[derive(Clone, Copy)]
pub(crate) struct Groups<'a> {
    pub(crate) packing: Packing,
    pub(crate) group_size: usize,
    /// Groups in a row of weights.
    pub(crate) in_row: usize,
    pub(crate) scales: &'a [u8],
    pub(crate) biases: &'a [u8],
}

/// The scales and biases of one row's groups; kept from row to row for their memory.
#[derive(Default)]
pub(crate) struct OfRow {
    scales: Vec<f32>,
    biases: Vec<f32>,
    /// The group in its chunk that each lane belongs to.
    of_lane: [u32; 8],
    in_two_chunks: usize,
}

impl OfRow {
    /// Makes room for a row's, and for the zeros of what a chunk has after the row's end.
    pub(crate) fn prepare(&mut self, groups: &Groups<'_>) {
        let Groups { group_size, in_row, .. } = *groups;
        for floats in [&mut self.scales, &mut self.biases] {
            floats.clear();
            floats.resize(in_row + CHUNK, 0.0);
        }
        self.of_lane = std::array::from_fn(|lane| (8 * lane / group_size) as u32);
        self.in_two_chunks = 2 * CHUNK / group_size;
    }

    /// Takes those of row `row`.
    #[inline(always)]
    pub(super) fn set<V: Lanes>(&mut self, groups: &Groups<'_>, row: usize) {
        let Groups { packing, in_row, scales, biases, .. } = *groups;
        let size = packing.scale_size();
        let bytes = row * in_row * size..(row + 1) * in_row * size;
        match packing {
            Packing::Affine { scales: dtype, .. } => {
                floats::<V>(dtype, &scales[bytes.clone()], &mut self.scales);
                floats::<V>(dtype, &biases[bytes], &mut self.biases);
            }
            Packing::Mxfp4 | Packing::Mxfp8 => {
                for (to, code) in self.scales.iter_mut().zip(&scales[bytes]) {
                    *to = e8m0(*code);
                }
            }
            Packing::Nvfp4 => {
                for (to, code) in self.scales.iter_mut().zip(&scales[bytes]) {
                    *to = E4M3[usize::from(*code)];
                }
            }
        }
    }

    /// [`set`](Self::set) with the instructions of AVX2 if `FMA`.
    #[inline(always)]
    pub(crate) fn set_at<const FMA: bool>(&mut self, groups: &Groups<'_>, row: usize) {
        #[cfg(target_arch = "x86_64")]
        if FMA {
            return self.set::<super::avx2::Floats>(groups, row);
        }
        self.set::<super::plain::Floats<FMA>>(groups, row);
    }

    /// The scales, and the zeros after them.
    pub(crate) fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// The biases, and the zeros after them.
    pub(crate) fn biases(&self) -> &[f32] {
        &self.biases
    }

    /// The scales and the biases.
    pub(crate) fn both(&mut self) -> (&mut [f32], &mut [f32]) {
        (&mut self.scales, &mut self.biases)
    }

    /// Each lane's scale and bias in chunk `chunk`.
    #[inline(always)]
    pub(super) fn of_chunk<V: Lanes>(&self, chunk: usize) -> [V; 2] {
        let first = chunk * self.in_two_chunks / 2;
        // No closure: it would be compiled without the instructions of a level.
        let scales = self.scales[first..].first_chunk().expect("zeros follow");
        let biases = self.biases[first..].first_chunk().expect("zeros follow");
        [V::choose(scales, &self.of_lane), V::choose(biases, &self.of_lane)]
    }
}

/// The elements of `data`, at the beginning of `to`.
#[inline(always)]
fn floats<V: Lanes>(dtype: Dtype, data: &[u8], to: &mut [f32]) {
    match dtype {
        Dtype::F32 => floats_of::<V, FROM_F32>(data, to),
        Dtype::F16 => floats_of::<V, FROM_F16>(data, to),
        Dtype::Bf16 => floats_of::<V, FROM_BF16>(data, to),
    }
}

#[inline(always)]
fn floats_of<V: Lanes, const KIND: u8>(data: &[u8], to: &mut [f32]) {
    let size = bits(KIND);
    for (to, bytes) in to.as_chunks_mut::<8>().0.iter_mut().zip(data.chunks(size)) {
        let mut padded = [0; 32];
        let bytes = if bytes.len() == size {
            bytes
        } else {
            padded[..bytes.len()].copy_from_slice(bytes);
            &padded[..size]
        };
        V::dense::<KIND>(bytes).store(to);
    }
}
