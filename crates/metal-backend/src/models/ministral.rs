//! Ministral of 8B: Mistral's form with a sliding window over some layers.

use super::mistral;
use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::weights::Weights;

/// Builds the model under the names of `MinistralForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    // Without the key, every layer has this window.
    mistral::load(&config.with_defaults(&[("sliding_window", 4096)]), w)
}
