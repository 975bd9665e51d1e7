//! Looking at a model's attention: an optional part of the contract.

use crate::{CancelToken, Prompt, Result};

/// Keys and queries of one layer, after position encoding, as f32.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerAttention {
    /// Key heads; several query heads may share one.
    pub n_kv_heads: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Values of one head at one position.
    pub head_dim: usize,
    /// The position in the prompt of each row; a sliding layer holds the last ones only.
    pub positions: Vec<usize>,
    /// `[n_kv_heads, positions.len(), head_dim]`, flattened.
    pub keys: Vec<f32>,
    /// `[n_heads, seq_len, head_dim]`, flattened.
    pub queries: Vec<f32>,
}

impl LayerAttention {
    /// The keys of one head, `[positions.len(), head_dim]`; `None` beyond `n_kv_heads`.
    pub fn head_keys(&self, head: usize) -> Option<&[f32]> {
        rows(&self.keys, head, self.n_kv_heads)
    }

    /// The queries of one head, `[seq_len, head_dim]`; `None` beyond `n_heads`.
    pub fn head_queries(&self, head: usize) -> Option<&[f32]> {
        rows(&self.queries, head, self.n_heads)
    }
}

fn rows(values: &[f32], head: usize, heads: usize) -> Option<&[f32]> {
    let length = values.len().checked_div(heads)?;
    (head < heads).then(|| &values[head * length..(head + 1) * length])
}

/// The attention state after one prefill of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionSnapshot {
    /// The model's architecture.
    pub architecture: String,
    /// Tokens of the prompt.
    pub seq_len: usize,
    /// One entry a layer, first layer first.
    pub layers: Vec<LayerAttention>,
}

/// A model whose attention can be looked at; reached through
/// [`TextModel::attention_inspector`](crate::TextModel::attention_inspector).
pub trait AttentionInspector {
    /// One prefill of `prompt`, and every layer's keys and queries.
    ///
    /// # Errors
    /// As [`TextModel::generate`](crate::TextModel::generate); a layer's failure names the layer.
    fn inspect_attention(&self, prompt: &Prompt, cancel: &CancelToken)
    -> Result<AttentionSnapshot>;
}
