//! Mamba 2 and Mamba Codestral: Mamba 2 layers alone.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::layers::{Decoder, MambaSizes};
use crate::shape::{
    MambaParts, NormPlace, Shape, StateSpaceBiases, check_mamba, expanded, step_limits,
};
use crate::weights::Weights;

/// Builds the model under the names of `Mamba2ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let model = w.at("backbone");
    let shape = Shape::of_state_spaces(config, &model)?;
    let biases = StateSpaceBiases::read(config)?;
    let parts = MambaParts {
        in_bias: biases.projections,
        out_bias: biases.projections,
        convolution_bias: biases.convolution,
        norm: NormPlace::BehindGate,
        limits: step_limits(config)?,
        multipliers: None,
    };
    let sizes = sizes(config)?;
    shape.decoder(config, w, &model, |w, _| {
        let mixer = shape.mamba(&w.at("mixer"), sizes, parts)?;
        shape.mixer_block(w, mixer)
    })
}

/// The sizes that `config` states; what it leaves out is that of Mamba Codestral.
fn sizes(config: &Config) -> Result<MambaSizes> {
    let sizes = check_mamba(MambaSizes {
        heads: config.opt_size("num_heads")?.unwrap_or(128),
        head_dim: config.opt_size("head_dim")?.unwrap_or(64),
        groups: config.opt_size("n_groups")?.unwrap_or(8),
        state_dim: config.opt_size("state_size")?.unwrap_or(128),
        taps: config.opt_size("conv_kernel")?.unwrap_or(4),
    })?;
    let inner = expanded(config)?;
    if sizes.inner() != inner {
        return Err(Error::model(format!(
            "config.json: `num_heads` {} of `head_dim` {} are not the {inner} values of a layer",
            sizes.heads, sizes.head_dim
        )));
    }
    Ok(sizes)
}
