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
        let mut block = shape.pre_norm_block(w, glm.attention(&w.at("self_attn"))?, mlp)?;
        let norm = |name| shape.norm(w, name, shape.hidden_size);
        block.mixer_out_norm = Some(norm("post_self_attn_layernorm")?);
        block.mlp_out_norm = Some(norm("post_mlp_layernorm")?);
        Ok(block)
    })
}
