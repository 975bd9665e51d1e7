//! Qwen 2.5 VL: Qwen 2 VL with a tower that sees by windows.

use super::qwen2_vl;
use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::qwen2_5_tower;
use crate::weights::Weights;

/// Builds `Qwen2_5_VLForConditionalGeneration`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    qwen2_vl::build(config, w, qwen2_5_tower)
}
