//! Latent attention built from a config.

use super::Shape;
use super::split::latent_of_rank;
use crate::config::{Config, RopeConfig};
use crate::error::{Error, Result};
use crate::layers::{KeyChoice, LatentAttention, LatentQueries, LatentSizes, Rope};
use crate::weights::Weights;

/// The norms inside latent attention have this one, whatever the config's is, as in transformers.
const EPS: f32 = 1e-6;

/// The sizes and properties of latent attention, by a config.
#[derive(Clone, Debug)]
pub(crate) struct LatentParts {
    pub sizes: LatentSizes,
    /// The rank of the queries' projections, where these are two.
    pub query_rank: Option<i32>,
    /// The projections from and to the residual stream have biases, but for a whole one to queries.
    pub bias: bool,
    /// How the `rope` values see positions, where they do.
    pub rope: Option<RopeConfig>,
    /// The factor of scores beside 1 / √(nope + rope).
    pub score_factor: f64,
}

impl LatentParts {
    /// Reads `config` under the names of DeepSeek V3, without positions.
    ///
    /// # Errors
    /// A key that is missing or wrong; sizes that are too large.
    pub fn read(config: &Config) -> Result<LatentParts> {
        let sizes = LatentSizes {
            heads: config.size("num_attention_heads")?,
            rank: config.size("kv_lora_rank")?,
            nope: config.size("qk_nope_head_dim")?,
            rope: config.size("qk_rope_head_dim")?,
            value: config.size("v_head_dim")?,
        };
        let LatentSizes { heads, rank, nope, rope, value } = sizes;
        let shared = config.opt_size("num_key_value_heads")?.unwrap_or(heads);
        if shared != heads {
            return Err(Error::model(format!(
                "config.json: `num_key_value_heads` is {shared} of {heads} heads, and in latent attention each head has its own keys"
            )));
        }
        let widest = [rank, nope, rope, value].map(i64::from).iter().sum::<i64>();
        if i64::from(heads).saturating_mul(widest) > i64::from(i32::MAX) {
            return Err(Error::model("config.json: heads times their dimensions exceed 2³¹ - 1"));
        }
        Ok(LatentParts {
            sizes,
            query_rank: config.opt_size("q_lora_rank")?,
            bias: config.opt_flag("attention_bias")?.unwrap_or(false),
            rope: None,
            score_factor: 1.0,
        })
    }
}

impl Shape {
    /// The sizes that `config` states, of a model whose attention is latent.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_latent(config: &Config) -> Result<Shape> {
        // Heads have parts, of which this one sees positions; a width of whole heads means nothing
        // here.
        Shape::of_heads(config, Some(config.size("qk_rope_head_dim")?))
    }

    /// The latent attention under `w`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn latent_attention(&self, w: &Weights, parts: &LatentParts) -> Result<LatentAttention> {
        let LatentParts { sizes, query_rank, bias, rope, score_factor } = parts;
        let (w, sizes) = &latent_of_rank(w, *sizes);
        let LatentSizes { heads, rank, nope, rope: dims, value } = *sizes;
        let hidden = self.hidden_size;
        // Before any tensor is taken: what the config says wrongly is named as such.
        let rope = rope.as_ref().map(|rope| {
            self.rotary_dims(rope)?;
            Ok::<_, Error>(Rope::new(dims, rope)?)
        });
        let rope = rope.transpose()?;
        let width = heads * (nope + dims);
        let queries = match *query_rank {
            None => LatentQueries::Whole(w.linear("q_proj", hidden, width, false)?),
            Some(rank) => LatentQueries::LowRank {
                down: w.linear("q_a_proj", hidden, rank, *bias)?,
                norm: w.rms_norm("q_a_layernorm", rank, EPS)?,
                up: w.linear("q_b_proj", rank, width, false)?,
            },
        };
        let [embed_q, unembed_out] = w.latent_heads(*sizes)?;
        let scale = f64::from(nope + dims).sqrt().recip() * score_factor;
        Ok(LatentAttention {
            sizes: *sizes,
            scale: scale as f32,
            queries,
            latents: w.linear("kv_a_proj_with_mqa", hidden, rank + dims, *bias)?,
            latent_norm: w.rms_norm("kv_a_layernorm", rank, EPS)?,
            embed_q,
            unembed_out,
            rope,
            position_scale: None,
            choice: KeyChoice::All,
            o_proj: w.linear("o_proj", heads * value, hidden, *bias)?,
            kernels: w.kernels(),
        })
    }
}
