//! K-EXAONE: EXAONE 4's attention with norms before both halves of a block, and DeepSeek V3's
//! experts behind the first layers.

use super::exaone4;
use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::{Mixture, Shape};
use crate::weights::Weights;

/// Builds the model under the names of `ExaoneMoeForCausalLM`; the layers that predict further
/// tokens are left aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &exaone4::with_defaults(config)
        .with_names(&[("num_shared_experts", "n_shared_experts")])
        .with_default_number("routed_scaling_factor", 2.5);
    let shape = Shape::read(config)?;
    let attention = exaone4::attention(config, &shape)?;
    let mixture = Mixture::read(config, shape.num_hidden_layers)?;
    w.leave_layers_from(shape.num_hidden_layers);
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let mlp = mixture.feed_forward(&shape, &w.at("mlp"), index)?;
        shape.pre_norm_block(w, attention(w, index)?, mlp)
    })?;
    Ok(mixture.widen(decoder))
}
