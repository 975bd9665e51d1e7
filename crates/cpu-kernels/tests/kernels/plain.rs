//! Random products and what they should be, computed one bit after the other in f64.

use std::ops::Range;

use cpu_kernels::{Dtype, Level, Packing, Problem, Weights, matmul_at, rounded_matmul_at};
use half::{bf16, f16};

/// A kind of weights: dense, or packed with a group size.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Dense(Dtype),
    Packed(Packing, usize),
}

impl Kind {
    /// 0 if dense.
    pub fn group_size(self) -> usize {
        match self {
            Kind::Dense(_) => 0,
            Kind::Packed(_, size) => size,
        }
    }
}

/// All kinds there are.
pub fn all_kinds() -> Vec<Kind> {
    let mut kinds: Vec<Kind> = [Dtype::F32, Dtype::F16, Dtype::Bf16].map(Kind::Dense).into();
    for bits in [2, 3, 4, 5, 6, 8] {
        for scales in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            kinds.extend(
                [16, 32, 64, 128].map(|size| Kind::Packed(Packing::Affine { bits, scales }, size)),
            );
        }
    }
    kinds.push(Kind::Packed(Packing::Mxfp4, 32));
    kinds.push(Kind::Packed(Packing::Mxfp8, 32));
    kinds.push(Kind::Packed(Packing::Nvfp4, 16));
    kinds
}

/// A product and room for its result.
pub struct Case {
    pub kind: Kind,
    pub dtype: Dtype,
    pub m: usize,
    /// Positions of a sequence among the rows.
    pub positions: usize,
    /// x may be rounded to 8 bits.
    pub rounded: bool,
    pub n: usize,
    pub k: usize,
    /// Each begins with one byte that does not belong to it, so that nothing is aligned.
    pub x: Vec<u8>,
    data: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
    pub out: Vec<u8>,
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

/// Between -1 and 1.
fn uniform(state: &mut u64) -> f32 {
    random(state) as f32 / (1u64 << 30) as f32 - 1.0
}

fn push(dtype: Dtype, to: &mut Vec<u8>, value: f32) {
    match dtype {
        Dtype::F32 => to.extend(value.to_le_bytes()),
        Dtype::F16 => to.extend(f16::from_f32(value).to_le_bytes()),
        Dtype::Bf16 => to.extend(bf16::from_f32(value).to_le_bytes()),
    }
}

fn load(dtype: Dtype, data: &[u8], index: usize) -> f32 {
    let at = index * dtype.size();
    match dtype {
        Dtype::F32 => f32::from_le_bytes(data[at..at + 4].try_into().expect("four")),
        Dtype::F16 => f16::from_le_bytes([data[at], data[at + 1]]).to_f32(),
        Dtype::Bf16 => bf16::from_le_bytes([data[at], data[at + 1]]).to_f32(),
    }
}

/// The elements of `data`.
pub fn values(dtype: Dtype, data: &[u8]) -> Vec<f32> {
    (0..data.len() / dtype.size()).map(|i| load(dtype, data, i)).collect()
}

impl Case {
    pub fn random(kind: Kind, dtype: Dtype, m: usize, n: usize, k: usize, seed: u64) -> Case {
        let mut s = seed;
        let empty = || vec![0xff];
        let (mut x, mut data, mut scales, mut biases) = (empty(), empty(), empty(), empty());
        (0..m * k).for_each(|_| push(dtype, &mut x, uniform(&mut s)));
        match kind {
            Kind::Dense(dtype) => (0..n * k).for_each(|_| push(dtype, &mut data, uniform(&mut s))),
            Kind::Packed(packing, group_size) => {
                // 0x7f and 0xff are no numbers in e4m3.
                let code = |s: &mut u64| match (random(s) as u8, packing) {
                    (0x7f | 0xff, Packing::Mxfp8) => 0x7e,
                    (code, _) => code,
                };
                data.extend((0..n * k / 8 * packing.bits()).map(|_| code(&mut s)));
                for _ in 0..n * k / group_size {
                    match packing {
                        Packing::Affine { bits, scales: dtype } => {
                            let scale = uniform(&mut s) / (1 << bits) as f32;
                            push(dtype, &mut scales, scale);
                            push(dtype, &mut biases, -scale * (1 << (bits - 1)) as f32);
                        }
                        Packing::Mxfp4 | Packing::Mxfp8 => {
                            scales.push(120 + (random(&mut s) % 8) as u8)
                        }
                        Packing::Nvfp4 => scales.push((random(&mut s) % 0x60) as u8),
                    }
                }
            }
        }
        Case {
            kind,
            dtype,
            m,
            positions: 1,
            rounded: false,
            n,
            k,
            x,
            data,
            scales,
            biases,
            out: vec![0; m * n * dtype.size()],
        }
    }

