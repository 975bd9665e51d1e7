//! Mixtures of experts beside one that all positions pass behind a gate (Qwen).

use super::{ExpertNames, Experts, Shape};
use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{Decoder, FeedForward, Moe, Routing, SharedExpert};
use crate::weights::Weights;

/// The sizes of such a mixture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedExperts {
    experts: Experts,
    /// Values inside an expert.
    inner: i32,
    /// Values inside the shared one.
    shared_inner: i32,
    /// The weights of the chosen experts are divided by their sum.
    normalises: bool,
}

impl SharedExperts {
    /// The sizes that `config` states. Weights are divided by their sum where it says so, else
    /// where `normalises` does.
    ///
    /// # Errors
    /// A key that is missing or wrong; more experts for a position than there are.
    pub fn read(config: &Config, normalises: bool) -> Result<SharedExperts> {
        Ok(SharedExperts {
            experts: Experts::read(config, ["num_experts", "num_local_experts"])?,
            inner: config.size("moe_intermediate_size")?,
            shared_inner: config.size("shared_expert_intermediate_size")?,
            normalises: config.opt_flag("norm_topk_prob")?.unwrap_or(normalises),
        })
    }

    /// The mixture under `w`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn build(&self, shape: &Shape, w: &Weights, activation: Activation) -> Result<FeedForward> {
        let SharedExperts { experts, inner, shared_inner, normalises } = *self;
        let hidden = shape.hidden_size;
        let (gate_up, down_proj) = experts.linears(w, ExpertNames::PROJ, [hidden, inner])?;
        let shared = SharedExpert {
            mlp: shape.mlp_of(&w.at("shared_expert"), shared_inner, activation, false)?,
            gate: Some(w.linear("shared_expert_gate", hidden, 1, false)?),
        };
        Ok(FeedForward::from(Moe {
            router: w.router("gate", hidden, experts.count, false)?,
            routing: if normalises { Routing::Normalised } else { Routing::Probabilities },
            experts_per_token: experts.per_token,
            gate_up,
            down_proj,
            activation,
            shared: Some(shared),
            kernels: w.kernels(),
        }))
    }

    /// `decoder` with the width of what such a mixture computes at once.
    pub fn widen(&self, decoder: Decoder) -> Decoder {
        self.experts.widen_beside(decoder, self.inner, self.shared_inner)
    }
}

/// Which layers are mixtures: every `decoder_sparse_step`-th one that is not in `mlp_only_layers`.
#[derive(Clone, Debug)]
pub(crate) struct SparseLayers {
    step: usize,
    dense: Vec<u64>,
}

impl SparseLayers {
    /// As `config` states them.
    ///
    /// # Errors
    /// A key that is wrong.
    pub fn read(config: &Config) -> Result<SparseLayers> {
        Ok(SparseLayers {
            step: config.opt_size("decoder_sparse_step")?.unwrap_or(1) as usize,
            dense: config.opt_indices("mlp_only_layers")?.unwrap_or_default(),
        })
    }

    /// Returns true when the layer of this index is a mixture.
    pub fn has(&self, index: usize) -> bool {
        !self.dense.contains(&(index as u64)) && (index + 1).is_multiple_of(self.step)
    }
}
