//! Attention over pictures: rotary positions with several axes, and no scores held in full.

use mlx_ffi::fast::{self, AttentionMask};
use mlx_ffi::{Array, Dtype, Result, cpu, ops};

use crate::kernels::{Columns, Kernels, StreamHeads};
use crate::layers::RmsNorm;

/// Bytes of scores that are held at once where the device's own kernel would hold all of them.
const SCORE_BYTES: i64 = 256 << 20;

/// The cosines and sines of some positions' angles, `[l, pairs, 1]` F32 each.
#[derive(Debug)]
pub(super) struct Angles {
    cos: Array,
    sin: Array,
}

impl Angles {
    /// From `pairs` angles of each position, one position after the other.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn new(angles: &[f32], pairs: usize) -> Result<Angles> {
        let shape = [(angles.len() / pairs.max(1)) as i32, pairs as i32, 1];
        // In f64, as torch's functions round once.
        let cos: Vec<f32> = angles.iter().map(|angle| f64::from(*angle).cos() as f32).collect();
        let sin: Vec<f32> = angles.iter().map(|angle| f64::from(*angle).sin() as f32).collect();
        Ok(Angles { cos: Array::from_f32(&cos, &shape)?, sin: Array::from_f32(&sin, &shape)? })
    }

    /// These positions, then those.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn then(&self, next: &Angles) -> Result<Angles> {
        let join = |a: &Array, b: &Array| ops::concatenate(&[a, b], 0);
        Ok(Angles { cos: join(&self.cos, &next.cos)?, sin: join(&self.sin, &next.sin)? })
    }

    /// `x`, `[b, heads, l, 2 · pairs]`, with the pairs `2 i` and `2 i + 1` rotated, in F32.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn rotate_neighbours(&self, x: &Array) -> Result<Array> {
        let [b, heads, l, size] = x.dims()?;
        let pairs = ops::reshape(&ops::astype(x, Dtype::F32)?, &[b, heads, l, size / 2, 2])?;
        let turned = ops::concatenate(&self.turn(&pairs, 1)?.iter().collect::<Vec<_>>(), -1)?;
        ops::astype(&ops::reshape(&turned, x.shape())?, x.dtype())
    }

    /// `x`, `[b, heads, l, 2 · pairs]`, with the pairs `i` and `i + pairs` rotated, in F32.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn rotate_halves(&self, x: &Array) -> Result<Array> {
        let [b, heads, l, size] = x.dims()?;
        let wide = ops::astype(x, Dtype::F32)?;
        let pairs = ops::swap_axes(&ops::reshape(&wide, &[b, heads, l, 2, size / 2])?, -1, -2)?;
        let turned = ops::concatenate(&self.turn(&pairs, 1)?.iter().collect::<Vec<_>>(), -1)?;
        let turned = ops::reshape(&ops::swap_axes(&turned, -1, -2)?, x.shape())?;
        ops::astype(&turned, x.dtype())
    }

    /// Both values of each pair of `[…, pairs, 2]` turned, `[…, pairs, 1]`.
    fn turn(&self, pairs: &Array, last: i32) -> Result<[Array; 2]> {
        let (a, b) = (ops::slice_axis(pairs, -1, 0, last)?, ops::slice_axis(pairs, -1, last, 2)?);
        let (cos, sin) = (&self.cos, &self.sin);
        let first = ops::subtract(&ops::multiply(&a, cos)?, &ops::multiply(&b, sin)?)?;
        let second = ops::add(&ops::multiply(&a, sin)?, &ops::multiply(&b, cos)?)?;
        Ok([first, second])
    }
}

/// Queries, keys and values of a stream, `[1, l, heads · head_dim]` each, and the norms of the
/// heads of queries and keys.
#[derive(Debug)]
pub(super) struct Projected<'a> {
    pub qkv: [Array; 3],
    pub norms: Option<&'a [RmsNorm; 2]>,
}

impl Projected<'_> {
    /// As kernels take it.
    fn taken(&self) -> StreamHeads<'_> {
        let norms = self.norms.map(|norms| norms.each_ref().map(|norm| &norm.weight));
        StreamHeads { qkv: self.qkv.each_ref(), norms }
    }
}