    /// A case with the weights of this one and only `rows` of its x.
    pub fn rows(&self, rows: Range<usize>) -> Case {
        let size = self.k * self.dtype.size();
        let x = self.x[rows.start * size..rows.end * size + 1].to_vec();
        let out = vec![0; rows.len() * self.n * self.dtype.size()];
        let (data, scales, biases) = (self.data.clone(), self.scales.clone(), self.biases.clone());
        Case {
            kind: self.kind,
            dtype: self.dtype,
            m: rows.len(),
            positions: self.positions,
            rounded: self.rounded,
            n: self.n,
            k: self.k,
            x,
            data,
            scales,
            biases,
            out,
        }
    }

    pub fn set_x(&mut self, index: usize, value: f32) {
        let mut bytes = Vec::new();
        push(self.dtype, &mut bytes, value);
        let size = self.dtype.size();
        self.x[1 + index * size..][..size].copy_from_slice(&bytes);
    }

    pub fn x_at(&self, index: usize) -> f64 {
        load(self.dtype, &self.x[1..], index).into()
    }

    pub fn weights(&self) -> Weights<'_> {
        match self.kind {
            Kind::Dense(dtype) => Weights::Dense { dtype, data: &self.data[1..] },
            Kind::Packed(packing, group_size) => Weights::Packed {
                packing,
                group_size,
                data: &self.data[1..],
                scales: &self.scales[1..],
                biases: &self.biases[1..],
            },
        }
    }

    pub fn run(&mut self, level: Level) {
        let mut out = std::mem::take(&mut self.out);
        let Case { m, n, k, dtype, .. } = *self;
        let (x, weights) = (&self.x[1..], self.weights());
        let positions = self.positions;
        let problem = Problem { m, positions, n, k, dtype, x, weights, out: &mut out };
        let product = if self.rounded { rounded_matmul_at } else { matmul_at };
        product(level, problem).expect("the sizes fit");
        self.out = out;
    }

    pub fn values(&self) -> Vec<f32> {
        values(self.dtype, &self.out)
    }

    /// Runs every level and compares. The distance is relative to the sum of the absolute
    /// products, which is what rounding in a sum is proportional to.
    pub fn check(&mut self) {
        let rows: Vec<Vec<f64>> =
            (0..self.n).map(|row| (0..self.k).map(|i| self.weight(row, i)).collect()).collect();
        let xs = [false, true].map(|rounded| {
            (0..self.m).map(|row| self.row_of_x(row, rounded)).collect::<Vec<Vec<f64>>>()
        });
        let lost: Vec<Vec<f64>> = (0..self.m).map(|row| self.lost_of_x(row)).collect();
        for (&level, positions) in
            Level::available().iter().flat_map(|level| [(level, 1), (level, 64)])
        {
            self.positions = positions;
            self.out.fill(0xff);
            self.run(level);
            // Steps in bf16 wait for memory either way.
            let is_plain = level >= Level::Avx512 && positions < 16 && self.dtype == Dtype::Bf16;
            let xs = &xs[usize::from(self.rounded && !is_plain)];
            // Tiles round scaled weights to bf16.
            let affine = matches!(self.kind, Kind::Packed(Packing::Affine { .. }, _));
            let tiles = level == Level::Amx && positions > 1 && self.dtype == Dtype::Bf16;
            let weights = if tiles && affine { 2f64.powi(-9) } else { 0.0 };
            for (i, value) in self.values().into_iter().enumerate() {
                let x = &xs[i / self.n];
                let (mut sum, mut size, mut words) = (0.0, 0.0, 0.0);
                for (j, w) in rows[i % self.n].iter().enumerate() {
                    let product = x[j] * w;
                    (sum, size) = (sum + product, size + product.abs());
                    words += lost[i / self.n][j] * w.abs();
                }
                // Rounding of the sum, and of the result to its type.
                let result = [0.0, 2f64.powi(-11), 2f64.powi(-8)][match self.dtype {
                    Dtype::F32 => 0,
                    Dtype::F16 => 1,
                    Dtype::Bf16 => 2,
                }];
                let bound = (SUM + weights) * size + words + result * sum.abs() + 1e-7;
                assert!(
                    (f64::from(value) - sum).abs() <= bound,
                    "{:?} {:?} {level:?} {positions} [{}, {}, {}]: element {i} is {value}, expected {sum} ± {bound}",
                    self.kind,
                    self.dtype,
                    self.m,
                    self.n,
                    self.k,
                );
            }
        }
    }

