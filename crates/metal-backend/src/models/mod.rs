//! The architectures: one file each, and one line here.

mod apertus;
mod arcee;
mod bert;
mod cohere;
mod cohere2;
mod deepseek_v3;
mod encoders;
mod ernie4_5_moe;
mod exaone;
mod exaone4;
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
mod gpt_neox;
mod gpt_oss;
mod granite;
mod granitemoehybrid;
mod helium;
mod hunyuan_v1_dense;
mod internlm2;
mod internlm3;
mod kimi_linear;
mod laguna;
mod lfm2;
mod lfm2_moe;
mod llama;
mod mimo;
mod minicpm;
mod minimax_m2;
mod ministral;
mod ministral3;
mod mistral;
mod mistral3;
mod mixtral;
mod modernbert;
mod muse_glimmer;
mod nemotron;
mod nemotron_h;
mod olmo;
mod olmo2;
mod olmo3;
mod phi;
mod phi3;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_5;
mod qwen3_5_moe;
mod qwen3_moe;
mod qwen3_next;
mod qwen3_vl;
mod qwen3_vl_moe;
mod seed_oss;
mod smollm3;
mod stablelm;
mod starcoder2;
mod xlm_roberta;

use serde_json::Value;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::layers::{ClassHead, Decoder, TextEncoder};
use crate::weights::Weights;

pub(crate) use encoders::encoder_named;

/// Builds a model from its config and takes its weights.
type Load = fn(&Config, &Weights) -> Result<Decoder>;

/// Each `model_type` with its builder.
const REGISTRY: &[(&str, Load)] = &[
    ("apertus", apertus::load),
    ("arcee", arcee::load),
    ("cohere", cohere::load),
    ("cohere2", cohere2::load),
    ("deepseek_v3", deepseek_v3::load),
    ("ernie4_5_moe", ernie4_5_moe::load),
    ("exaone", exaone::load),
    ("exaone4", exaone4::load),
    ("falcon_h1", falcon_h1::load),
    ("gemma", gemma::load),
    ("gemma2", gemma2::load),
    ("gemma3", gemma3::load),
    ("gemma3_text", gemma3_text::load),
    ("gemma3n", gemma3n::load),
    ("gemma3n_text", gemma3n::load_text),
    ("gemma4", gemma4::load),
    ("gemma4_text", gemma4::load_text),
    ("glm", glm::load),
    ("glm4", glm4::load),
    ("glm4_moe", glm4_moe::load),
    ("glm4_moe_lite", glm4_moe_lite::load),
    ("gpt_neox", gpt_neox::load),
    ("gpt_oss", gpt_oss::load),
    ("granite", granite::load),
    ("granitemoehybrid", granitemoehybrid::load),
    ("helium", helium::load),
    ("hunyuan_v1_dense", hunyuan_v1_dense::load),
    ("internlm2", internlm2::load),
    ("internlm3", internlm3::load),
    ("kimi_linear", kimi_linear::load),
    ("laguna", laguna::load),
    ("lfm2", lfm2::load),
    ("lfm2_moe", lfm2_moe::load),
    ("llama", llama::load),
    ("mimo", mimo::load),
    ("minicpm", minicpm::load),
    ("minimax_m2", minimax_m2::load),
    ("ministral", ministral::load),
    ("ministral3", ministral3::load),
    ("mistral", mistral::load),
    ("mistral3", mistral3::load),
    ("mixtral", mixtral::load),
    ("muse_glimmer", muse_glimmer::load),
    ("nemotron", nemotron::load),
    ("nemotron_h", nemotron_h::load),
    ("olmo", olmo::load),
    ("olmo2", olmo2::load),
    ("olmo3", olmo3::load),
    ("phi", phi::load),
    ("phi3", phi3::load),
    ("qwen2", qwen2::load),
    ("qwen2_moe", qwen2_moe::load),
    ("qwen3", qwen3::load),
    ("qwen3_5", qwen3_5::load),
    ("qwen3_5_moe", qwen3_5_moe::load),
    ("qwen3_5_moe_text", qwen3_5_moe::load_text),
    ("qwen3_5_text", qwen3_5::load_text),
    ("qwen3_moe", qwen3_moe::load),
    ("qwen3_next", qwen3_next::load),
    ("qwen3_vl", qwen3_vl::load),
    ("qwen3_vl_moe", qwen3_vl_moe::load),
    ("seed_oss", seed_oss::load),
    ("smollm3", smollm3::load),
    ("stablelm", stablelm::load),
    ("starcoder2", starcoder2::load),
];

/// The names of the architectures, sorted.
pub(crate) const ARCHITECTURES: [&str; REGISTRY.len()] = {
    let mut names = [""; REGISTRY.len()];
    let mut index = 0;
    while index < REGISTRY.len() {
        names[index] = REGISTRY[index].0;
        index += 1;
    }
    names
};

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
    let is_prefixed = config.get("text_config").is_none() && !prefixed.is_empty();
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

/// The architecture of `config` with its builder.
fn registered(config: &Config) -> Result<(&'static str, Load)> {
    let model_type = model_type(config)?;
    let found = REGISTRY.iter().find(|(name, _)| *name == model_type);
    Ok(*found.expect("`model_type` returns names of the registry only"))
}

/// The architecture's name, where it is one of ours.
///
/// # Errors
/// A config without one, or with another one.
pub(crate) fn model_type(config: &Config) -> Result<&'static str> {
    let name = config
        .opt_text("model_type")?
        .ok_or_else(|| Error::model("config.json: key `model_type` is missing"))?;
    ARCHITECTURES.into_iter().find(|known| *known == name).ok_or_else(|| {
        if encoder_named(name).is_some() {
            return Error::model(format!(
                "config.json: `{name}` generates no text, it encodes texts: use `ml embed`, `ml rerank` or `ml serve --embedding-model`"
            ));
        }
        Error::model(format!(
            "config.json: architecture `{name}` is not known; nearest are {}; known are {}",
            nearest(name).join(", "),
            ARCHITECTURES.join(", ")
        ))
    })
}

/// The three names that are most like `name`, the nearest first.
fn nearest(name: &str) -> Vec<&'static str> {
    let mut names = ARCHITECTURES.to_vec();
    names.sort_by_cached_key(|known| strsim::damerau_levenshtein(name, known));
    names.truncate(3);
    names
}
