//! A low-rank adapter beside a projection or the embeddings.

use mlx_ffi::{Array, Dtype, Indices, Result, ops};

use super::Weight;
use super::workspace::adapter_row_bytes;
use crate::kernels::{Matrix, Order};

/// A low-rank term that is added to the result of a base: `scale · (x a) b`.
///
/// The adapter's own type is kept, or f16 where that stands for bf16. The sum is made in the base's
/// type, in the order of mlx-lm's `LoRALinear` and `LoRAEmbedding`: with float32 adapters beside
/// bf16 weights, only the last step rounds to bf16.
#[derive(Debug)]
pub(crate) struct Lora {
    /// `[in, r]`; of embeddings `[vocab_size, r]`.
    pub a: Array,
    /// `[r, out]`; of embeddings `[r, hidden_size]`.
    pub b: Array,
    pub scale: f32,
}

impl Lora {
    /// Bytes of one row while it passes a projection's adapter.
    pub fn row_bytes(&self) -> u64 {
        adapter_row_bytes(self.sizes())
    }

    /// Bytes of one row while it passes an adapter of embeddings, of which one row is taken.
    pub fn embedded_row_bytes(&self) -> u64 {
        let [_, rank, hidden_size] = self.sizes();
        adapter_row_bytes([0, rank, hidden_size])
    }

    /// Bytes of one row while it passes an adapter of tied embeddings.
    pub fn tied_row_bytes(&self) -> u64 {
        let [vocab_size, rank, hidden_size] = self.sizes();
        adapter_row_bytes([hidden_size, rank, vocab_size])
    }

    /// The sizes of `[in, rank]` and `[rank, out]`.
    fn sizes(&self) -> [u64; 3] {
        [size(&self.a, 0), size(&self.b, 0), size(&self.b, 1)]
    }

    /// `y`, what the base made of `x` of `[…, in]`, with the adapter's part.
    pub fn project(&self, x: &Array, y: &Array) -> Result<Array> {
        let z = ops::matmul(&ops::matmul(x, &self.a)?, &self.b)?;
        add(self.scale, &z, y)
    }

    /// `y`, the embeddings of `ids`, with the adapter's part.
    pub fn embed(&self, ids: &Indices, y: &Array) -> Result<Array> {
        let z = ops::matmul(&ops::take(&self.a, ids, 0)?, &self.b)?;
        add(self.scale, &z, y)
    }

    /// `y`, what tied embeddings made of `x` of `[…, hidden_size]`, with the adapter's part.
    pub fn project_tied(&self, x: &Array, y: &Array) -> Result<Array> {
        let flipped = |array| ops::swap_axes(array, 0, 1);
        let z = ops::matmul(&ops::matmul(x, &flipped(&self.b)?)?, &flipped(&self.a)?)?;
        add(self.scale, &z, y)
    }
}

/// A low-rank term for the result of each expert's projection: `scale · (x a[e]ᵀ) b[e]ᵀ`, in the
/// order of mlx-lm's `LoRASwitchLinear`.
#[derive(Debug)]
pub(crate) struct ExpertLora {
    /// `[experts, r, in]`.
    pub a: Weight,
    /// `[experts, out, r]`.
    pub b: Weight,
    pub scale: f32,
}

impl ExpertLora {
    /// Bytes of one row while it passes one expert's adapter.
    pub fn row_bytes(&self) -> u64 {
        let (Matrix::Dense(a), Matrix::Dense(b)) = (&self.a.matrix, &self.b.matrix) else {
            return 0;
        };
        // [experts, rank, in] and [experts, out, rank]
        adapter_row_bytes([size(a, 2), size(a, 1), size(b, 1)])
    }

    /// `y`, what the experts that `indices`, `[t, e]`, name made of `x`, `[t, 1 or e, in]`, with
    /// the adapter's part.
    pub fn project(&self, x: &Array, y: &Array, indices: &Indices, order: Order) -> Result<Array> {
        // MLX gathers on a CPU what is f32 on both sides.
        let x = match &self.a.matrix {
            Matrix::Dense(a) if a.dtype() == Dtype::F32 => &ops::astype(x, Dtype::F32)?,
            _ => x,
        };
        let z = self.b.gather(&self.a.gather(x, indices, order)?, indices, order)?;
        add(self.scale, &z, y)
    }
}

fn size(array: &Array, axis: usize) -> u64 {
    array.shape().get(axis).copied().unwrap_or(0) as u64
}

fn add(scale: f32, z: &Array, y: &Array) -> Result<Array> {
    let scaled = ops::multiply(&Array::scalar(scale, z.dtype())?, z)?;
    ops::add(y, &ops::astype(&scaled, y.dtype())?)
}
