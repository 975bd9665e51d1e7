//! The projections between heads and latents, in the forms in which checkpoints have them.

use mlx_ffi::{Array, Dtype, dequantize, ops};

use super::Weights;
use crate::error::Result;
use crate::kernels::Matrix;
use crate::layers::{HeadLinear, LatentSizes, Linear, Lora, Weight};

impl Weights {
    /// The projections of each head's queries into the latents' space, and of what was seen out of
    /// it.
    ///
    /// They are released as one matrix, `kv_b_proj`, whose rows are each head's keys and values,
    /// and converted by mlx-lm to `embed_q` and `unembed_out`. One matrix that is packed is
    /// unpacked, and takes up an adapter's part.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn latent_heads(&self, sizes: LatentSizes) -> Result<[HeadLinear; 2]> {
        let LatentSizes { heads, rank, nope, value, .. } = sizes;
        if !self.has("kv_b_proj.weight") {
            let embed_q = self.head_linear("embed_q", [heads, rank, nope])?;
            return Ok([embed_q, self.head_linear("unembed_out", [heads, value, rank])?]);
        }
        let rows = heads * (nope + value);
        let before = self.shared.totals.borrow().bytes;
        let both = self.linear("kv_b_proj", rank, rows, false)?;
        let dtype = match &both.weight().matrix {
            Matrix::Dense(w) => w.dtype(),
            Matrix::Quantized(_) => self.float_dtype(),
        };
        self.shared.totals.borrow_mut().bytes =
            before + rows as u64 * rank as u64 * dtype.size() as u64;
        if self.describes() {
            let empty = || Ok::<_, mlx_ffi::Error>(Matrix::Dense(ops::zeros(&[0], dtype)?));
            return Ok([self.by_heads(empty()?), self.by_heads(empty()?)]);
        }
        let all = ops::reshape(&unpacked(&both, dtype)?, &[heads, nope + value, rank])?;
        let keys = ops::swap_axes(&ops::slice_axis(&all, 1, 0, nope)?, 1, 2)?;
        let values = ops::slice_axis(&all, 1, nope, nope + value)?;
        let part = |part: &Array| {
            let part = ops::contiguous(part)?;
            // Before the next layer's are read.
            part.eval()?;
            Ok::<_, mlx_ffi::Error>(self.by_heads(Matrix::Dense(part)))
        };
        Ok([part(&keys)?, part(&values)?])
    }

    /// The tensor `name` of `heads` square matrices of `size`, `[heads, in, out]`, as projections.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn turned_heads(&self, name: &str, [heads, size]: [i32; 2]) -> Result<HeadLinear> {
        let weight = self.tensor(name, &[heads, size, size])?;
        if self.describes() {
            return Ok(self.by_heads(Matrix::Dense(weight)));
        }
        let weight = ops::contiguous(&ops::swap_axes(&weight, 1, 2)?)?;
        weight.eval()?;
        Ok(self.by_heads(Matrix::Dense(weight)))
    }

    /// The projections `name` of all heads, `[heads, output, input]`, packed or not.
    fn head_linear(&self, name: &str, shape: [i32; 3]) -> Result<HeadLinear> {
        let w = self.at(name);
        let matrix = if w.has("scales") {
            Matrix::Quantized(w.packed(&shape)?)
        } else {
            Matrix::Dense(w.tensor("weight", &shape)?)
        };
        Ok(self.by_heads(matrix))
    }

    fn by_heads(&self, matrix: Matrix) -> HeadLinear {
        HeadLinear::new(Weight { matrix, kernels: self.kernels() })
    }
}

/// The matrix of `linear`, `[out, in]`, with what its adapter adds, in `dtype`.
fn unpacked(linear: &Linear, dtype: Dtype) -> mlx_ffi::Result<Array> {
    let weight = match &linear.weight().matrix {
        Matrix::Dense(w) => w.share()?,
        Matrix::Quantized(w) => dequantize(w, dtype)?,
    };
    let Some(Lora { a, b, scale }) = linear.lora() else { return Ok(weight) };
    let [weight, a, b] = [&weight, a, b].map(|array| ops::astype(array, Dtype::F32));
    let added = ops::swap_axes(&ops::matmul(&a?, &b?)?, 0, 1)?;
    let added = ops::multiply(&added, &Array::scalar(*scale, Dtype::F32)?)?;
    ops::astype(&ops::add(&weight?, &added)?, dtype)
}
