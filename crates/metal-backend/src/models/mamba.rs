//! Mamba and Falcon Mamba: state spaces whose channels each have states of their own, and nothing
//! else.

use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::{Shape, StateSpaceBiases};
use crate::weights::Weights;

/// Builds the model under the names of `MambaForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    // mlx-lm reads the second model by this key too.
    if config.opt_flag("use_bcdt_rms")?.unwrap_or(false) {
        return load_falcon(config, w);
    }
    build(config, w, None)
}

/// Builds the model under the names of `FalconMambaForCausalLM`: norms of steps, and of what is
/// written into states and reads them.
pub(super) fn load_falcon(config: &Config, w: &Weights) -> Result<Decoder> {
    let eps = config.opt_positive("mixer_rms_eps")?.unwrap_or(1e-6) as f32;
    build(config, w, Some(eps))
}

fn build(config: &Config, w: &Weights, norms_eps: Option<f32>) -> Result<Decoder> {
    let model = w.at("backbone");
    let shape = Shape::of_state_spaces(config, &model)?;
    let (sizes, biases) = (shape.mamba1_sizes(config)?, StateSpaceBiases::read(config)?);
    shape.decoder(config, w, &model, |w, _| {
        let mixer = shape.mamba1(&w.at("mixer"), sizes, biases, norms_eps)?;
        shape.mixer_block(w, mixer)
    })
}
