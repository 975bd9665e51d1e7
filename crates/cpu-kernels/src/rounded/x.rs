//! Rows of x, rounded to 8 or 16 bits.

use super::lanes::{CHUNK, LANES, Line};
use crate::kind::{Kind, bits};
use crate::level::{Kernel, run_at};
use crate::pool::{Parts, run};
use crate::values::widen;
use crate::{Dtype, Level};

/// Chunks whose sums are brought together where x is split.
pub(super) const QUAD: usize = 4;

/// Twice the values of four-bit floats, and 12.
pub(super) const FP4_CODES: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// The size of the groups of x that share a scale.
pub(super) fn group_of(group_size: usize) -> usize {
    group_size.min(64)
}

/// The form of weights and of their panel that x is rounded for.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) kind: Kind,
    /// Of the weights.
    pub(super) group_size: usize,
    /// Set for prompts: columns stand beside each other in a panel.
    pub(super) is_panel: bool,
    /// Bytes of a rounded value.
    pub(super) size: usize,
    /// Set where the lower bytes of a chunk's values come before the upper ones, and scales are for
    /// the lanes of [`QUAD`] chunks.
    pub(super) is_split: bool,
}

impl Form {
    /// The vectors of scales of [`QUAD`] chunks.
    pub(super) fn parts(self) -> usize {
        if self.group_size == 16 { 2 } else { 1 }
    }

    /// The index, in its chunk, of each value in the order of storage.
    fn order(self) -> [u8; CHUNK] {
        std::array::from_fn(|i| {
            let of_pairs = self.size == 2 && !self.is_split;
            let at = match (bits(self.kind), self.is_panel) {
                (2..=7, false) if self.is_split && bits(self.kind) != 4 => {
                    i % 64 / 4 * 8 + i / 64 * 4 + i % 4
                }
                (4, true) if of_pairs => i / 8 * 8 + i % 8 / 2 + i % 2 * 4,
                (4, false) if of_pairs => i % 32 * 4 + i / 32,
                (_, true) if of_pairs => i / 4 * 4 + i % 4 / 2 + i % 2 * 2,
                (_, false) if of_pairs => place_of_byte(i % 32 * 2 + i / 32 % 2, i / 64),
                (4, true) => i / 8 * 8 + i % 4 * 2 + i / 4 % 2,
                (4, false) => i % 64 * 2 + i / 64,
                (_, true) => i,
                (_, false) => place_of_byte(i % 64, i / 64),
            };
            at as u8
        })
    }
}

/// The code that steps have in byte `byte` of the first or second vector of a chunk of 8 bits each.
fn place_of_byte(byte: usize, vector: usize) -> usize {
    first_of_lane(8, byte / 4) + vector * 4 + byte % 4
}

/// One code of each lane's group, where the sums of [`QUAD`] chunks lie in `parts` vectors.
pub(super) fn codes_of_quad(parts: usize) -> [usize; LANES] {
    std::array::from_fn(|lane| match parts {
        1 => lane % 4 * CHUNK + lane / 4 * 32,
        _ => lane / 2 % 2 * CHUNK + lane / 4 * 32 + lane % 2 * 16,
    })
}

/// The first of the eight neighbours of a chunk that steps have in lane `lane`.
pub(super) fn first_of_lane(kind: Kind, lane: usize) -> usize {
    match bits(kind) {
        4 => 8 * lane,
        _ => lane / 4 * 16 + lane / 2 % 2 * 64 + lane % 2 * 8,
    }
}

/// Rows of x; kept from product to product for their memory.
#[derive(Default)]
pub(super) struct X {
    /// `[rows, lines]`
    values: Vec<Line>,
    /// Of steps: a scale for each lane. `[rows, chunks]`, or where x is split
    /// `[rows, chunks / QUAD, parts]`
    of_lanes: Vec<[f32; LANES]>,
    /// Of prompts: a scale for each group. `[rows, groups]`
    scales: Vec<f32>,
    /// The sums over groups of the weights, with zeros behind. `[rows, sums_in_row]`
    sums: Vec<[f32; LANES]>,
    lines: usize,
    /// Of `of_lanes`, in a row.
    vectors: usize,
    groups: usize,
    sums_in_row: usize,
}

impl X {
    pub(super) fn row(&self, i: usize) -> &[Line] {
        &self.values[i * self.lines..][..self.lines]
    }

    pub(super) fn of_lanes(&self, i: usize) -> &[[f32; LANES]] {
        &self.of_lanes[i * self.vectors..][..self.vectors]
    }

    pub(super) fn scales(&self, i: usize) -> &[f32] {
        &self.scales[i * self.groups..][..self.groups]
    }

    pub(super) fn sums(&self, i: usize) -> &[[f32; LANES]] {
        &self.sums[i * self.sums_in_row..][..self.sums_in_row]
    }

