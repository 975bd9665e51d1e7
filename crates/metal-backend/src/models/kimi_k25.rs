//! The language part of Kimi K2.5 and K2.6, which is DeepSeek V3's form.

use super::deepseek_v3;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::layers::Decoder;
use crate::shape::Language;
use crate::weights::Weights;

/// The vision tower and its projection, as released and as transformers saves them.
const VISION: [&str; 3] = ["vision_tower.", "mm_projector.", "multi_modal_projector."];

/// Builds the language model of `KimiK25ForConditionalGeneration`; the vision tower is left aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let Language { config, head, model } = Language::of(config, w, &VISION)?;
    // Releases state there how their experts are packed.
    config.default_quantization()?;
    if let Some(other) =
        config.opt_text("model_type")?.filter(|name| !["kimi_k2", "deepseek_v3"].contains(name))
    {
        return Err(Error::model(format!(
            "config.json: `text_config` has the `model_type` `{other}`, known are kimi_k2, deepseek_v3"
        )));
    }
    deepseek_v3::build_at(&config, &head, &model)
}
