//! GLM 4.5 to 4.7: a mixture of experts with sigmoid scores, corrected and in groups, beside one expert
//! that all positions pass; the first layers are dense. A half of each head is rotated.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Decoder, Moe, Routing, Score, ScoredRouting, SharedExpert};
use crate::shape::{AttentionParts, ExpertNames, Experts, NormSpan, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `Glm4MoeForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let shape = Shape::read(config)?;
    let rope = config.partial_rope("full_attention", 10_000.0)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let has_norms = config.opt_flag("use_qk_norm")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let experts = Experts::read(config, ["n_routed_experts", "num_experts"])?;
    let groups = experts.groups(config)?;
    let factor = config.opt_positive("routed_scaling_factor")?.unwrap_or(1.0) as f32;
    let normalises = config.opt_flag("norm_topk_prob")?.unwrap_or(true);
    let inner = config.size("moe_intermediate_size")?;
    let shared = config.opt_size("n_shared_experts")?.unwrap_or(1);
    let shared_inner = inner.checked_mul(shared).ok_or_else(|| {
        Error::model(format!("config.json: `n_shared_experts` {shared} is too large"))
    })?;
    let first_sparse = config.opt_index("first_k_dense_replace")?.unwrap_or(1) as usize;
    let (hidden, sizes) = (shape.hidden_size, [shape.hidden_size, inner]);
    w.leave_layers_from(shape.num_hidden_layers);
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts {
            qkv_bias: bias,
            qk_norms: if has_norms { NormSpan::Head } else { NormSpan::None },
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mlp = w.at("mlp");
        if index < first_sparse {
            return shape.pre_norm_block(w, attention, shape.mlp(&mlp, act, false)?);
        }
        let gate = mlp.at("gate");
        let (gate_up, down_proj) = experts.linears(&mlp, ExpertNames::PROJ, sizes)?;
        let moe = Moe {
            routing: Routing::Scored(ScoredRouting {
                score: Score::Sigmoid,
                correction: Some(gate.tensor_f32("e_score_correction_bias", &[experts.count])?),
                groups,
                normaliser: normalises.then_some(1e-20),
                factor,
            }),
            router: mlp.linear("gate", hidden, experts.count, false)?,
            experts_per_token: experts.per_token,
            gate_up,
            down_proj,
            activation: act,
            shared: Some(SharedExpert {
                mlp: shape.mlp_of(&mlp.at("shared_experts"), shared_inner, act, false)?,
                gate: None,
            }),
            kernels: w.kernels(),
        };
        shape.pre_norm_block(w, attention, moe.into())
    })?;
    Ok(experts.widen_beside(decoder, inner, shared_inner))
}
