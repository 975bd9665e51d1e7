//! Token embeddings, which may serve as the output layer too.

use mlx_ffi::{Array, Dtype, Indices, QuantMode, Quantized, Result, dequantize, ops};

use super::{Fusion, Lora, OwnIds, Weight, Workspace};
use crate::kernels::Matrix;

/// A vector for each token id.
#[derive(Debug)]
pub(crate) struct Embedding {
    weight: Weight,
    dtype: Dtype,
    lora: Option<Lora>,
    /// Set when several ranks have some ids each.
    own: Option<OwnIds>,
}

impl Embedding {
    /// Embeddings by `weight`, `[vocab_size, hidden_size]`, handed out as `dtype`.
    pub fn new(weight: Weight, dtype: Dtype) -> Self {
        Embedding { weight, dtype, lora: None, own: None }
    }

    /// The layer with an adapter, where there is one.
    pub fn with_lora(self, lora: Option<Lora>) -> Self {
        Embedding { lora, ..self }
    }

    /// The layer where its rows are those of this rank's ids.
    pub fn of_ranks(self, own: OwnIds) -> Self {
        Embedding { own: Some(own), ..self }
    }

    /// Bytes that are taken beside the vectors.
    pub fn workspace(&self) -> Workspace {
        let row = self.lora.as_ref().map_or(0, Lora::embedded_row_bytes);
        Workspace { row, ..Workspace::default() }
    }

    /// Bytes that the tied output layer takes beside the logits.
    pub fn head_workspace(&self) -> Workspace {
        self.weight.workspace(self.dtype, self.lora.as_ref().map_or(0, Lora::tied_row_bytes))
    }

    /// The type of the vectors, and so of all activations.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// `ids`, `[b, l]`, to `[b, l, hidden_size]`.
    pub fn forward(&self, ids: &Indices) -> Result<Array> {
        match &self.own {
            None => self.rows(ids),
            Some(own) => own.embed(ids, |rows| self.rows(rows)),
        }
    }

    /// The vectors of rows, `[b, l]`.
    fn rows(&self, ids: &Indices) -> Result<Array> {
        let y = match &self.weight.matrix {
            Matrix::Dense(weight) => ops::take(weight, ids, 0)?,
            Matrix::Quantized(packed) => {
                let biases = packed.biases.as_ref().map(|b| ops::take(b, ids, 0)).transpose()?;
                let rows = Quantized {
                    weight: ops::take(&packed.weight, ids, 0)?,
                    scales: ops::take(&packed.scales, ids, 0)?,
                    biases,
                    quantization: packed.quantization,
                };
                dequantize(&rows, self.dtype)?
            }
        };
        match &self.lora {
            None => Ok(y),
            Some(lora) => lora.embed(ids, &y),
        }
    }

    /// `ids`, `[b, l]`, to `[b, l, hidden_size]`, times `factor`.
    pub fn scaled(&self, ids: &Indices, factor: f64) -> Result<Array> {
        let y = self.forward(ids)?;
        let dtype = match &self.weight.matrix {
            // MLX unpacks floating-point modes to bf16, and mlx-lm scales what it has there.
            Matrix::Quantized(packed) if packed.quantization.mode != QuantMode::Affine => {
                Dtype::Bf16
            }
            _ => y.dtype(),
        };
        let y = ops::astype(&y, dtype)?;
        let y = ops::multiply(&y, &Array::scalar(factor as f32, dtype)?)?;
        ops::astype(&y, self.dtype)
    }

    /// The tied output layer: `[…, hidden_size]` to `[…, vocab_size]`, or to this rank's ids, with
    /// its `fusion`.
    pub fn project(&self, x: &Array, fusion: Fusion<'_>) -> Result<Array> {
        let Some(lora) = &self.lora else { return self.weight.project_fused(x, fusion) };
        let x = fusion.prologue(x)?;
        fusion.epilogue(self.weight.kernels, lora.project_tied(&x, &self.weight.project(&x)?)?)
    }
}
