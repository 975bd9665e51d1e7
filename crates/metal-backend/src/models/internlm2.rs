//! InternLM 2 and 2.5: Llama's form under other names; queries, keys and values come from one
//! matrix, which has them by heads of keys.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, ExpertNames, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `InternLM2ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_default_number("rms_norm_eps", 1e-6);
    let shape = Shape { embeddings: "tok_embeddings", head: "output", ..Shape::read(config)? };
    let rope = config.rope("full_attention", 10_000.0)?;
    let bias = config.opt_flag("bias")?.unwrap_or(true);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    shape.decoder(config, w, &w.at("model"), |w, _| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            o_name: "wo",
            grouped_qkv: Some("wqkv"),
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("attention"), Some(&rope), parts)?;
        let (names, inner) = (ExpertNames::NUMBERED, shape.intermediate_size);
        let mlp = shape.mlp_named(&w.at("feed_forward"), names, inner, act, false)?;
        shape.pre_norm_block_named(w, ["attention_norm", "ffn_norm"], attention, mlp.into())
    })
}
