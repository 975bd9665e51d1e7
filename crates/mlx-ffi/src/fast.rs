//! MLX's fused operations for transformers.

use std::ffi::CStr;

use crate::stream::current;
use crate::{Array, Error, Result, sys};

/// The keys that a position may attend to.
#[derive(Clone, Copy, Debug)]
pub enum AttentionMask<'a> {
    /// Everything: one query position, or none to hide.
    None,
    /// Everything up to itself; the last query stands at the last key.
    Causal,
    /// Bool (true: visible) or an additive mask, broadcast to `[b, n_heads, l, keys]`.
    Array(&'a Array),
}

const EMPTY: sys::mlx_array = sys::mlx_array { ctx: std::ptr::null_mut() };

fn optional(array: Option<&Array>) -> sys::mlx_array {
    array.map_or(EMPTY, Array::raw)
}

/// `x / √(mean(x²) + eps) · weight` over the last dimension.
///
/// # Errors
/// A weight whose size is not that dimension.
pub fn rms_norm(x: &Array, weight: Option<&Array>, eps: f32) -> Result<Array> {
    // SAFETY: both inputs outlive the call; mlx-c only reads them and takes an empty weight.
    Array::from_op(|out| unsafe {
        sys::mlx_fast_rms_norm(out, x.raw(), optional(weight), eps, current())
    })
}

/// `(x - mean(x)) / √(variance(x) + eps) · weight + bias` over the last dimension.
///
/// # Errors
/// A weight or a bias whose size is not that dimension; an empty `x`.
pub fn layer_norm(
    x: &Array,
    weight: Option<&Array>,
    bias: Option<&Array>,
    eps: f32,
) -> Result<Array> {
    let size = x.shape().last().copied().unwrap_or(0);
    let mut parts = [weight, bias].into_iter().flatten();
    if x.size() == 0 || !x.dtype().is_float() || parts.any(|part| part.shape() != [size]) {
        return Err(Error::new(format!("[layer_norm] {x:?}, {weight:?} and {bias:?} do not fit")));
    }
    // SAFETY: the inputs outlive the call; mlx-c only reads them and takes an empty weight and
    // bias.
    Array::from_op(|out| unsafe {
        sys::mlx_fast_layer_norm(out, x.raw(), optional(weight), optional(bias), eps, current())
    })
}

/// The angles of a rotary position encoding.
#[derive(Clone, Copy, Debug)]
pub enum RopeFrequencies<'a> {
    /// Wavelengths that are powers of this base.
    Base(f32),
    /// One wavelength divided by 2π for each pair of dimensions: `[dims / 2]` f32.
    Wavelengths(&'a Array),
}

/// The first position of each row of a batch.
#[derive(Clone, Copy, Debug)]
pub enum RopeOffset<'a> {
    /// One offset for all rows.
    Same(i32),
    /// One for each row: `[b]` I32.
    Each(&'a Array),
}

/// Which values of a head are rotated, and which of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeRange {
    /// The first so many, in pairs `i` and `i + dims / 2`.
    Halves(i32),
    /// The first so many, in pairs `2 i` and `2 i + 1`.
    Neighbours(i32),
}

/// Rotary position encoding of `x`, `[b, n, l, head_dim]`: the pairs of `range` are rotated by
/// their position times `scale`. The first position is `offset`.
///
/// # Errors
/// Fewer dimensions than are rotated; offsets for another number of rows.
pub fn rope(
    x: &Array,
    range: RopeRange,
    frequencies: RopeFrequencies<'_>,
    scale: f32,
    offset: RopeOffset<'_>,
) -> Result<Array> {
    let (dims, traditional) = match range {
        RopeRange::Halves(dims) => (dims, false),
        RopeRange::Neighbours(dims) => (dims, true),
    };
    let (base, freqs) = match frequencies {
        RopeFrequencies::Base(base) => {
            (sys::mlx_optional_float { value: base, has_value: true }, EMPTY)
        }
        RopeFrequencies::Wavelengths(freqs) => {
            (sys::mlx_optional_float { value: 0.0, has_value: false }, freqs.raw())
        }
    };
    match offset {
        // SAFETY: the inputs outlive the call; mlx-c only reads them and takes empty frequencies.
        RopeOffset::Same(offset) => Array::from_op(|out| unsafe {
            let (x, stream) = (x.raw(), current());
            sys::mlx_fast_rope(out, x, dims, traditional, base, scale, offset, freqs, stream)
        }),
        // SAFETY: as above.
        RopeOffset::Each(offsets) => Array::from_op(|out| unsafe {
            let (x, offsets, stream) = (x.raw(), offsets.raw(), current());
            sys::mlx_fast_rope_dynamic(
                out,
                x,
                dims,
                traditional,
                base,
                scale,
                offsets,
                freqs,
                stream,
            )
        }),
    }
}

/// `softmax(q kᵀ · scale + mask) v` for `q` of `[b, n_heads, l, d]` and `k`, `v` of
/// `[b, n_kv_heads, keys, d]`; query heads share key heads where there are more of them.
/// `sinks` is one more logit a head that takes part in the softmax and adds nothing.
///
/// # Errors
/// Shapes that do not fit together.
pub fn scaled_dot_product_attention(
    q: &Array,
    k: &Array,
    v: &Array,
    scale: f32,
    mask: AttentionMask<'_>,
    sinks: Option<&Array>,
) -> Result<Array> {
    // MLX divides by the number of key heads.
    if k.shape().get(1) == Some(&0) {
        return Err(Error::new(format!("keys of shape {:?} have no heads", k.shape())));
    }
    let (mode, array): (&CStr, _) = match mask {
        AttentionMask::None => (c"", EMPTY),
        AttentionMask::Causal => (c"causal", EMPTY),
        AttentionMask::Array(array) => (c"array", array.raw()),
    };
    // SAFETY: the inputs and the mode outlive the call; mlx-c only reads them and takes empty
    // masks and sinks.
    Array::from_op(|out| unsafe {
        sys::mlx_fast_scaled_dot_product_attention(
            out,
            q.raw(),
            k.raw(),
            v.raw(),
            scale,
            mode.as_ptr(),
            array,
            optional(sinks),
            false,
            current(),
        )
    })
}
