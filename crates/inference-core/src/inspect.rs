//! Looking at a model's attention: an optional part of the contract.

use crate::{CancelToken, Error, Prompt, Result};

/// The parts of a prompt's attention that are returned.
#[derive(Clone, Debug, Default)]
pub struct InspectOptions {
    /// Which layers, from 0 on, in the order in which they are wanted; `None`: all.
    pub layers: Option<Vec<usize>>,
    /// Also the weights, `n_heads * seq_len * seq_len` values a layer, and their entropy.
    pub weights: bool,
    /// Ends it early with [`Error::Cancelled`].
    pub cancel: CancelToken,
}

impl InspectOptions {
    /// Checks what can be checked without a model.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for `layers` that names none, or one twice.
    pub fn validate(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::InvalidOption { option: "layers", reason });
        let Some(layers) = &self.layers else { return Ok(()) };
        if layers.is_empty() {
            return invalid("names no layer; leave it unset for all".into());
        }
        let mut sorted = layers.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => invalid(format!("names layer {} twice", pair[0])),
        }
    }

    /// The layers that are asked for, of a model that has `count`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for one that the model does not have.
    pub fn chosen(&self, count: usize) -> Result<Vec<usize>> {
        let Some(layers) = &self.layers else { return Ok((0..count).collect()) };
        match layers.iter().find(|layer| **layer >= count) {
            None => Ok(layers.clone()),
            Some(layer) => Err(Error::InvalidOption {
                option: "layers",
                reason: format!("there is no layer {layer}; the model has {count}, from 0 on"),
            }),
        }
    }
}

/// Keys and queries of one layer, after position encoding, as f32.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerAttention {
    /// Which layer, from 0 on.
    pub layer: usize,
    /// Key heads; several query heads may share one.
    pub n_kv_heads: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Values of one head at one position.
    pub head_dim: usize,
    /// The position in the prompt of each row of keys; of a sliding layer, an engine may tell the
    /// last ones only.
    pub positions: Vec<usize>,
    /// `[n_kv_heads, positions.len(), head_dim]`, flattened.
    pub keys: Vec<f32>,
    /// `[n_heads, seq_len, head_dim]`, flattened.
    pub queries: Vec<f32>,
    /// The attention weights; only when asked for.
    pub weights: Option<AttentionWeights>,
}

/// How one layer's queries share their attention among the keys.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionWeights {
    /// `[n_heads, seq_len, positions.len()]`, flattened; 0 where a query does not see a key. A
    /// query's weights add up to 1, or to less in a layer with sinks, which take the rest.
    pub values: Vec<f32>,
    /// `[n_heads, seq_len]`, flattened: the entropy of each query's weights in nats, a sink's share
    /// included.
    pub entropy: Vec<f32>,
}

impl LayerAttention {
    /// The weights of one head, `[seq_len, positions.len()]`; `None` beyond `n_heads`, or where
    /// they were not asked for.
    pub fn head_weights(&self, head: usize) -> Option<&[f32]> {
        rows(&self.weights.as_ref()?.values, head, self.n_heads)
    }

    /// The entropies of one head, `[seq_len]`; as [`head_weights`](Self::head_weights).
    pub fn head_entropy(&self, head: usize) -> Option<&[f32]> {
        rows(&self.weights.as_ref()?.entropy, head, self.n_heads)
    }

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
    /// One entry for each layer that was asked for, in that order.
    pub layers: Vec<LayerAttention>,
}

/// A model whose attention can be looked at; reached through
/// [`TextModel::attention_inspector`](crate::TextModel::attention_inspector).
pub trait AttentionInspector {
    /// One prefill of `prompt`, and the keys and queries of the layers that are asked for.
    ///
    /// # Errors
    /// As [`TextModel::generate`](crate::TextModel::generate), and [`Error::Cancelled`]; a layer's
    /// failure names the layer.
    fn inspect_attention(
        &self,
        prompt: &Prompt,
        options: &InspectOptions,
    ) -> Result<AttentionSnapshot>;
}

#[cfg(test)]
mod tests {
    use super::{AttentionWeights, InspectOptions, LayerAttention};

    fn layers(layers: &[usize]) -> InspectOptions {
        InspectOptions { layers: Some(layers.to_vec()), ..InspectOptions::default() }
    }

    #[test]
    fn layers_that_mean_nothing_are_refused() {
        let reason = |options: InspectOptions| {
            options.validate().and_then(|()| options.chosen(3)).unwrap_err().to_string()
        };
        assert!(reason(layers(&[])).contains("no layer; leave it unset"));
        assert!(reason(layers(&[2, 0, 2])).contains("layer 2 twice"));
        assert!(reason(layers(&[1, 3])).contains("no layer 3; the model has 3"));
        assert_eq!(layers(&[2, 0]).chosen(3), Ok(vec![2, 0]));
        assert_eq!(InspectOptions::default().chosen(2), Ok(vec![0, 1]));
    }

    #[test]
    fn a_head_has_its_own_rows() {
        let numbers = |count: usize| (0..count).map(|value| value as f32).collect::<Vec<_>>();
        let weights = AttentionWeights { values: numbers(12), entropy: numbers(6) };
        let layer = LayerAttention {
            layer: 0,
            n_kv_heads: 1,
            n_heads: 2,
            head_dim: 1,
            positions: vec![1, 2],
            keys: numbers(2),
            queries: numbers(6),
            weights: Some(weights),
        };
        assert_eq!(layer.head_weights(1), Some(&numbers(12)[6..]));
        assert_eq!(layer.head_entropy(0), Some(&numbers(3)[..]));
        assert_eq!(layer.head_queries(1), Some(&[3.0, 4.0, 5.0][..]));
        assert_eq!((layer.head_weights(2), layer.head_keys(1)), (None, None));
    }
}
