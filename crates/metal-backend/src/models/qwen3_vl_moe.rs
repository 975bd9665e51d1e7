//! Qwen 3 VL with a mixture of experts in the place of most feed-forward networks.

use super::qwen3_5::VISION;
use super::{qwen3_moe, qwen3_vl};
use crate::config::Config;
use crate::error::Result;
use crate::layers::{Decoder, Routing};
use crate::shape::{Language, qwen_tower};
use crate::weights::Weights;

/// Builds `Qwen3VLMoeForConditionalGeneration`. The weights of the chosen experts are divided by
/// their sum, as transformers does without a key.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let tower = qwen_tower(config, w, Language::width(config)?)?;
    let Language { config, head, model } = Language::of(config, w, &VISION)?;
    if let (Some(false), Some(value)) =
        (config.opt_flag("norm_topk_prob")?, config.get("norm_topk_prob"))
    {
        let expected = "the weights of the chosen experts to be divided by their sum";
        return Err(config.wrong("norm_topk_prob", value, expected));
    }
    let rope = qwen3_vl::rope(&config)?;
    let decoder = qwen3_moe::build(&config, &head, &model, (rope, || Routing::Normalised))?;
    Ok(Decoder { tower, ..decoder })
}
