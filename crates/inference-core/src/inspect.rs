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
