//! EXAONE 3, 3.5 and Deep: Llama's form under the names of GPT-2.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, ExpertNames, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `ExaoneForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config
        .with_names(&[
            ("num_layers", "num_hidden_layers"),
            ("layer_norm_epsilon", "rms_norm_eps"),
            ("activation_function", "hidden_act"),
        ])
        .with_default_number("rms_norm_eps", 1e-5);
    let shape =
        Shape { embeddings: "wte", layers: "h", final_norm: "ln_f", ..Shape::read(config)? };
    let rope = config.rope("full_attention", 500_000.0)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let mlp_bias = config.opt_flag("mlp_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    shape.decoder(config, w, &w.at("transformer"), |w, _| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            o_name: "out_proj",
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("attn.attention"), Some(&rope), parts)?;
        let (gate, up, down) = ("c_fc_0", "c_fc_1", "c_proj");
        let names = ExpertNames { gate, up, down, ..ExpertNames::PROJ };
        let inner = shape.intermediate_size;
        let mlp = shape.mlp_named(&w.at("mlp"), names, inner, act, mlp_bias)?;
        shape.pre_norm_block_named(w, ["ln_1", "ln_2"], attention, mlp.into())
    })
}
