//! The multimodal Mistral checkpoints: Mistral Small 3.1 to 4, Ministral 3.

use super::{ministral3, mistral, mistral4};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::layers::Decoder;
use crate::shape::{Language, pixtral_tower};
use crate::weights::Weights;

/// Builds `Mistral3ForConditionalGeneration`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let text = config.object("text_config")?;
    let eps = text.map(|text| text.opt_positive("rms_norm_eps")).transpose()?.flatten();
    let eps = eps.unwrap_or(1e-6) as f32;
    let tower = pixtral_tower(config, w, (Language::width(config)?, eps))?;
    let Language { config, head, model } =
        Language::of(config, w, &["vision_tower.", "multi_modal_projector."])?;
    let decoder = match config.opt_text("model_type")? {
        None | Some("mistral") => mistral::build(&config, &head, &model)?,
        Some("ministral3") => ministral3::build(&config, &head, &model)?,
        Some("mistral4") => mistral4::build(&config, &head, &model)?,
        Some(other) => {
            return Err(Error::model(format!(
                "config.json: `text_config` has the `model_type` `{other}`, known are mistral, ministral3, mistral4"
            )));
        }
    };
    Ok(Decoder { tower, ..decoder })
}