    /// Rounds `x`, `[m, k]`.
    pub(super) fn set(
        &mut self,
        level: Level,
        (dtype, x): (Dtype, &[u8]),
        (m, k): (usize, usize),
        form: Form,
    ) {
        let (chunks, groups) = (k.div_ceil(CHUNK), k / group_of(form.group_size));
        let vectors = if form.is_split { chunks.div_ceil(QUAD) * form.parts() } else { chunks };
        let sums_in_row = (k / form.group_size).div_ceil(LANES);
        (self.vectors, self.groups, self.sums_in_row) = (vectors, groups, sums_in_row);
        let lines = chunks * form.size * CHUNK / 64;
        self.lines = lines;
        // Only growing, so that memory is not cleared for each product.
        self.values.resize(self.values.len().max(m * lines), Line([0; 64]));
        self.of_lanes.resize(self.of_lanes.len().max(m * vectors), [0.0; LANES]);
        self.scales.resize(self.scales.len().max(m * groups), 0.0);
        self.sums.resize(self.sums.len().max(m * sums_in_row), [0.0; LANES]);
        let (values, of_lanes) = (Parts::of(&mut self.values), Parts::of(&mut self.of_lanes));
        let (scales, sums) = (Parts::of(&mut self.scales), Parts::of(&mut self.sums));
        let order = form.order();
        run(m, &|row| {
            let size = k * dtype.size();
            // SAFETY: each unit has a row of its own.
            let rounding = unsafe {
                Rounding {
                    x: (dtype, &x[row * size..][..size]),
                    order: &order,
                    form,
                    values: values.part(row * lines..(row + 1) * lines),
                    of_lanes: of_lanes.part(row * vectors..(row + 1) * vectors),
                    scales: scales.part(row * groups..(row + 1) * groups),
                    sums: sums.part(row * sums_in_row..(row + 1) * sums_in_row),
                }
            };
            // SAFETY: the level was checked.
            unsafe { run_at(level, rounding) }
        });
    }
}

/// The rounding of a row.
struct Rounding<'a> {
    x: (Dtype, &'a [u8]),
    order: &'a [u8; CHUNK],
    form: Form,
    values: &'a mut [Line],
    of_lanes: &'a mut [[f32; LANES]],
    scales: &'a mut [f32],
    sums: &'a mut [[f32; LANES]],
}

impl Kernel for Rounding<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Rounding { x: (dtype, x), order, form, values, of_lanes, scales, sums } = self;
        let group = group_of(form.group_size);
        let firsts: [usize; LANES] = std::array::from_fn(|lane| first_of_lane(form.kind, lane));
        let sums = sums.as_flattened_mut();
        sums.fill(0.0);
        let quad = codes_of_quad(form.parts());
        if form.is_split {
            of_lanes.fill([0.0; LANES]);
        }
        for (chunk, bytes) in x.chunks(CHUNK * dtype.size()).enumerate() {
            let mut floats = [0.0; CHUNK];
            widen(dtype, bytes, &mut floats);
            let mut rounded = [0; CHUNK];
            for at in (0..CHUNK).step_by(group) {
                let (values, to) = (&floats[at..at + group], &mut rounded[at..at + group]);
                let (scale, sum) = round(values, to, form.size);
                let (to, of_lane, first) = match form.is_split {
                    false => (chunk, &firsts, at),
                    true => {
                        let in_vector = QUAD / form.parts();
                        (chunk / in_vector, &quad, chunk % in_vector * CHUNK + at)
                    }
                };
                for (to, of_lane) in of_lanes[to].iter_mut().zip(of_lane) {
                    if (first..first + group).contains(of_lane) {
                        *to = scale;
                    }
                }
                let place = chunk * CHUNK + at;
                if let Some(to) = scales.get_mut(place / group) {
                    *to = scale;
                    sums[place / form.group_size] += scale * sum as f32;
                }
            }
            let lines = form.size * CHUNK / 64;
            let to = &mut values[chunk * lines..][..lines];
            let ordered = order.map(|from| rounded[usize::from(from) % CHUNK]);
            if form.size == 1 {
                for (to, values) in to.iter_mut().zip(ordered.as_chunks::<64>().0) {
                    to.0 = values.map(|value| value as u8);
                }
            } else if form.is_split {
                let (lower, upper) = to.split_at_mut(2);
                let values = ordered.as_chunks::<64>().0;
                for (to, values) in lower.iter_mut().zip(values) {
                    to.0 = values.map(|value| value as u8);
                }
                for (to, values) in upper.iter_mut().zip(values) {
                    to.0 = values.map(|value| (value >> 8) as u8);
                }
            } else {
                for (to, values) in to.iter_mut().zip(ordered.as_chunks::<32>().0) {
                    for (to, value) in to.0.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                        *to = value.to_le_bytes();
                    }
                }
            }
        }
    }
}

/// The smallest largest value of a group that is not 0: twice the smallest whose scale is a normal
/// number.
const SMALLEST: f32 = f32::from_bits(16 << 23);

/// The scale of a group and the sum of its values, rounded to `size` bytes; NaN where a value is
/// not finite.
#[inline(always)]
fn round(values: &[f32], to: &mut [i16], size: usize) -> (f32, i32) {
    let mut largest = [0f32; 16];
    let mut undefined = [0f32; 16];
    for values in values.as_chunks::<16>().0 {
        for i in 0..16 {
            let size = values[i].abs();
            largest[i] = if size > largest[i] { size } else { largest[i] };
            undefined[i] += values[i] * 0.0;
        }
    }
    let undefined: f32 = undefined.iter().sum();
    let largest = largest.iter().fold(0f32, |a, &b| a.max(b));
    if undefined != 0.0 || undefined.is_nan() {
        to.fill(0);
        return (f32::NAN, 0);
    }
    if largest < SMALLEST {
        to.fill(0);
        return (0.0, 0);
    }
    let (scale, inverse) = match size {
        1 => (largest / 127.0, 127.0 / largest),
        _ => {
            // A power of two, so that what x has in 16 bits stays exact: the largest is between
            // 2^14 and 2^15.
            let exponent = largest.to_bits() >> 23;
            (f32::from_bits((exponent - 14) << 23), f32::from_bits((268 - exponent) << 23))
        }
    };
    let mut sum = 0;
    for (to, value) in to.iter_mut().zip(values) {
        // The last bits of the sum are the nearest whole number.
        *to = (value * inverse + 12_582_912.0).to_bits() as i16;
        sum += i32::from(*to);
    }
    (scale, sum)
}
