//! Networks without a gate, and blocks whose halves add at once.

use super::Shape;
use super::split::{InnerNames, inner_of_rank};
use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{
    Block, Ending, FeedForward, GateUp, Mixer, Mlp, PlainActivation, PlainMlp, Residual, Xielu,
};
use crate::weights::Weights;

/// The activation of a network without a gate, by its name in a config.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ungated {
    /// The square of what is above 0.
    SquaredRelu,
    /// xIELU, whose parameters are tensors of the layer.
    Xielu,
    /// One that gates have too.
    Known(Activation),
}

impl Ungated {
    /// The activation under `key`.
    ///
    /// # Errors
    /// An activation that is not known, by name.
    pub fn read(config: &Config, key: &str, default: Ungated) -> Result<Ungated> {
        let Some(name) = config.opt_text(key)? else { return Ok(default) };
        match name {
            "relu2" => Ok(Ungated::SquaredRelu),
            "xielu" => Ok(Ungated::Xielu),
            "relu" => Ok(Ungated::Known(Activation::Relu)),
            _ => match Activation::from_name(name) {
                Some(activation) => Ok(Ungated::Known(activation)),
                None => Err(config.wrong(
                    key,
                    &name.into(),
                    "relu2, xielu, relu, silu, gelu or gelu_pytorch_tanh",
                )),
            },
        }
    }
}

impl Shape {
    /// The network without a gate under `w`, whose projections are called `names`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn plain_mlp(
        &self,
        w: &Weights,
        names: [&'static str; 2],
        activation: Ungated,
        bias: bool,
    ) -> Result<FeedForward> {
        let [into, out] = names;
        let of_rank = InnerNames { into: &[into], both: &[], out: &[out] };
        let hidden = self.hidden_size;
        let (own, inner) = inner_of_rank(w, &of_rank, self.intermediate_size);
        let up = own.linear(into, hidden, inner, bias)?;
        let down = own.linear(out, inner, hidden, bias)?;
        let activation = match activation {
            // What is above 0 gates itself.
            Ungated::SquaredRelu => {
                return Ok(FeedForward::from(Mlp {
                    gate_up: GateUp::Shared(up),
                    down_proj: down,
                    activation: Activation::Relu,
                    multipliers: None,
                    kernels: w.kernels(),
                }));
            }
            Ungated::Known(activation) => PlainActivation::Known(activation),
            Ungated::Xielu => {
                let w = w.at("act_fn");
                // mlx-lm's converter makes scalars of both slopes.
                let slope = |name: &str| match w.shape(name).as_deref() {
                    Some([]) => w.tensor(name, &[]),
                    _ => w.tensor(name, &[1]),
                };
                let own = [
                    slope("alpha_p")?,
                    slope("alpha_n")?,
                    w.tensor("beta", &[])?,
                    w.tensor("eps", &[])?,
                ];
                PlainActivation::Xielu(Box::new(Xielu::new(own)?))
            }
        };
        Ok(FeedForward::from(PlainMlp { up, down, activation }))
    }

    /// A block whose halves both see the norm `input_layernorm` and add at once.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn parallel_block(
        &self,
        w: &Weights,
        mixer: impl Into<Mixer>,
        mlp: FeedForward,
    ) -> Result<Block> {
        Ok(Block {
            input_norm: Some(self.norm(w, "input_layernorm", self.hidden_size)?),
            mixer: mixer.into(),
            mixer_out_norm: None,
            mlp_norm: None,
            mlp,
            mlp_out_norm: None,
            residual: Residual::Parallel,
            ending: Ending::default(),
            kernels: w.kernels(),
        })
    }
}
