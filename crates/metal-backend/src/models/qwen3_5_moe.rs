//! Qwen 3.5 to 3.8 with a mixture of experts in every layer, beside one that all positions pass.

use super::qwen3_5::{Hybrid, THETA, VISION};
use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{Language, SharedExperts, activation, qwen_tower};
use crate::weights::Weights;

/// Builds `Qwen3_5MoeForConditionalGeneration`; the layers that predict further tokens are set
/// aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let tower = qwen_tower(config, w, Language::width(config)?)?;
    let Language { config, head, model } = Language::of(config, w, &VISION)?;
    Ok(Decoder { tower, ..build(&config, &head, &model)? })
}

/// Builds `Qwen3_5MoeForCausalLM`, the language model by itself.
pub(super) fn load_text(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &w.at("model"))
}

fn build(config: &Config, w: &Weights, model: &Weights) -> Result<Decoder> {
    refuse_others(config)?;
    let experts = SharedExperts::read(config, NORMALISES)?;
    // No layer has a dense network, and the config does not size one.
    let inner = i64::from(config.size("moe_intermediate_size")?);
    let sized = config.with_defaults(&[("intermediate_size", inner)]);
    let hybrid = Hybrid::read(&sized, model, THETA)?;
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let decoder =
        hybrid.decoder(config, w, model, |w, _| experts.build(&hybrid.shape, &w.at("mlp"), act))?;
    Ok(experts.widen(decoder))
}

/// The weights of the chosen experts are divided by their sum.
const NORMALISES: bool = true;

/// Refuses what the references read for other models of Qwen, and not for this one.
fn refuse_others(config: &Config) -> Result<()> {
    let expected = "all layers to have experts whose weights are divided by their sum";
    let is_other = |key: &str| -> Result<bool> {
        Ok(match key {
            "mlp_only_layers" => config.opt_indices(key)?.is_some_and(|layers| !layers.is_empty()),
            "decoder_sparse_step" => config.opt_size(key)?.is_some_and(|step| step != 1),
            _ => config.opt_flag(key)? == Some(false),
        })
    };
    for key in ["mlp_only_layers", "decoder_sparse_step", "norm_topk_prob"] {
        if let (true, Some(value)) = (is_other(key)?, config.get(key)) {
            return Err(config.wrong(key, value, expected));
        }
    }
    Ok(())
}
