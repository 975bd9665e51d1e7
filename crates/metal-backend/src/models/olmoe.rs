//! OLMoE: norms over all queries and all keys, and a mixture of experts in each layer.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{Decoder, Moe, Routing};
use crate::shape::{AttentionParts, ExpertNames, Experts, NormSpan, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `OlmoeForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    const CLIP: &str = "clip_qkv";
    if let Some(bound) = config.get(CLIP) {
        return Err(config.wrong(CLIP, bound, "null: queries, keys and values have no bound"));
    }
    let config = &config.with_default_number("rms_norm_eps", 1e-5);
    let shape = Shape::read(config)?;
    let rope = config.rope("full_attention", 10_000.0)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let experts = Experts::read(config, ["num_experts", "num_local_experts"])?;
    let normalises = config.opt_flag("norm_topk_prob")?.unwrap_or(false);
    let (hidden, inner) = (shape.hidden_size, shape.intermediate_size);
    let decoder = shape.decoder(config, w, &w.at("model"), |w, _| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            qk_norms: NormSpan::Projection,
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mlp = w.at("mlp");
        let (gate_up, down_proj) = experts.linears(&mlp, ExpertNames::PROJ, [hidden, inner])?;
        let moe = Moe {
            router: mlp.router("gate", hidden, experts.count, false)?,
            routing: if normalises { Routing::Normalised } else { Routing::Probabilities },
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
