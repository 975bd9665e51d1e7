//! ERNIE 4.5 MoE: neighbouring values are rotated together, and some layers have a mixture of
//! experts with a corrected choice, beside experts that all positions pass.

use crate::config::{Config, RopeConfig, RopePairs};
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Decoder, Moe, Routing, Score, ScoredRouting, SharedExpert};
use crate::shape::{AttentionParts, ExpertNames, Experts, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `Ernie4_5_MoeForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_default_number("rms_norm_eps", 1e-5);
    let bias = config.opt_flag("use_bias")?.unwrap_or(false);
    let shape = Shape { head_bias: bias, ..Shape::read(config)? };
    let rope =
        RopeConfig { pairs: RopePairs::Neighbours, ..config.rope("full_attention", 500_000.0)? };
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let experts = Experts::read_as(config, ["moe_num_experts", "num_experts"], "moe_k")?;
    let inner = config.size("moe_intermediate_size")?;
    let shared = config.opt_index("moe_num_shared_experts")?.unwrap_or(2);
    let shared_inner = inner.checked_mul(shared).ok_or_else(|| {
        Error::model(format!("config.json: `moe_num_shared_experts` {shared} is too large"))
    })?;
    let first = config.opt_index("moe_layer_start_index")?.unwrap_or(1) as usize;
    let to_the_end =
        config.get("moe_layer_end_index").is_some_and(|last| last.as_i64() == Some(-1));
    let last = if to_the_end { None } else { config.opt_index("moe_layer_end_index")? };
    let last = last.map_or(usize::MAX, |last| last as usize);
    let interval = config.opt_size("moe_layer_interval")?.unwrap_or(1) as usize;
    let (hidden, sizes) = (shape.hidden_size, [shape.hidden_size, inner]);
    w.leave_part("MTP layers", |name| name.starts_with("model.mtp_"));
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts { qkv_bias: bias, o_bias: bias, ..AttentionParts::PLAIN };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mlp = w.at("mlp");
        if (index + 1) % interval != 0 || index < first || index > last {
            return shape.pre_norm_block(w, attention, shape.mlp(&mlp, act, bias)?);
        }
        let statics = mlp.at("moe_statics");
        if statics.is_empty() && !w.is_random() {
            return Err(Error::model(format!(
                "tensor `{}e_score_correction_bias` is missing: mlx-lm's converter drops it, and experts are chosen wrongly without; convert the release by `ml quantise`",
                statics.prefix()
            )));
        }
        let correction = statics.vector_f32("e_score_correction_bias", experts.count)?;
        let (gate_up, down_proj) = experts.linears(&mlp, ExpertNames::PROJ, sizes)?;
        let shared_expert = |w: &Weights| -> Result<SharedExpert> {
            Ok(SharedExpert { mlp: shape.mlp_of(w, shared_inner, act, bias)?, gate: None })
        };
        let moe = Moe {
            router: mlp.router("gate", hidden, experts.count, false)?,
            routing: Routing::Scored(ScoredRouting {
                score: Score::Softmax,
                correction: Some(correction),
                groups: None,
                normaliser: Some(1e-12),
                factor: 1.0,
            }),
            experts_per_token: experts.per_token,
            gate_up,
            down_proj,
            activation: act,
            shared: (shared > 0).then(|| shared_expert(&mlp.at("shared_experts"))).transpose()?,
            kernels: w.kernels(),
        };
        shape.pre_norm_block(w, attention, moe.into())
    })?;
    Ok(experts.widen_beside(decoder, inner, shared_inner))
}
