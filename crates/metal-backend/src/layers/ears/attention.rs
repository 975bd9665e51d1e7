//! Attention of places to those near them, in chunks, with scores by how far these are away.

use mlx_ffi::{Array, Dtype, Indices, Result, ops};

use crate::kernels::softplus;
use crate::layers::{ClippedLinear, Linear};

/// The places that a place attends to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarWindow {
    /// Places that are computed together.
    pub chunk: i32,
    /// Places before a chunk, and behind it, whose keys are beside its own.
    pub around: [i32; 2],
    /// A place sees those before it that are less than this far away, itself included, and those
    /// behind it that are less than that far away.
    pub sees: [i32; 2],
}

/// Attention in chunks.
#[derive(Debug)]
pub(crate) struct EarAttention {
    pub n_heads: i32,
    pub window: EarWindow,
    pub qkv: [ClippedLinear; 3],
    /// Each value of a head's queries has the factor `query_scale · ln(1 + exp(per_dim_scale))`.
    pub query_scale: f32,
    /// `[head_dim]`.
    pub per_dim_scale: Array,
    pub key_scale: f32,
    /// Scores are held between this and its negative.
    pub softcap: f32,
    /// The score of a place that is not seen.
    pub unseen: f32,
    pub positions: RelativePositions,
    pub out: ClippedLinear,
}

/// Keys of distances.
#[derive(Debug)]
pub(crate) struct RelativePositions {
    pub projection: Linear,
    /// The distances whose keys are there, from the farthest place before on.
    pub distances: Vec<i32>,
}

impl RelativePositions {
    /// The keys of the distances, `[n_heads, head_dim, distances]` F32.
    fn keys(&self, [n_heads, head_dim]: [i32; 2], dtype: Dtype) -> Result<Array> {
        let size = (n_heads * head_dim) as usize;
        let (waves, count) = (size / 2, self.distances.len() as i32);
        let step = -(10_000f64.ln() as f32) / waves.saturating_sub(1).max(1) as f32;
        let mut values = Vec::with_capacity(self.distances.len() * size);
        for distance in &self.distances {
            let angle = |wave: usize| *distance as f32 * (wave as f32 * step).exp();
            values.extend((0..waves).map(|wave| angle(wave).sin()));
            values.extend((0..waves).map(|wave| angle(wave).cos()));
        }
        let encoded = ops::astype(&Array::from_f32(&values, &[1, count, size as i32])?, dtype)?;
        let keys = self.projection.forward(&encoded)?;
        let keys = ops::reshape(&keys, &[count, n_heads, head_dim])?;
        ops::astype(&ops::transpose(&keys, &[1, 2, 0])?, Dtype::F32)
    }
}

impl EarWindow {
    /// Keys beside a chunk's queries.
    fn context(self) -> i32 {
        self.chunk + self.around[0] + self.around[1]
    }

    /// True for each key of each query of each chunk that is not seen, where there are so many
    /// places: `[1, chunks, chunk, context]`, as the score that is put there.
    fn hidden(self, places: i32, unseen: f32) -> Result<[Array; 2]> {
        let (chunks, context) = (places.div_euclid(self.chunk) + 1, self.context());
        let chunks = if places % self.chunk == 0 { chunks - 1 } else { chunks };
        let mut sees = Vec::with_capacity((chunks * self.chunk * context) as usize);
        for query in 0..chunks * self.chunk {
            let first = query - query % self.chunk - self.around[0];
            for key in first..first + context {
                let away = query - key;
                let near = match away >= 0 {
                    true => away < self.sees[0],
                    false => -away < self.sees[1],
                };
                sees.push(if near && (0..places).contains(&key) { 1.0 } else { 0.0 });
            }
        }
        let sees = Array::from_f32(&sees, &[1, chunks, self.chunk, context])?;
        let half = Array::scalar(0.5, Dtype::F32)?;
        Ok([ops::greater(&sees, &half)?, Array::scalar(unseen, Dtype::F32)?])
    }
}