/// The heads of one stream, or of two, the second behind the first, `[1, heads, l, head_dim]` each:
/// queries and keys normed, their neighbours rotated by `angles`, and values.
///
/// # Errors
/// Those of MLX.
pub(super) fn heads(
    kernels: Kernels,
    streams: &[Projected<'_>],
    angles: &Angles,
    head_dim: i32,
) -> Result<[Array; 3]> {
    let eps =
        streams.iter().filter_map(|stream| stream.norms).flatten().map(|norm| norm.eps).next();
    let all: Vec<StreamHeads<'_>> = streams.iter().map(Projected::taken).collect();
    let turns = [&angles.cos, &angles.sin];
    if let Some(heads) = kernels.picture_heads(&all, turns, head_dim, eps.unwrap_or(0.0)) {
        return heads;
    }
    let part = |index: usize| {
        let of = |stream: &Projected<'_>| {
            let x = Columns::all(stream.qkv[index].share()?);
            let x = kernels.heads(&x, head_dim)?;
            let norm = stream.norms.and_then(|norms| norms.get(index));
            norm.map_or_else(|| x.share(), |norm| norm.forward(&x))
        };
        let parts = streams.iter().map(of).collect::<Result<Vec<_>>>()?;
        match &parts[..] {
            [one] => one.share(),
            parts => ops::concatenate(&parts.iter().collect::<Vec<_>>(), 2),
        }
    };
    let (q, k, v) = (part(0)?, part(1)?, part(2)?);
    Ok([angles.rotate_neighbours(&q)?, angles.rotate_neighbours(&k)?, v])
}

/// The angles of positions with several axes, each with `dims` of a head's values: `theta^(-2 i /
/// dims)` times the position on the axis.
pub(super) fn angles_of(positions: &[[f64; 3]], dims: [i32; 3], theta: f64) -> Vec<f32> {
    let rates = |size: i32| {
        (0..size / 2).map(move |i| 1.0 / theta.powf(2.0 * f64::from(i) / f64::from(size)))
    };
    let all: Vec<(usize, f64)> = dims
        .into_iter()
        .enumerate()
        .flat_map(|(axis, size)| rates(size).map(move |rate| (axis, rate)))
        .collect();
    let angles = positions.iter().flat_map(|at| all.iter().map(|(axis, rate)| at[*axis] * rate));
    angles.map(|angle| angle as f32).collect()
}

/// The keys that a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sees {
    /// All keys.
    All,
    /// Keys up to its own place.
    Earlier,
}

/// `softmax(q kᵀ / √d) v` for `q` of `[b, heads, l, d]`, `k` and `v` of `[b, kv heads, keys, d]`:
/// `[b, l, heads · d]`.
///
/// # Errors
/// Those of MLX.
pub(super) fn attend(
    kernels: Kernels,
    q: &Array,
    k: &Array,
    v: &Array,
    sees: Sees,
) -> Result<Array> {
    let [b, heads, l, d] = q.dims()?;
    let scale = (d as f32).sqrt().recip();
    if kernels.is_ours_on_cpu() {
        let visible = cpu::Visible { causal: sees == Sees::Earlier, ..cpu::Visible::default() };
        return cpu::attention(q, k, v, scale, None, None, visible);
    }
    let keys = k.shape().get(2).copied().unwrap_or(0);
    // MLX has kernels that hold no scores for heads of these sizes, in types of 16 bits.
    let is_fused = matches!(d, 64 | 96 | 128) && q.dtype() != Dtype::F32;
    let row = i64::from(b) * i64::from(heads) * i64::from(keys) * 4;
    let rows = (SCORE_BYTES / row.max(1)).clamp(1, i64::from(l.max(1))) as i32;
    let out = if is_fused || rows >= l || sees == Sees::Earlier {
        let mask = match sees {
            Sees::All => AttentionMask::None,
            Sees::Earlier => AttentionMask::Causal,
        };
        fast::scaled_dot_product_attention(q, k, v, scale, mask, None)?
    } else {
        let mut parts = Vec::new();
        for first in (0..l).step_by(rows as usize) {
            let q = ops::slice_axis(q, 2, first, l.min(first + rows))?;
            let mask = AttentionMask::None;
            let part = fast::scaled_dot_product_attention(&q, k, v, scale, mask, None)?;
            // Scores of one part are gone before those of the next one are made.
            part.eval()?;
            parts.push(part);
        }
        ops::concatenate(&parts.iter().collect::<Vec<_>>(), 2)?
    };
    ops::reshape(&ops::swap_axes(&out, 1, 2)?, &[b, l, heads * d])
}
