//! One more input for each layer, made of the ids and their embeddings.

use mlx_ffi::{Array, Dtype, Indices, Result, ops};

use super::{Embedding, Linear, RmsNorm, Workspace};
use crate::kernels::Columns;

/// One more input for each layer (Gemma 3n and 4).
#[derive(Debug)]
pub(crate) struct LayerInputs {
    /// A vector for all layers of each id.
    pub embed: Embedding,
    /// Ids that `embed` has; others are as 0.
    pub vocab_size: i32,
    /// `hidden_size` to the inputs of all layers.
    pub projection: Linear,
    /// Over what is projected for one layer.
    pub norm: RmsNorm,
    /// Values of one layer's input.
    pub size: i32,
}

impl LayerInputs {
    /// `ids`, `[b, l]`, and what goes into the first layer for them, `[b, l, hidden_size]`, to the
    /// inputs of all layers, `[b, l, layers · size]`.
    pub fn forward(&self, ids: &Indices, h: &Array) -> Result<Array> {
        let [b, l, hidden_size] = h.dims()?;
        let each = [b, l, -1, self.size];
        let scaled =
            |x: &Array, factor: f64| ops::multiply(x, &Array::scalar(factor as f32, x.dtype())?);
        let ids = ids.zero_from(self.vocab_size as usize)?;
        let of_ids = self.embed.scaled(&ids, f64::from(self.size).sqrt())?;
        let of_ids = ops::reshape(&of_ids, &each)?;
        let projected = scaled(&self.projection.forward(h)?, f64::from(hidden_size).powf(-0.5))?;
        let projected = self.norm.forward(&ops::reshape(&projected, &each)?)?;
        let all = scaled(&ops::add(&projected, &of_ids)?, 0.5_f64.sqrt())?;
        ops::reshape(&all, &[b, l, -1])
    }

    /// The input of the layer at `index` among those of all, `[b, l, layers · size]`: `size`
    /// columns.
    pub fn of_layer(&self, all: &Array, index: usize) -> Result<Columns> {
        let first = index as i32 * self.size;
        Ok(Columns { of: all.share()?, range: first..first + self.size })
    }

    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.embed.workspace().then(self.projection.workspace(dtype))
    }
}
