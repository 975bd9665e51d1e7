//! The architectures: one file each, and one line here.

mod gemma2;
mod gemma3;
mod gemma3_text;
mod gpt_oss;
mod llama;
mod mistral;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_5;
mod qwen3_moe;
mod smollm3;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::layers::Decoder;
use crate::weights::Weights;

/// Builds a model from its config and takes its weights.
type Load = fn(&Config, &Weights) -> Result<Decoder>;

/// Each `model_type` with its builder.
const REGISTRY: &[(&str, Load)] = &[
    ("gemma2", gemma2::load),
    ("gemma3", gemma3::load),
    ("gemma3_text", gemma3_text::load),
    ("gpt_oss", gpt_oss::load),
    ("llama", llama::load),
    ("mistral", mistral::load),
    ("olmo2", olmo2::load),
    ("phi3", phi3::load),
    ("qwen2", qwen2::load),
    ("qwen3", qwen3::load),
    ("qwen3_5", qwen3_5::load),
    ("qwen3_5_text", qwen3_5::load_text),
    ("qwen3_moe", qwen3_moe::load),
    ("smollm3", smollm3::load),
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
    let model_type = model_type(config)?;
    let (_, load) = REGISTRY
        .iter()
        .find(|(name, _)| *name == model_type)
        .expect("`model_type` returns names of the registry only");
    load(config, weights)
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
        Error::model(format!(
            "config.json: architecture `{name}` is not known; known are {}",
            ARCHITECTURES.join(", ")
        ))
    })
}
