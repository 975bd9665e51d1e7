//! Qwen 2 MoE: Qwen 2's form with a mixture of experts, and beside it one that all positions pass.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{Decoder, Moe, Routing, SharedExpert};
use crate::shape::{AttentionParts, ExpertNames, Experts, Shape, activation, qwen_windows};
use crate::weights::Weights;

/// Builds the model under the names of `Qwen2MoeForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let shape = Shape::read(config)?;
    let rope = config.rope("full_attention", 10_000.0)?;
    let qkv_bias = config.opt_flag("qkv_bias")?.unwrap_or(true);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let windows = qwen_windows(config, shape.num_hidden_layers)?;
    let experts = Experts::read(config, ["num_experts", "num_local_experts"])?;
    let inner = config.size("moe_intermediate_size")?;
    let shared_inner = config.size("shared_expert_intermediate_size")?;
    let normalises = config.opt_flag("norm_topk_prob")?.unwrap_or(false);
    let step = config.opt_size("decoder_sparse_step")?.unwrap_or(1) as usize;
    let plain = config.opt_indices("mlp_only_layers")?.unwrap_or_default();
    let (hidden, sizes) = (shape.hidden_size, [shape.hidden_size, inner]);
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts { qkv_bias, window: windows[index], ..AttentionParts::PLAIN };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mlp = w.at("mlp");
        if plain.contains(&(index as u64)) || (index + 1) % step != 0 {
            return shape.pre_norm_block(w, attention, shape.mlp(&mlp, act, false)?);
        }
        let (gate_up, down_proj) = experts.linears(&mlp, ExpertNames::PROJ, sizes)?;
        let shared = SharedExpert {
            mlp: shape.mlp_of(&mlp.at("shared_expert"), shared_inner, act, false)?,
            gate: Some(mlp.linear("shared_expert_gate", hidden, 1, false)?),
        };
        let moe = Moe {
            router: mlp.linear("gate", hidden, experts.count, false)?,
            routing: if normalises { Routing::Normalised } else { Routing::Probabilities },
            experts_per_token: experts.per_token,
            gate_up,
            down_proj,
            activation: act,
            shared: Some(shared),
            kernels: w.kernels(),
        };
        shape.pre_norm_block(w, attention, moe.into())
    })?;
    Ok(experts.widen_beside(decoder, inner, shared_inner))
}
