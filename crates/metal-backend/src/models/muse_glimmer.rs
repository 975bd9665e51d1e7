//! The language part of Muse Glimmer: normed embeddings, norms before and behind both halves of a
//! block, queries and keys of one length, and a gated attention; every fourth layer sees everything
//! and no positions.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{Attention, Decoder, OutputGate, QkNorms};
use crate::shape::{AttentionParts, Language, Norms, Shape, activation, layer_ropes, windows};
use crate::weights::Weights;

/// Builds the language model of `MuseGlimmerForConditionalGeneration`; the vision tower is left
/// aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let vision = ["vision_tower.", "vision_adapter.", "vision_projection."];
    // Conversions may have the language part's keys outside.
    let nested = config.object("text_config")?.is_some();
    let nest = if nested { config.clone() } else { config.nested("text_config") };
    let Language { config, head, model } = Language::of(&nest, w, &vision)?;
    let shape = Shape::read(&config)?;
    let layers = shape.num_hidden_layers;
    let is_fourth = |index: i32| (layers - 1 - index) % 4 == 0;
    let window = config.opt_size("sliding_window")?;
    let windows = windows(&config, layers, window, |index| !is_fourth(index))?;
    let rope = config.rope("full_attention", 500_000.0)?;
    let ropes = match layer_ropes(&config, &rope, layers)? {
        Some(ropes) => ropes,
        None => (0..layers).map(|index| (!is_fourth(index)).then(|| rope.clone())).collect(),
    };
    let act = activation(&config, "hidden_activation", Activation::Silu)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let q_size = config.opt_positive("qk_scale_factor")?.unwrap_or(3.87) as f32;
    let post_eps = config.opt_positive("post_norm_eps")?.unwrap_or(1e-8) as f32;
    let (eps, hidden) = (shape.rms_norm_eps, shape.hidden_size);
    let blocks = Shape { norms: Norms::OffsetRms, ..shape.clone() };
    let embed_norm = model.plain_rms_norm(hidden, eps)?;
    let decoder = shape.decoder(&config, &head, &model, |w, index| {
        let attn = w.at("self_attn");
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            window: windows[index],
            // The gate of its output is one for all heads.
            is_whole: true,
            ..AttentionParts::PLAIN
        };
        let norm = || attn.plain_rms_norm(shape.head_dim, eps);
        let width = shape.num_attention_heads * shape.head_dim;
        let attention = Attention {
            qk_norms: QkNorms::Heads { q_norm: norm()?.scaled(q_size)?, k_norm: norm()? },
            gate: OutputGate::Sigmoid(attn.linear("gate_proj", hidden, width, false)?),
            ..shape.attention(&attn, ropes[index].as_ref(), parts)?
        };
        let mlp = shape.mlp(&w.at("mlp"), act, false)?;
        let mut block = blocks.sandwich_block(w, attention, mlp)?;
        let behind = [&mut block.mixer_out_norm, &mut block.mlp_out_norm];
        behind.into_iter().flatten().for_each(|norm| norm.eps = post_eps);
        Ok(block)
    })?;
    let scale = config.opt_positive("output_multiplier")?.unwrap_or(0.196_116_135_138_184_04);
    let softcap = config.nullable_positive("final_logit_softcapping", Some(20.0))?;
    Ok(Decoder {
        embed_norm: Some(embed_norm),
        logit_scale: Some(scale as f32),
        logit_softcap: softcap.map(|softcap| softcap as f32),
        ..decoder
    })
}
