//! The weights of one side: which old pixels make a new one, and how much of each.

use std::f64::consts::PI;

/// The filter of a resize, with anti-aliasing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// A triangle, one pixel to each side.
    Bilinear,
    /// Keys' cubic with a = -0.5, two pixels to each side.
    Bicubic,
    /// The sinc under a window of three pixels to each side.
    Lanczos,
}

impl Filter {
    /// Pixels to each side, where the picture is not made smaller.
    fn support(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        match self {
            Self::Bilinear => (1.0 - x.abs()).max(0.0),
            Self::Bicubic => {
                let x = x.abs();
                if x < 1.0 {
                    ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    (((x - 5.0) * x + 8.0) * x - 4.0) * A
                } else {
                    0.0
                }
            }
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Self::Lanczos => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) }
}

/// Whose rounding of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Arithmetic {
    /// torchvision's for 8 bits on a CPU, as transformers' image processors use it.
    Torchvision,
    /// Pillow's, as diffusers uses it.
    Pillow,
}

/// Bits behind the point in Pillow: 32 less 8 of a level and 2 for sums above 1.
const PILLOW_BITS: u32 = 22;

/// The weights that make `len()` new pixels of a side.
pub struct Weights {
    /// For each new pixel the first old one, and how many.
    spans: Vec<(usize, usize)>,
    /// The weights of each new pixel, in rows of `stride`.
    weights: Vec<i32>,
    stride: usize,
    /// Bits behind the point.
    bits: u32,
}

impl Weights {
    /// The weights that [`Self::new`] makes, without making them; none for a side of 0.
    pub fn taps(from: u32, to: u32, filter: Filter) -> u64 {
        stride(support(from, to, filter)).saturating_mul(u64::from(to))
    }

    pub fn new(from: u32, to: u32, filter: Filter, arithmetic: Arithmetic) -> Self {
        let scale = f64::from(from) / f64::from(to);
        let inverse = 1.0 / scale.max(1.0);
        let support = support(from, to, filter);
        let stride = stride(support) as usize;

        let mut spans = Vec::with_capacity(to as usize);
        let mut exact = vec![0.0; stride * to as usize];
        for (pixel, row) in exact.chunks_exact_mut(stride).enumerate() {
            let centre = scale * (pixel as f64 + 0.5);
            // Casts cut off towards 0, as they do in C; below 0 they give 0.
            let begin = (centre - support + 0.5) as usize;
            let end = ((centre + support + 0.5) as usize).min(from as usize);
            let count = end.saturating_sub(begin).min(stride);
            for (tap, weight) in row[..count].iter_mut().enumerate() {
                *weight = filter.weight(((tap + begin) as f64 - centre + 0.5) * inverse);
            }
            let total: f64 = row.iter().sum();
            if total != 0.0 {
                row.iter_mut().for_each(|weight| *weight /= total);
            }
            spans.push((begin.min(from as usize), count));
        }

        let bits = match arithmetic {
            Arithmetic::Pillow => PILLOW_BITS,
            Arithmetic::Torchvision => bits_of_16(exact.iter().copied().fold(0.0, f64::max)),
        };
        let one = f64::from(1 << bits);
        let weights = exact.into_iter().map(|weight| (weight * one).round() as i32).collect();
        Self { spans, weights, stride, bits }
    }

    /// Returns true when the new pixels are the old ones, of which there are `from`.
    pub fn keep(&self, from: u32) -> bool {
        self.len() == from as usize
    }

    /// New pixels.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// For each new pixel the first old one, and the weights from there on.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[i32])> {
        let rows = self.weights.chunks_exact(self.stride);
        self.spans.iter().zip(rows).map(|((begin, count), row)| (*begin, &row[..*count]))
    }

    /// One half: where a sum begins, so that cutting off rounds.
    pub fn half(&self) -> i32 {
        1 << (self.bits - 1)
    }

    /// The level of a sum.
    pub fn level(&self, sum: i32) -> u8 {
        (sum >> self.bits).clamp(0, 255) as u8
    }
}

/// Old pixels to each side of a new one.
fn support(from: u32, to: u32, filter: Filter) -> f64 {
    filter.support() * (f64::from(from) / f64::from(to)).max(1.0)
}

/// Old pixels that a new one is made of at most.
fn stride(support: f64) -> u64 {
    (support.ceil() as u64).saturating_mul(2).saturating_add(1)
}

/// The most bits behind the point with which the largest weight fits 16 bits with its sign; 22 at
/// most.
fn bits_of_16(largest: f64) -> u32 {
    (0..22)
        .find(|bits| (0.5 + largest * f64::from(1 << (bits + 1))) as i32 >= 1 << 15)
        .unwrap_or(22)
}
