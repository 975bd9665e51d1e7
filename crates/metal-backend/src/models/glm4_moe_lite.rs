//! GLM 4.7 Flash: DeepSeek V3's form without groups of experts.

use super::deepseek_v3;
use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::Mixture;
use crate::weights::Weights;

/// Builds the model under the names of `Glm4MoeLiteForCausalLM`; the layers that predict further
/// tokens are left aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = config
        .with_default_number("routed_scaling_factor", 1.8)
        .with_default_number("rms_norm_eps", 1e-5);
    deepseek_v3::build(&config, w, &w.at("model"), Mixture::read)
}
