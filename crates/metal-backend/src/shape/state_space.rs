//! Models of Mamba layers alone, and Mamba 1 layers built from a config.

use super::{Shape, activation};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Block, Ending, FeedForward, Mamba1, Mamba1Sizes, Mixer, Residual, SelectionNorms,
};
use crate::weights::Weights;

/// Which biases layers of state spaces have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateSpaceBiases {
    /// Projections into and out of a layer.
    pub projections: bool,
    pub convolution: bool,
}

impl StateSpaceBiases {
    /// Those that `config` states.
    ///
    /// # Errors
    /// A value that is no flag.
    pub fn read(config: &Config) -> Result<StateSpaceBiases> {
        Ok(StateSpaceBiases {
            projections: config.opt_flag("use_bias")?.unwrap_or(false),
            convolution: config.opt_flag("use_conv_bias")?.unwrap_or(true),
        })
    }
}

/// Values inside a layer of Mamba 2, as `expand` states them.
///
/// # Errors
/// A key that is missing or wrong.
pub(crate) fn expanded(config: &Config) -> Result<i32> {
    let hidden = config.size("hidden_size")?;
    let inner = config.opt_positive("expand")?.unwrap_or(2.0) * f64::from(hidden);
    match inner <= f64::from(i32::MAX) {
        true => Ok(inner as i32),
        false => Err(Error::model("config.json: `expand` times `hidden_size` is too large")),
    }
}

/// Values inside a layer of Mamba 1. Falcon Mamba states them, beside an `expand` that is not
/// theirs.
fn stated_or_expanded(config: &Config) -> Result<i32> {
    config.opt_size("intermediate_size")?.map_or_else(|| expanded(config), Ok)
}

impl Shape {
    /// The sizes of a model that has no attention, under the names of `MambaForCausalLM`.
    ///
    /// # Errors
    /// A key that is missing or wrong.
    pub fn of_state_spaces(config: &Config, model: &Weights) -> Result<Shape> {
        let inner = i64::from(stated_or_expanded(config)?);
        if activation(config, "hidden_act", Activation::Silu)? != Activation::Silu {
            return Err(Error::model("config.json: `hidden_act` is known as silu only"));
        }
        let defaults = [("num_attention_heads", 1), ("intermediate_size", inner)];
        // No layer attends; a key of this name is of states.
        let config = &config.with_defaults(&defaults).with_size("head_dim", 2);
        Ok(Shape {
            rms_norm_eps: config.opt_positive("layer_norm_epsilon")?.unwrap_or(1e-5) as f32,
            // The first releases call them so.
            embeddings: match model.at("embedding").is_empty() {
                true => "embeddings",
                false => "embedding",
            },
            final_norm: "norm_f",
            ..Shape::read(config)?
        })
    }

    /// A block of `mixer` alone, behind `norm`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn mixer_block(&self, w: &Weights, mixer: impl Into<Mixer>) -> Result<Block> {
        Ok(Block {
            input_norm: Some(self.norm(w, "norm", self.hidden_size)?),
            mixer: mixer.into(),
            mixer_out_norm: None,
            mlp_norm: None,
            mlp: FeedForward::Nothing,
            mlp_out_norm: None,
            residual: Residual::Sum,
            ending: Ending::default(),
            kernels: w.kernels(),
        })
    }

    /// The sizes of the Mamba 1 layers that `config` states.
    ///
    /// # Errors
    /// A key that is wrong; sizes that are too large.
    pub fn mamba1_sizes(&self, config: &Config) -> Result<Mamba1Sizes> {
        let rank = match config.get("time_step_rank") {
            None => None,
            Some(value) if value == "auto" => None,
            Some(_) => config.opt_size("time_step_rank")?,
        };
        let sizes = Mamba1Sizes {
            channels: stated_or_expanded(config)?,
            state_dim: config.opt_size("state_size")?.unwrap_or(16),
            rank: rank.unwrap_or((self.hidden_size - 1) / 16 + 1),
            taps: config.opt_size("conv_kernel")?.unwrap_or(4),
        };
        let Mamba1Sizes { channels, state_dim, rank, taps } = sizes;
        let widest = [channels, state_dim].map(i64::from).into_iter().product::<i64>();
        let columns = i64::from(rank).saturating_add(2 * i64::from(state_dim));
        let most = i64::from(i32::MAX / 2);
        if widest > most || columns > most || taps > 64 {
            return Err(Error::model(
                "config.json: the states of mamba layers, or the taps of their convolutions, are too large",
            ));
        }
        Ok(sizes)
    }

    /// The Mamba 1 layer under `w`; `norms_eps` is that of norms of its selection, where it has
    /// such.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn mamba1(
        &self,
        w: &Weights,
        sizes: Mamba1Sizes,
        biases: StateSpaceBiases,
        norms_eps: Option<f32>,
    ) -> Result<Mamba1> {
        let Mamba1Sizes { channels, state_dim, rank, taps } = sizes;
        let hidden = self.hidden_size;
        let bias = || w.tensor("conv1d.bias", &[channels]);
        let norms = norms_eps.map(|eps| -> Result<SelectionNorms> {
            Ok(SelectionNorms {
                step: w.plain_rms_norm(rank, eps)?,
                written: w.plain_rms_norm(state_dim, eps)?,
                reading: w.plain_rms_norm(state_dim, eps)?,
            })
        });
        Ok(Mamba1 {
            sizes,
            in_proj: w.linear("in_proj", hidden, 2 * channels, biases.projections)?,
            convolution: w.depthwise("conv1d.weight", channels, taps)?,
            bias: biases.convolution.then(bias).transpose()?,
            x_proj: w.linear("x_proj", channels, rank + 2 * state_dim, false)?,
            norms: norms.transpose()?,
            dt_proj: w.linear("dt_proj", rank, channels, false)?,
            dt_bias: w.tensor_f32("dt_proj.bias", &[channels])?,
            a_log: w.tensor_f32("A_log", &[channels, state_dim])?,
            d: w.tensor_f32("D", &[channels])?,
            out_proj: w.linear("out_proj", channels, hidden, biases.projections)?,
            kernels: w.kernels(),
        })
    }
}
