//! LFM 2 with a mixture of experts in most layers: sigmoid scores, corrected for the choice alone.

use super::lfm2::Hybrid;
use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{Decoder, FeedForward, Moe, Routing, Score, ScoredRouting};
use crate::shape::{ExpertNames, Experts};
use crate::weights::Weights;

/// Builds the model under the names of `Lfm2MoeForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let hybrid = Hybrid::read(config, config.size("intermediate_size")?)?;
    let experts = Experts::read(config, ["num_experts", "num_local_experts"])?;
    let inner = config.size("moe_intermediate_size")?;
    let first_sparse = config.opt_index("num_dense_layers")?.unwrap_or(2) as usize;
    let is_corrected = config.opt_flag("use_expert_bias")?.unwrap_or(true);
    let normalises = config.opt_flag("norm_topk_prob")?.unwrap_or(true);
    let factor = config.opt_positive("routed_scaling_factor")?.unwrap_or(1.0) as f32;
    let hidden = hybrid.shape.hidden_size;
    let decoder = hybrid.decoder(config, w, |w, index| {
        if index < first_sparse {
            return hybrid.dense(w);
        }
        let correction = is_corrected.then(|| w.tensor_f32("expert_bias", &[experts.count]));
        let (gate_up, down_proj) = experts.linears(w, ExpertNames::NUMBERED, [hidden, inner])?;
        Ok(FeedForward::from(Moe {
            routing: Routing::Scored(ScoredRouting {
                score: Score::Sigmoid,
                correction: correction.transpose()?,
                groups: None,
                normaliser: normalises.then_some(1e-6),
                factor,
            }),
            router: w.router("gate", hidden, experts.count, false)?,
            experts_per_token: experts.per_token,
            gate_up,
            down_proj,
            activation: Activation::Silu,
            shared: None,
            kernels: w.kernels(),
        }))
    })?;
    Ok(experts.widen(decoder, inner))
}