    /// Row `row` of x as it is multiplied, `rounded` or not.
    fn row_of_x(&self, row: usize, rounded: bool) -> Vec<f64> {
        let x = &self.x[1 + row * self.k * self.dtype.size()..];
        let values: Vec<f32> = (0..self.k).map(|j| load(self.dtype, x, j)).collect();
        let size = match self.kind {
            Kind::Packed(Packing::Affine { .. } | Packing::Mxfp4, size) => size,
            _ => 0,
        };
        if !rounded || size == 0 {
            return values.into_iter().map(f64::from).collect();
        }
        let round = |group: &[f32]| {
            let largest = group.iter().fold(0f32, |most, value| most.max(value.abs()));
            let round = |value: &f32| f64::from((value * (127.0 / largest)).round_ties_even());
            group.iter().map(|value| round(value) * f64::from(largest / 127.0)).collect::<Vec<_>>()
        };
        values.chunks(size.min(64)).flat_map(round).collect()
    }

    /// The most that each value of row `row` of x loses as a whole number of 16 bits with its
    /// group's scale.
    fn lost_of_x(&self, row: usize) -> Vec<f64> {
        let x = &self.x[1 + row * self.k * self.dtype.size()..];
        let values: Vec<f32> = (0..self.k).map(|j| load(self.dtype, x, j)).collect();
        let packing = match self.kind {
            Kind::Packed(packing, _) if self.dtype != Dtype::F32 => packing,
            _ => return vec![0.0; self.k],
        };
        if !matches!(packing, Packing::Affine { .. } | Packing::Mxfp4 | Packing::Nvfp4) {
            return vec![0.0; self.k];
        }
        let lost = |group: &[f32]| {
            let largest = group.iter().fold(0f32, |most, value| most.max(value.abs()));
            let step = f64::from(largest).log2().floor().exp2() / f64::from(1 << 14);
            let lost = |value: f64| (value - (value / step).round_ties_even() * step).abs();
            group.iter().map(|&value| lost(value.into())).collect::<Vec<_>>()
        };
        values.chunks(self.kind.group_size().min(64)).flat_map(lost).collect()
    }

    pub fn weight(&self, row: usize, i: usize) -> f64 {
        let k = self.k;
        match self.kind {
            Kind::Dense(dtype) => f64::from(load(dtype, &self.data[1..], row * k + i)),
            Kind::Packed(packing, group_size) => {
                let group = row * (k / group_size) + i / group_size;
                let bits = packing.bits();
                let first = (row * k + i) * bits;
                let bit = |at: usize| u32::from(self.data[1 + at / 8] >> (at % 8) & 1);
                let code = (0..bits).map(|b| bit(first + b) << b).sum::<u32>();
                let scale = || u32::from(self.scales[1 + group]);
                match packing {
                    Packing::Affine { scales: dtype, .. } => {
                        f64::from(code) * f64::from(load(dtype, &self.scales[1..], group))
                            + f64::from(load(dtype, &self.biases[1..], group))
                    }
                    Packing::Mxfp4 => e2m1(code) * (f64::from(scale()) - 127.0).exp2(),
                    Packing::Mxfp8 => e4m3(code) * (f64::from(scale()) - 127.0).exp2(),
                    Packing::Nvfp4 => e2m1(code) * e4m3(scale()),
                }
            }
        }
    }
}

/// Relative error of a sum of products in f32, of any order, of a few thousand terms.
const SUM: f64 = 2e-6;

fn e2m1(code: u32) -> f64 {
    let value = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][(code & 7) as usize];
    if code & 8 == 0 { value } else { -value }
}

fn e4m3(code: u32) -> f64 {
    let (exponent, mantissa) = ((code >> 3 & 15) as i32, f64::from(code & 7) / 8.0);
    let value = match exponent {
        0 => mantissa * (-6f64).exp2(),
        _ => (1.0 + mantissa) * f64::from(exponent - 7).exp2(),
    };
    if code & 0x80 == 0 { value } else { -value }
}
