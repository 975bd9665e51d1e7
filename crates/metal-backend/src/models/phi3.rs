//! Phi 3, 3.5 and 4: Llama's form with fused projections; some rotate a part of each head only, and
//! stretch the wavelengths of long sequences (LongRoPE).

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Shape, activation, windows};
use crate::weights::Weights;

/// Builds the model under the names of `Phi3ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_defaults(&[("original_max_position_embeddings", 4096)]);
    let shape = Shape::read(config)?;
    let rope = config.partial_rope("full_attention", 10_000.0)?;
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let sliding_window = config.opt_size("sliding_window")?;
    let windows = windows(config, shape.num_hidden_layers, sliding_window, |_| true)?;
    shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts =
            AttentionParts { fused_qkv: true, window: windows[index], ..AttentionParts::PLAIN };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.pre_norm_block(w, attention, shape.fused_mlp(&w.at("mlp"), act)?)
    })
}
