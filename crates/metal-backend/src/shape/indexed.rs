//! Latent attention to keys that an index chooses, built from a config.

use super::{LatentParts, Shape};
use crate::config::{Config, RopeConfig, RopePairs};
use crate::error::{Error, Result};
use crate::layers::{Indexer, KeyChoice, LatentAttention, Rope};
use crate::weights::Weights;

/// The indexer's norms have this one, whatever the config's is.
const EPS: f32 = 1e-6;

/// The sizes of an index of keys, by a config.
#[derive(Clone, Debug)]
pub(crate) struct IndexParts {
    heads: i32,
    dim: i32,
    most: i32,
    /// Which values of a head turn together.
    pairs: RopePairs,
    /// For each layer, whether it has an index of its own; others take the last one's choice.
    has_own: Vec<bool>,
}

impl IndexParts {
    /// Reads `config` under the names of DeepSeek V3.2, with an index in each layer. `heads`: how
    /// many the config means where it does not say.
    ///
    /// # Errors
    /// A key that is wrong.
    pub fn read(config: &Config, heads: i32, pairs: RopePairs) -> Result<IndexParts> {
        let layers = config.size("num_hidden_layers")?;
        let parts = IndexParts {
            heads: config.opt_size("index_n_heads")?.unwrap_or(heads),
            dim: config.opt_size("index_head_dim")?.unwrap_or(128),
            most: config.opt_size("index_topk")?.unwrap_or(2048),
            pairs,
            has_own: vec![true; layers as usize],
        };
        let IndexParts { heads, dim, .. } = parts;
        let rope = config.size("qk_rope_head_dim")?;
        if dim <= rope || i64::from(heads) * i64::from(dim) > i64::from(i32::MAX) {
            return Err(Error::model(format!(
                "config.json: `index_head_dim` is {dim}, expected more than the {rope} values of `qk_rope_head_dim`, and heads that fit"
            )));
        }
        Ok(parts)
    }

    /// These, with an index in some of the layers alone.
    ///
    /// # Errors
    /// Another number of layers; a first layer without an index.
    pub fn with_own(self, has_own: Vec<bool>) -> Result<IndexParts> {
        if has_own.len() != self.has_own.len() || has_own.first() == Some(&false) {
            return Err(Error::model(format!(
                "config.json: `indexer_types` has {} entries for {} layers, of which the first has an index of its own",
                has_own.len(),
                self.has_own.len()
            )));
        }
        Ok(IndexParts { has_own, ..self })
    }
}

impl Shape {
    /// The latent attention under `w`, of the layer `index`, to the keys that `parts` choose.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit; parts that do not go together.
    pub fn indexed_attention(
        &self,
        w: &Weights,
        latent: &LatentParts,
        parts: &IndexParts,
        index: usize,
    ) -> Result<LatentAttention> {
        let (Some(rank), Some(rope)) = (latent.query_rank, &latent.rope) else {
            return Err(Error::model("config.json: an index needs `q_lora_rank` and positions"));
        };
        let has_all = parts.has_own.iter().all(|own| *own);
        if !has_all && w.stage().is_some() {
            return Err(Error::model(
                "config.json: `indexer_types` shares choices between layers, which ranks that split layers do not",
            ));
        }
        let choice = match parts.has_own.get(index) {
            Some(false) => KeyChoice::Last,
            _ => KeyChoice::Indexed(Box::new(self.indexer(&w.at("indexer"), parts, rank, rope)?)),
        };
        Ok(LatentAttention { choice, ..self.latent_attention(w, latent)? })
    }

    /// The indexer under `w`, of queries of so low a `rank`.
    fn indexer(
        &self,
        w: &Weights,
        parts: &IndexParts,
        rank: i32,
        rope: &RopeConfig,
    ) -> Result<Indexer> {
        let &IndexParts { heads, dim, most, pairs, .. } = parts;
        let rope_dims = self.head_dim;
        Ok(Indexer {
            heads,
            dim,
            rope_dims,
            most,
            queries: w.linear("wq_b", rank, heads * dim, false)?,
            keys: w.linear("wk", self.hidden_size, dim, false)?,
            key_norm: w.layer_norm("k_norm", dim, EPS)?,
            weights: w.linear("weights_proj", self.hidden_size, heads, false)?,
            rope: Rope::new(rope_dims, &RopeConfig { pairs, ..rope.clone() })?,
        })
    }
}
