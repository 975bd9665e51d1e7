//! How the elements of keys and values are held.

use mlx_ffi::{Array, Dtype, QuantMode, Quantization, Quantized, Result, dequantize, quantize};

/// The shape of a buffer, and its type.
pub(super) type Form = ([i32; 4], Dtype);

/// How keys and values are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// As they are.
    Plain,
    /// Packed, in groups along a head's values.
    Packed(Quantization),
}

impl Storage {
    /// Keys and values in `bits` bits; values that share a scale are `group_size`.
    pub fn packed(bits: i32, group_size: i32) -> Storage {
        Storage::Packed(Quantization { mode: QuantMode::Affine, bits, group_size })
    }

    /// Bytes that `elements` take, whose own type takes `dtype_size` bytes each.
    pub fn bytes(self, elements: u64, dtype_size: u64) -> u64 {
        match self {
            Storage::Plain => elements * dtype_size,
            Storage::Packed(Quantization { bits, group_size, .. }) => {
                elements * bits as u64 / 8 + 2 * dtype_size * elements / group_size as u64
            }
        }
    }

    /// The forms of the arrays that hold keys, or values, of `shape` and `dtype`.
    pub fn forms(self, shape: [i32; 4], dtype: Dtype) -> Vec<Form> {
        let [b, heads, positions, width] = shape;
        match self {
            Storage::Plain => vec![(shape, dtype)],
            Storage::Packed(Quantization { bits, group_size, .. }) => {
                let scales = ([b, heads, positions, width / group_size], dtype);
                vec![([b, heads, positions, width * bits / 32], Dtype::U32), scales, scales]
            }
        }
    }

    /// The arrays that hold `x`, `[b, n_kv_heads, l, head_dim]`.
    pub fn pack(self, x: &Array) -> Result<Vec<Array>> {
        match self {
            Storage::Plain => Ok(vec![x.share()?]),
            Storage::Packed(quantization) => {
                let Quantized { weight, scales, biases, .. } = quantize(x, quantization)?;
                Ok([weight, scales].into_iter().chain(biases).collect())
            }
        }
    }

    /// The values that `parts` hold, in `dtype`.
    pub fn unpack(self, parts: &[Array], dtype: Dtype) -> Result<Array> {
        match (self, parts) {
            (Storage::Packed(quantization), [weight, scales, rest @ ..]) => {
                let biases = rest.first().map(Array::share).transpose()?;
                let (weight, scales) = (weight.share()?, scales.share()?);
                dequantize(&Quantized { weight, scales, biases, quantization }, dtype)
            }
            (_, parts) => parts[0].share(),
        }
    }
}
