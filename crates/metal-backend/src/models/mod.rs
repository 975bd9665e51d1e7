//! The architectures: one file each, and one line here and in `registry`.

mod afmoe;
mod apertus;
mod arcee;
mod bailing_moe;
mod bert;
mod cohere;
mod cohere2;
mod cohere2_moe;
mod deepseek_v2;
mod deepseek_v3;
mod deepseek_v32;
mod dots1;
mod encoders;
mod ernie4_5_moe;
mod exaone;
mod exaone4;
mod exaone_moe;
mod falcon_h1;
mod gemma;
mod gemma2;
mod gemma3;
mod gemma3_text;
mod gemma3n;
mod gemma4;
mod glm;
mod glm4;
mod glm4_moe;
mod glm4_moe_lite;
mod glm_moe_dsa;
mod gpt_neox;
mod gpt_oss;
mod granite;
mod granitemoe;
mod granitemoehybrid;
mod helium;
mod hunyuan_v1_dense;
mod hunyuan_v1_moe;
mod internlm2;
mod internlm3;
mod kimi_k25;
mod kimi_linear;
mod laguna;
mod lfm2;
mod lfm2_moe;
mod lfm3;
mod llama;
mod llama4;
mod mamba;
mod mamba2;
mod mellum;
mod mimo;
mod minicpm;
mod minimax_m2;
mod ministral;
mod ministral3;
mod mistral;
mod mistral3;
mod mistral4;
mod mixtral;
mod modernbert;
mod muse_glimmer;
mod nemotron;
mod nemotron_h;
mod olmo;
mod olmo2;
mod olmo3;
mod olmoe;
mod phi;
mod phi3;
mod phimoe;
mod qwen2;
mod qwen2_5_vl;
mod qwen2_moe;
mod qwen2_vl;
mod qwen3;
mod qwen3_5;
mod qwen3_5_moe;
mod qwen3_moe;
mod qwen3_next;
mod qwen3_vl;
mod qwen3_vl_moe;
mod recurrent_gemma;
mod registry;
mod seed_oss;
mod smollm3;
mod solar_open;
mod stablelm;
mod starcoder2;
mod xlm_roberta;

use serde_json::Value;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::layers::{ClassHead, Decoder, TextEncoder};
use crate::weights::Weights;

pub(crate) use encoders::encoder_named;
use registry::registered;
pub(crate) use registry::{ARCHITECTURES, model_type};

/// Builds the model that `config` describes from `weights`.
///
/// # Errors
/// An unknown architecture, a config or a tensor that does not fit.
pub(crate) fn load(config: &Config, weights: &Weights) -> Result<Decoder> {
    let (_, load) = registered(config)?;
    // Others say here which part of them sees both ways.
    if config.get("use_bidirectional_attention") == Some(&Value::Bool(true)) {
        return Err(Error::model(
            "config.json: `use_bidirectional_attention` is true: the model generates no text, it embeds texts: use `ml embed`",
        ));
    }
    // mlx-vlm puts a prefix before all tensors of models that see nothing.
    let prefixed = weights.at("language_model");
    let is_text = ["text_config", "vision_config"].iter().all(|key| config.get(key).is_none());
    let is_prefixed = is_text && !prefixed.is_empty();
    load(config, if is_prefixed { &prefixed } else { weights })
}

/// Builds the model of whole texts that `config` describes from `weights`: an encoder, or a decoder
/// whose layers see each text by itself. The head is there where the checkpoint scores pairs by
/// one.
///
/// # Errors
/// An unknown architecture, a decoder that cannot, a config or a tensor that does not fit.
pub(crate) fn load_encoder(
    config: &Config,
    weights: &Weights,
) -> Result<(TextEncoder, Option<ClassHead>)> {
    if let Some(encoder) = encoders::load(config, weights)? {
        return Ok(encoder);
    }
    let (model_type, load) = registered(config)?;
    let decoder = load(config, weights)?;
    match decoder.refuses_texts() {
        None => Ok((TextEncoder::Decoder(Box::new(decoder)), None)),
        Some(reason) => Err(Error::model(format!(
            "config.json: architecture `{model_type}` embeds no texts here: {reason}"
        ))),
    }
}
