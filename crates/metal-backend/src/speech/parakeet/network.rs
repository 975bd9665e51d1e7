//! The encoder of Parakeet on the thread that owns its arrays: a Fast Conformer
//! (<https://arxiv.org/abs/2305.05084>), from features to states.

use mlx_ffi::ops::Padding;
use mlx_ffi::{Array, Dtype, Result, ops};
use sound::Frames;

use crate::kernels::{Activation, Kernels};
use crate::layers::{LayerNorm, Linear, Pace};

/// Queries that are computed at once: scores take no more than these times all places.
const QUERIES: i32 = 256;

/// An encoder.
pub(super) struct Encoder {
    pub entry: Entry,
    /// The factor of the entry's states.
    pub input_scale: f32,
    pub blocks: Vec<Block>,
    pub activation: Activation,
    pub kernels: Kernels,
    pub dtype: Dtype,
}

/// Convolutions with a stride of 2 over frames and bands.
pub(super) struct Entry {
    /// `[channels, 3, 3, 1]`, and its bias.
    pub first: [Array; 2],
    /// Each channel by itself, `[9, channels]` with its bias; then all channels of a place.
    pub others: Vec<([Array; 2], Linear)>,
    /// Of channels, then bands of a place.
    pub projection: Linear,
}

/// A block of a conformer.
pub(super) struct Block {
    /// Before the first network, attention, the convolution, the second network, and behind all.
    pub norms: [LayerNorm; 5],
    pub networks: [[Linear; 2]; 2],
    pub attention: Attention,
    pub convolution: Convolution,
}

/// Attention to all places, with scores by how far these are away.
pub(super) struct Attention {
    pub heads: i32,
    pub qkv: [Linear; 3],
    pub out: Linear,
    /// The keys of distances.
    pub positions: Linear,
    /// Added to queries of what is there, and of how far it is: `[heads, 1, head_dim]`.
    pub biases: [Array; 2],
}

/// A gated convolution of each value over the places around its own, normed by known means.
pub(super) struct Convolution {
    /// To values and their gates.
    pub start: Linear,
    /// `[taps, hidden]`.
    pub taps: Array,
    pub bias: Option<Array>,
    /// Mean, variance, weight and bias of the norm, `[hidden]` each.
    pub norm: [Array; 4],
    pub end: Linear,
}

/// Each second row and column of `x`, `[1, rows, columns, channels]`, with those around it.
fn halved(x: &Array, [taps, bias]: &[Array; 2]) -> Result<Array> {
    let [_, rows, columns, channels] = x.dims()?;
    let half = |size: i32| (size - 1).div_euclid(2) + 1;
    let (down, across) = (half(rows), half(columns));
    // A row and a column before, and so many behind that all are pairs.
    let x = padded(x, 1, [1, 2 * down + 1 - rows])?;
    let x = padded(&x, 2, [1, 2 * across + 1 - columns])?;
    let [_, rows, columns, _] = x.dims()?;
    let pairs = ops::reshape(&x, &[rows / 2, 2, columns / 2, 2, channels])?;
    let mut sum: Option<Array> = None;
    for tap in 0..9 {
        let (row, column) = (tap / 3, tap % 3);
        let part = ops::slice_axis(&pairs, 1, row % 2, row % 2 + 1)?;
        let part = ops::slice_axis(&part, 3, column % 2, column % 2 + 1)?;
        let part = ops::slice_axis(&part, 0, row / 2, row / 2 + down)?;
        let part = ops::slice_axis(&part, 2, column / 2, column / 2 + across)?;
        let weight = ops::slice_axis(taps, 0, tap, tap + 1)?;
        let part = ops::reshape(&part, &[1, down, across, channels])?;
        let part = ops::multiply(&part, &weight)?;
        sum = Some(match sum {
            None => part,
            Some(sum) => ops::add(&sum, &part)?,
        });
    }
    let sum = sum.ok_or_else(|| mlx_ffi::Error::new("a kernel has nine places"))?;
    ops::add(&sum, bias)
}

/// `x` with zeros before and behind it along `axis`.
fn padded(x: &Array, axis: i32, [before, behind]: [i32; 2]) -> Result<Array> {
    let zeros = |count: i32| {
        let mut shape = x.shape().to_vec();
        shape[axis as usize] = count;
        ops::zeros(&shape, x.dtype())
    };
    let (before, behind) = (zeros(before)?, zeros(behind)?);
    let parts = [&before, x, &behind];
    let parts = parts.into_iter().filter(|part| part.size() > 0).collect::<Vec<_>>();
    ops::concatenate(&parts, axis)
}

