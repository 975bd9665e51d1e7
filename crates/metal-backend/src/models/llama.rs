//! Llama 2 and 3, and the many models of their form: grouped-query attention with rotary
//! positions, a gated SiLU network, a norm before each.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Shape, activation, windows};
use crate::weights::Weights;

/// Builds the model under the names of `LlamaForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let shape = Shape::read(config)?;
    let rope = config.rope("full_attention", 10_000.0)?;
    let attention_bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let mlp_bias = config.opt_flag("mlp_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let sliding_window = config.opt_size("sliding_window")?;
    let windows = windows(config, shape.num_hidden_layers, sliding_window, |_| false)?;
    shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts {
            qkv_bias: attention_bias,
            o_bias: attention_bias,
            window: windows[index],
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.pre_norm_block(w, attention, shape.mlp(&w.at("mlp"), act, mlp_bias)?)
    })
}
