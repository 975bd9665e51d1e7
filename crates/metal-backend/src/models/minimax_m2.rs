//! MiniMax M2: experts with corrected sigmoid scores, norms over all queries and all keys, and a
//! part of each head rotated.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{Decoder, Moe, Routing, Score, ScoredRouting};
use crate::shape::{AttentionParts, ExpertNames, Experts, NormSpan, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `MiniMaxM2ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let shape = Shape::read(config)?;
    let rope = config.rope_of_dims("rotary_dim", shape.head_dim, 5_000_000.0)?;
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let has_norms = config.opt_flag("use_qk_norm")?.unwrap_or(true);
    let experts = Experts::read(config, ["num_local_experts", "num_experts"])?;
    let (hidden, inner) = (shape.hidden_size, shape.intermediate_size);
    let decoder = shape.decoder(config, w, &w.at("model"), |w, _| {
        let parts = AttentionParts {
            qk_norms: if has_norms { NormSpan::Projection } else { NormSpan::None },
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mixture = w.at("block_sparse_moe");
        let correction = mixture.tensor_f32("e_score_correction_bias", &[experts.count])?;
        let (gate_up, down_proj) =
            experts.linears(&mixture, ExpertNames::NUMBERED, [hidden, inner])?;
        let moe = Moe {
            router: mixture.router("gate", hidden, experts.count, false)?,
            routing: Routing::Scored(ScoredRouting {
                score: Score::Sigmoid,
                correction: Some(correction),
                groups: None,
                normaliser: Some(1e-20),
                factor: 1.0,
            }),
            experts_per_token: experts.per_token,
            gate_up,
            down_proj,
            activation: act,
            shared: None,
            kernels: w.kernels(),
        };
        shape.pre_norm_block(w, attention, moe.into())
    })?;
    Ok(experts.widen(decoder, inner))
}
