//! GLM 4 of 9B, the first release: Llama's form with fused projections into the network, in which
//! neighbouring values of a half of each head are rotated together.

use crate::config::{Config, RopeConfig, RopePairs};
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{Attention, Decoder};
use crate::shape::{AttentionParts, Shape, activation};
use crate::weights::Weights;

/// The common parts of GLM's and GLM 4's layers.
pub(super) struct Glm {
    pub shape: Shape,
    pub activation: Activation,
    rope: RopeConfig,
    bias: bool,
}

impl Glm {
    /// Reads the config.
    pub fn read(config: &Config) -> Result<Glm> {
        let config = &config
            .with_default_number("rms_norm_eps", 1.5625e-7)
            .with_default_number("partial_rotary_factor", 0.5)
            .with_defaults(&[("head_dim", 128)]);
        let rope = config.partial_rope("full_attention", 10_000.0)?;
        Ok(Glm {
            shape: Shape::read(config)?,
            activation: activation(config, "hidden_act", Activation::Silu)?,
            rope: RopeConfig { pairs: RopePairs::Neighbours, ..rope },
            bias: config.opt_flag("attention_bias")?.unwrap_or(true),
        })
    }

    /// The attention layer under `w`.
    pub fn attention(&self, w: &Weights) -> Result<Attention> {
        let parts = AttentionParts { qkv_bias: self.bias, ..AttentionParts::PLAIN };
        self.shape.attention(w, Some(&self.rope), parts)
    }
}

/// Builds the model under the names of `GlmForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let glm = Glm::read(config)?;
    let shape = &glm.shape;
    shape.decoder(config, w, &w.at("model"), |w, _| {
        let mlp = shape.fused_mlp(&w.at("mlp"), glm.activation)?;
        shape.pre_norm_block(w, glm.attention(&w.at("self_attn"))?, mlp)
    })
}
