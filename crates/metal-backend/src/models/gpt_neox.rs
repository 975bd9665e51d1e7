//! GPT-NeoX, Pythia and Dolly: layer norms, biases, a network without a gate, and a part of each
//! head rotated; attention and network see norms of their own and mostly add at once.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Block, Decoder, Residual};
use crate::shape::{AttentionParts, Norms, Shape, Ungated};
use crate::weights::Weights;

/// Builds the model under the names of `GPTNeoXForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config
        .with_names(&[("rotary_pct", "partial_rotary_factor"), ("rotary_emb_base", "rope_theta")])
        .with_default_number("partial_rotary_factor", 0.25);
    let shape = Shape {
        rms_norm_eps: config.opt_positive("layer_norm_eps")?.unwrap_or(1e-5) as f32,
        norms: Norms::Layer { has_bias: true },
        embeddings: "embed_in",
        final_norm: "final_layer_norm",
        // Releases call the output layer so, transformers has another name for it since.
        head: if w.at("embed_out").is_empty() { "lm_head" } else { "embed_out" },
        ..Shape::read(config)?
    };
    if shape.num_key_value_heads != shape.num_attention_heads {
        return Err(Error::model(format!(
            "config.json: `num_key_value_heads` is {}, expected one for each of {} heads",
            shape.num_key_value_heads, shape.num_attention_heads
        )));
    }
    let rope = config.partial_rope("full_attention", 10_000.0)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(true);
    let is_parallel = config.opt_flag("use_parallel_residual")?.unwrap_or(true);
    let act = Ungated::read(config, "hidden_act", Ungated::Known(Activation::Gelu))?;
    // Beside the mask, older programs save the value of what it hides.
    w.ignore(|name| name.ends_with(".attention.masked_bias"));
    shape.decoder(config, w, &w.at("gpt_neox"), |w, _| {
        // In files of GGUF, all queries stand before all keys.
        let fused_qkv = !w.at("attention.qkv_proj").is_empty();
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            o_name: "dense",
            fused_qkv,
            grouped_qkv: (!fused_qkv).then_some("query_key_value"),
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("attention"), Some(&rope), parts)?;
        let names = ["dense_h_to_4h", "dense_4h_to_h"];
        let mlp = shape.plain_mlp(&w.at("mlp"), names, act, true)?;
        let block = shape.pre_norm_block(w, attention, mlp)?;
        let residual = if is_parallel { Residual::Parallel } else { Residual::Sum };
        Ok(Block { residual, ..block })
    })
}
