//! A low-rank adapter beside a projection or the embeddings.

use mlx_ffi::{Array, Result, ops};

/// What is added to the result of a base: `scale · (x a) b`.
///
/// The adapter's own type is kept and the sum is made in the base's, in the order of mlx-lm's
/// `LoRALinear` and `LoRAEmbedding`: with float32 adapters beside bf16 weights, only the last step
/// rounds to bf16.
#[derive(Debug)]
pub(crate) struct Lora {
    /// `[in, r]`; of embeddings `[vocab_size, r]`.
    pub a: Array,
    /// `[r, out]`; of embeddings `[r, hidden_size]`.
    pub b: Array,
    pub scale: f32,
}

impl Lora {
    /// `y`, what the base made of `x` of `[…, in]`, with the adapter's part.
    pub fn project(&self, x: &Array, y: &Array) -> Result<Array> {
        let z = ops::matmul(&ops::matmul(x, &self.a)?, &self.b)?;
        self.add(&z, y)
    }

    /// `y`, the embeddings of `ids`, with the adapter's part.
    pub fn embed(&self, ids: &Array, y: &Array) -> Result<Array> {
        let z = ops::matmul(&ops::take(&self.a, ids, 0)?, &self.b)?;
        self.add(&z, y)
    }

    /// `y`, what tied embeddings made of `x` of `[…, hidden_size]`, with the adapter's part.
    pub fn project_tied(&self, x: &Array, y: &Array) -> Result<Array> {
        let flipped = |array| ops::swap_axes(array, 0, 1);
        let z = ops::matmul(&ops::matmul(x, &flipped(&self.b)?)?, &flipped(&self.a)?)?;
        self.add(&z, y)
    }

    fn add(&self, z: &Array, y: &Array) -> Result<Array> {
        let scaled = ops::multiply(&Array::scalar(self.scale, z.dtype())?, z)?;
        ops::add(y, &ops::astype(&scaled, y.dtype())?)
    }
}