impl Entry {
    /// `[1, places, hidden]`.
    fn forward(&self, frames: &Frames, dtype: Dtype) -> Result<Array> {
        let shape = [1, frames.count as i32, frames.bands as i32, 1];
        let x = ops::astype(&Array::passing_f32(&frames.values, &shape)?, dtype)?;
        let [kernel, bias] = &self.first;
        let x = ops::add(&ops::conv2d(&x, kernel, 2, Padding::around(1))?, bias)?;
        let mut x = Activation::Relu.of(&x)?;
        for (own, all) in &self.others {
            x = Activation::Relu.of(&all.forward(&halved(&x, own)?)?)?;
        }
        let [_, places, bands, channels] = x.dims()?;
        let x = ops::reshape(&ops::swap_axes(&x, 2, 3)?, &[1, places, bands * channels])?;
        self.projection.forward(&x)
    }

    /// The most values that are held at once for so many frames of so many bands.
    fn values(&self, frames: u64, bands: u64) -> u64 {
        let channels = self.first[1].size() as u64;
        frames.div_ceil(2) * bands.div_ceil(2) * (9 + 4 * channels)
    }
}

impl Attention {
    /// `[1, n, hidden]` to the same; `encoded` are the distances' vectors, `[1, 2 n - 1, hidden]`,
    /// from the farthest place before on.
    fn forward(&self, x: &Array, encoded: &Array) -> Result<Array> {
        let [_, n, size] = x.dims()?;
        let head_dim = size / self.heads;
        let by_heads = |linear: &Linear, x: &Array| -> Result<Array> {
            let all = linear.forward(x)?;
            let [_, n, _] = all.dims()?;
            ops::swap_axes(&ops::reshape(&all, &[n, self.heads, head_dim])?, 0, 1)
        };
        let [q, k, v] = &self.qkv;
        let (q, k, v) = (by_heads(q, x)?, by_heads(k, x)?, by_heads(v, x)?);
        let keys = ops::swap_axes(&k, 1, 2)?;
        let distances = ops::swap_axes(&by_heads(&self.positions, encoded)?, 1, 2)?;
        let scale = Array::scalar((head_dim as f32).sqrt().recip(), x.dtype())?;
        let mut made = Vec::new();
        for first in (0..n).step_by(QUERIES as usize) {
            let count = QUERIES.min(n - first);
            let q = ops::slice_axis(&q, 1, first, first + count)?;
            let q = |bias: &Array| ops::add(&q, bias);
            let by_content = ops::matmul(&q(&self.biases[0])?, &keys)?;
            // The distances of the first of these queries to the last place, and so on.
            let from = n - first - count;
            let distances = ops::slice_axis(&distances, 2, from, from + n + count - 1)?;
            let by_distance = ops::matmul(&q(&self.biases[1])?, &distances)?;
            let by_distance = ops::slice_axis(&shifted(&by_distance)?, 2, 0, n)?;
            let scores = ops::multiply(&ops::add(&by_content, &by_distance)?, &scale)?;
            let weights = ops::softmax(&scores, -1, true)?;
            let of_block = ops::matmul(&weights, &v)?;
            of_block.eval()?;
            made.push(of_block);
        }
        let made = ops::concatenate(&made.iter().collect::<Vec<_>>(), 1)?;
        self.out.forward(&ops::reshape(&ops::swap_axes(&made, 0, 1)?, &[1, n, size])?)
    }
}

/// Scores by distance, `[heads, l, distances]`, moved so that each query's begin with the one to
/// its first key (<https://arxiv.org/abs/1901.02860>, appendix B).
fn shifted(x: &Array) -> Result<Array> {
    let [heads, l, distances] = x.dims()?;
    let x = padded(x, 2, [1, 0])?;
    let x = ops::reshape(&x, &[heads, l * (distances + 1)])?;
    let x = ops::slice_axis(&x, 1, l, l * (distances + 1))?;
    ops::reshape(&x, &[heads, l, distances])
}

