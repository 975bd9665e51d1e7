//! Solar Open: GLM 4.5's form with experts in each layer, and no norms over queries and keys.

use super::glm4_moe;
use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::weights::Weights;

/// Builds the model under the names of `SolarOpenForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    const NORMS: &str = "use_qk_norm";
    if config.opt_flag(NORMS)? == Some(true) {
        return Err(config.wrong(NORMS, &true.into(), "false"));
    }
    let inner = config.size("moe_intermediate_size")?;
    let config = config
        // No layer is dense.
        .with_defaults(&[("intermediate_size", inner.into()), ("first_k_dense_replace", 0)])
        .with_defaults(&[("head_dim", 128)])
        .with_default_number("partial_rotary_factor", 1.0)
        .with_default_number("rope_theta", 1_000_000.0);
    glm4_moe::load(&config, w)
}
