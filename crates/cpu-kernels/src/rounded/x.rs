//! Rows of x, rounded to 8 bits.

use super::lanes::{CHUNK, LANES, Line};
use crate::kind::{Kind, bits};
use crate::level::{Kernel, run_at};
use crate::pool::{Parts, run};
use crate::values::widen;
use crate::{Dtype, Level};

/// Twice the values of four-bit floats, and 12.
pub(super) const FP4_CODES: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// The size of the groups of x that share a scale.
pub(super) fn group_of(group_size: usize) -> usize {
    group_size.min(64)
}

/// What x is rounded for.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) kind: Kind,
    /// Of the weights.
    pub(super) group_size: usize,
    /// Whether columns stand beside each other.
    pub(super) is_panel: bool,
}

impl Form {
    /// Where each byte of a chunk comes from.
    fn order(self) -> [u8; CHUNK] {
        std::array::from_fn(|i| {
            let at = match (bits(self.kind), self.is_panel) {
                (4, true) => i / 8 * 8 + i % 4 * 2 + i / 4 % 2,
                (4, false) => i % 64 * 2 + i / 64,
                (_, true) => i,
                (_, false) => i % 64 / 16 * 32 + i / 64 * 16 + i % 16,
            };
            at as u8
        })
    }
}

/// Rows of x; kept from product to product for their memory.
#[derive(Default)]
pub(super) struct X {
    /// `[rows, chunks]`
    values: Vec<[Line; 2]>,
    /// Of steps: a scale for each lane. `[rows, chunks]`
    of_lanes: Vec<[f32; LANES]>,
    /// Of prompts: a scale for each group. `[rows, groups]`
    scales: Vec<f32>,
    /// The sums over groups of the weights, with zeros behind. `[rows, sums_in_row]`
    sums: Vec<[f32; LANES]>,
    chunks: usize,
    groups: usize,
    sums_in_row: usize,
}

impl X {
    pub(super) fn row(&self, i: usize) -> &[[Line; 2]] {
        &self.values[i * self.chunks..][..self.chunks]
    }

    pub(super) fn of_lanes(&self, i: usize) -> &[[f32; LANES]] {
        &self.of_lanes[i * self.chunks..][..self.chunks]
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
        let sums_in_row = (k / form.group_size).div_ceil(LANES);
        (self.chunks, self.groups, self.sums_in_row) = (chunks, groups, sums_in_row);
        // Only growing, so that memory is not cleared for each product.
        self.values.resize(self.values.len().max(m * chunks), [Line([0; 64]); 2]);
        self.of_lanes.resize(self.of_lanes.len().max(m * chunks), [0.0; LANES]);
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
                    values: values.part(row * chunks..(row + 1) * chunks),
                    of_lanes: of_lanes.part(row * chunks..(row + 1) * chunks),
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
    values: &'a mut [[Line; 2]],
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
        let sums = sums.as_flattened_mut();
        sums.fill(0.0);
        for (chunk, bytes) in x.chunks(CHUNK * dtype.size()).enumerate() {
            let mut floats = [0.0; CHUNK];
            widen(dtype, bytes, &mut floats);
            let mut rounded = [0; CHUNK];
            for at in (0..CHUNK).step_by(group) {
                let (scale, sum) = round(&floats[at..at + group], &mut rounded[at..at + group]);
                of_lanes[chunk][at / 8..(at + group) / 8].fill(scale);
                let place = chunk * CHUNK + at;
                if let Some(to) = scales.get_mut(place / group) {
                    *to = scale;
                    sums[place / form.group_size] += scale * sum as f32;
                }
            }
            let to = &mut values[chunk];
            for i in 0..CHUNK {
                to[i / 64].0[i % 64] = rounded[usize::from(order[i]) % CHUNK];
            }
        }
    }
}

/// The scale of a group and the sum of its rounded values; NaN where a value is not finite.
#[inline(always)]
fn round(values: &[f32], to: &mut [u8]) -> (f32, i32) {
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
    // Below, its reciprocal is infinite.
    if largest < 1e-36 {
        to.fill(0);
        return (0.0, 0);
    }
    let inverse = 127.0 / largest;
    let mut sum = 0;
    for (to, value) in to.iter_mut().zip(values) {
        // The last bits of the sum are the nearest whole number.
        let bits = (value * inverse + 12_582_912.0).to_bits();
        *to = bits as u8;
        sum += i32::from(bits as u8 as i8);
    }
    (largest / 127.0, sum)
}