impl EarAttention {
    /// `[1, n, hidden_size]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let [_, n, size] = x.dims()?;
        let (window, heads) = (self.window, self.n_heads);
        let (head_dim, chunk, context) = (size / heads, window.chunk, window.context());
        let chunks = n.div_euclid(chunk) + i32::from(n % chunk != 0);
        let taken = |linear: &ClippedLinear| -> Result<Array> {
            let all = ops::astype(&linear.forward(x)?, Dtype::F32)?;
            // [1, n, heads * head_dim] -> [heads, n, head_dim]
            ops::swap_axes(&ops::reshape(&all, &[n, heads, head_dim])?, 0, 1)
        };
        let [q, k, v] = &self.qkv;
        let factors = softplus(&ops::astype(&self.per_dim_scale, Dtype::F32)?)?;
        let factors = ops::multiply(&factors, &Array::scalar(self.query_scale, Dtype::F32)?)?;
        let q = ops::multiply(&taken(q)?, &factors)?;
        let k = ops::multiply(&taken(k)?, &Array::scalar(self.key_scale, Dtype::F32)?)?;
        let v = taken(v)?;
        // [heads, chunks, chunk, head_dim]
        let q = padded(&q, 0, chunks * chunk - n)?;
        let q = ops::reshape(&q, &[heads, chunks, chunk, head_dim])?;
        // [heads, chunks, context, head_dim]
        let beside = |x: &Array| -> Result<Array> {
            let behind = chunks * chunk + window.around[1] - n;
            let x = padded(x, window.around[0], behind)?;
            let first = |of: i32| (of * chunk) as u32;
            let places = (0..chunks).flat_map(|of| first(of)..first(of) + context as u32);
            let places: Vec<u32> = places.collect();
            let all = ops::take(&x, &Indices::from_u32(&places, &[chunks * context])?, 1)?;
            ops::reshape(&all, &[heads, chunks, context, head_dim])
        };
        let by_content = ops::matmul(&q, &ops::swap_axes(&beside(&k)?, 2, 3)?)?;
        let keys = self.positions.keys([heads, head_dim], x.dtype())?;
        let by_distance = ops::matmul(&q, &ops::expand_dims(&keys, 1)?)?;
        let scores = ops::add(&by_content, &shifted(&by_distance, context)?)?;
        let cap = Array::scalar(self.softcap, Dtype::F32)?;
        let scores = ops::multiply(&ops::tanh(&ops::divide(&scores, &cap)?)?, &cap)?;
        let [sees, unseen] = window.hidden(n, self.unseen)?;
        let weights = ops::softmax(&ops::where_(&sees, &scores, &unseen)?, -1, true)?;
        let made = ops::matmul(&weights, &beside(&v)?)?;
        let made = ops::reshape(&made, &[heads, chunks * chunk, head_dim])?;
        let made = ops::swap_axes(&ops::slice_axis(&made, 1, 0, n)?, 0, 1)?;
        self.out.forward(&ops::astype(&ops::reshape(&made, &[1, n, size])?, x.dtype())?)
    }

    /// The most values that are held at once for so many places of so many values.
    pub fn values(&self, places: u64, hidden: u64) -> u64 {
        let EarWindow { chunk, .. } = self.window;
        let (chunk, context) = (chunk.max(1) as u64, self.window.context().max(1) as u64);
        let padded = places + chunk;
        let beside = padded.div_ceil(chunk) * context * hidden;
        4 * padded * hidden + 2 * beside + 5 * padded * context * self.n_heads as u64
    }
}

/// `x`, `[heads, n, head_dim]`, with zeros before and behind its places.
fn padded(x: &Array, before: i32, behind: i32) -> Result<Array> {
    let [heads, _, head_dim] = x.dims()?;
    let zeros = |count: i32| ops::zeros(&[heads, count, head_dim], x.dtype());
    match (before > 0, behind > 0) {
        (false, false) => x.share(),
        (true, false) => ops::concatenate(&[&zeros(before)?, x], 1),
        (false, true) => ops::concatenate(&[x, &zeros(behind)?], 1),
        (true, true) => ops::concatenate(&[&zeros(before)?, x, &zeros(behind)?], 1),
    }
}

/// Scores by distance, `[heads, chunks, chunk, distances]`, where each query's first distance
/// belongs to its first key: moved to the keys, `[heads, chunks, chunk, context]`
/// (<https://arxiv.org/abs/1901.02860>, appendix B).
fn shifted(x: &Array, context: i32) -> Result<Array> {
    let [heads, chunks, chunk, distances] = x.dims()?;
    let zeros = ops::zeros(&[heads, chunks, chunk, context + 1 - distances], x.dtype())?;
    let x = ops::concatenate(&[x, &zeros], 3)?;
    let x = ops::reshape(&x, &[heads, chunks, chunk * (context + 1)])?;
    let x = ops::slice_axis(&x, 2, 0, chunk * context)?;
    ops::reshape(&x, &[heads, chunks, chunk, context])
}