impl Convolution {
    fn forward(&self, x: &Array, activation: Activation, kernels: Kernels) -> Result<Array> {
        const EPS: f32 = 1e-5;
        let [_, n, size] = x.dims()?;
        let both = self.start.forward(x)?;
        let part = |at: i32| ops::slice_axis(&both, 2, at * size, (at + 1) * size);
        let gated = ops::multiply(&part(0)?, &ops::sigmoid(&part(1)?)?)?;
        let [taps, _] = self.taps.dims()?;
        let around = (taps - 1) / 2;
        let gated = padded(&gated, 1, [around; 2])?;
        let mut sum: Option<Array> = None;
        for tap in 0..taps {
            let weight = ops::slice_axis(&self.taps, 0, tap, tap + 1)?;
            let of_tap = ops::multiply(&ops::slice_axis(&gated, 1, tap, tap + n)?, &weight)?;
            sum = Some(match sum {
                None => of_tap,
                Some(sum) => ops::add(&sum, &of_tap)?,
            });
        }
        let sum = sum.ok_or_else(|| mlx_ffi::Error::new("a convolution has no taps"))?;
        let sum = self.bias.as_ref().map_or_else(|| sum.share(), |bias| ops::add(&sum, bias))?;
        let [mean, variance, weight, bias] = &self.norm;
        let root = ops::sqrt(&ops::add(variance, &Array::scalar(EPS, variance.dtype())?)?)?;
        let scale = ops::divide(weight, &root)?;
        let normed = ops::add(&ops::multiply(&ops::subtract(&sum, mean)?, &scale)?, bias)?;
        let normed = ops::astype(&normed, x.dtype())?;
        self.end.forward(&kernels.activated(activation, &normed)?)
    }
}

impl Encoder {
    /// `frames` to states, `[1, places, hidden]`, each of eight frames. `goes_on` is asked before
    /// each block.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn forward(&self, frames: &Frames, goes_on: &dyn Fn() -> bool) -> Result<Option<Array>> {
        let x = self.entry.forward(frames, self.dtype)?;
        let mut x = ops::multiply(&x, &Array::scalar(self.input_scale, x.dtype())?)?;
        let [_, n, size] = x.dims()?;
        let encoded = ops::astype(&encoded(n, size)?, x.dtype())?;
        let mut pace = Pace::default();
        for block in &self.blocks {
            if !goes_on() {
                return Ok(None);
            }
            x = self.block(block, &x, &encoded)?;
            match self.kernels {
                Kernels::Cpu(_) => x.eval()?,
                _ => pace.after(&[&x])?,
            }
        }
        Ok(Some(x))
    }

    fn block(&self, block: &Block, x: &Array, encoded: &Array) -> Result<Array> {
        let [first, attention, convolution, second, last] = &block.norms;
        let network = |x: &Array, norm: &LayerNorm, [into, out]: &[Linear; 2]| -> Result<Array> {
            let h = self.kernels.activated(self.activation, &into.forward(&norm.forward(x)?)?)?;
            let half = Array::scalar(0.5, x.dtype())?;
            ops::add(x, &ops::multiply(&out.forward(&h)?, &half)?)
        };
        let x = network(x, first, &block.networks[0])?;
        let x = ops::add(&x, &block.attention.forward(&attention.forward(&x)?, encoded)?)?;
        let normed = convolution.forward(&x)?;
        let x = ops::add(&x, &block.convolution.forward(&normed, self.activation, self.kernels)?)?;
        last.forward(&network(&x, second, &block.networks[1])?)
    }

    /// The most values that are held at once for so many frames.
    pub fn values(&self, frames: u64, bands: u64) -> u64 {
        let Some(block) = self.blocks.first() else { return 0 };
        let places = frames.div_ceil(8);
        let hidden = block.norms[0].weight.size() as u64;
        let scores = 5 * block.attention.heads as u64 * QUERIES as u64 * 2 * places;
        let of_block = places * (14 * hidden) + scores;
        self.entry.values(frames, bands).max(of_block)
    }
}

/// The vectors of distances from `n - 1` down to `-(n - 1)`, `[1, 2 n - 1, size]`.
fn encoded(n: i32, size: i32) -> Result<Array> {
    let waves: Vec<f32> =
        (0..size / 2).map(|wave| 1.0 / 10_000f32.powf((2 * wave) as f32 / size as f32)).collect();
    let mut values = Vec::with_capacity(((2 * n - 1) * size) as usize);
    for distance in (1 - n..n).rev() {
        for wave in &waves {
            let angle = distance as f32 * wave;
            values.extend([angle.sin(), angle.cos()]);
        }
    }
    Array::from_f32(&values, &[1, 2 * n - 1, size])
}
