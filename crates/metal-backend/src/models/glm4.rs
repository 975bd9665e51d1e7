//! GLM 4, 4.1 and Z1 of 9B and 32B: GLM's form with norms behind both halves of a block too.

use super::glm::Glm;
use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::weights::Weights;

/// Builds the model under the names of `Glm4ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let glm = Glm::read(config)?;
    let shape = &glm.shape;
    shape.decoder(config, w, &w.at("model"), |w, _| {
        let mlp = shape.fused_mlp(&w.at("mlp"), glm.activation)?;
        let names = [
            "input_layernorm",
            "post_self_attn_layernorm",
            "post_attention_layernorm",
            "post_mlp_layernorm",
        ];
        shape.sandwich_block_named(w, names, glm.attention(&w.at("self_attn"))?, mlp)
    })
}
