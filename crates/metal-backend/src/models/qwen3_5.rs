//! Qwen 3.5, 3.6 and 3.8: three gated delta nets to one attention layer, whose output is gated.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Decoder, Mixer};
use crate::shape::{AttentionParts, NormSpan, Shape, activation};
use crate::weights::Weights;

/// Builds the language model of `Qwen3_5ForConditionalGeneration`; the vision tower and the layers that
/// predict further tokens are set aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let text = config
        .object("text_config")?
        .ok_or_else(|| Error::model("config.json: key `text_config` is missing"))?
        .with_fallback(config, "tie_word_embeddings");
    w.leave_part("vision tower", |name| {
        name.starts_with("model.visual.") || name.starts_with("vision_tower.")
    });
    // Released as `model.language_model.…`, converted by mlx-lm to `language_model.model.…`.
    let released = w.at("model.language_model");
    if released.is_empty() {
        let language_model = w.at("language_model");
        build(&text, &language_model, &language_model.at("model"))
    } else {
        build(&text, w, &released)
    }
}

/// Builds `Qwen3_5ForCausalLM`, the language model by itself.
pub(super) fn load_text(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &w.at("model"))
}

/// Builds the model of `config` whose blocks are under `model`, the output layer beside it under `w`.
fn build(config: &Config, w: &Weights, model: &Weights) -> Result<Decoder> {
    let prefix = w.prefix();
    w.leave_part("MTP layers", |name| {
        name.starts_with("mtp.")
            || name.strip_prefix(&prefix).is_some_and(|n| n.starts_with("mtp."))
    });
    let shape = Shape::read(config)?;
    let kinds = layer_kinds(config, shape.num_hidden_layers)?;
    // Released norms are stored as their distance from 1, converted ones as they are.
    let shape = Shape { offset_norms: is_released(model, &kinds), ..shape };
    let sizes = shape.delta_sizes(config)?;
    let rope = config
        .with_default_number("partial_rotary_factor", 0.25)
        .partial_rope("full_attention", 10_000_000.0)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    if kinds.len() != shape.num_hidden_layers as usize {
        return Err(Error::model(format!(
            "config.json: `layer_types` has {} entries for {} layers",
            kinds.len(),
            shape.num_hidden_layers
        )));
    }
    shape.decoder(config, w, model, |w, index| {
        let mixer: Mixer = match kinds[index] {
            Kind::Delta => shape.delta_net(&w.at("linear_attn"), sizes)?.into(),
            Kind::Attention => {
                let parts = AttentionParts {
                    qkv_bias: bias,
                    o_bias: bias,
                    qk_norms: NormSpan::Head,
                    output_gate: config.opt_flag("attn_output_gate")?.unwrap_or(true),
                    ..AttentionParts::PLAIN
                };
                shape.attention(&w.at("self_attn"), Some(&rope), parts)?.into()
            }
        };
        shape.pre_norm_block(w, mixer, shape.mlp(&w.at("mlp"), act, false)?)
    })
}

/// What mixes the tokens of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Delta,
    Attention,
}

/// The kinds of all layers: by `layer_types`, else attention every `full_attention_interval` layers.
fn layer_kinds(config: &Config, layers: i32) -> Result<Vec<Kind>> {
    let Some(types) = config.opt_texts("layer_types")? else {
        let interval = config.opt_size("full_attention_interval")?.unwrap_or(4);
        let kind = |index: i32| match (index + 1) % interval {
            0 => Kind::Attention,
            _ => Kind::Delta,
        };
        return Ok((0..layers).map(kind).collect());
    };
    let kinds = types.into_iter().map(|kind| match kind {
        "linear_attention" => Ok(Kind::Delta),
        "full_attention" => Ok(Kind::Attention),
        other => Err(Error::model(format!(
            "config.json: `layer_types` names `{other}`, known are linear_attention, full_attention"
        ))),
    });
    kinds.collect()
}

/// Whether the weights are as released: their convolutions have the taps last.
fn is_released(model: &Weights, kinds: &[Kind]) -> bool {
    let first = kinds.iter().position(|kind| *kind == Kind::Delta).unwrap_or(0);
    let shape = model.shape(&format!("layers.{first}.linear_attn.conv1d.weight"));
    shape.is_some_and(|shape| shape.last() != Some(&1))
}
