//! MiMo of 7B: Qwen 2's form, with layers that predict further tokens.

use super::qwen2;
use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::weights::Weights;

/// Builds the model under the names of `MiMoForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    w.leave_part("MTP layers", |name| name.starts_with("model.mtp_layers."));
    qwen2::load(config, w)
}
