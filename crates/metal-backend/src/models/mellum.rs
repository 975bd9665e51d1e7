//! Mellum 2: Qwen 3 MoE's form, with layers of a window whose positions have a base of their own.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{Decoder, FeedForward, Moe, Routing};
use crate::shape::{
    AttentionParts, ExpertNames, Experts, NormSpan, Shape, activation, sparse_layers, windows,
};
use crate::weights::Weights;

/// Builds the model under the names of `MellumForCausalLM`; the layers that predict further tokens
/// are left aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_defaults(&[("head_dim", 128), ("first_k_dense_replace", 0)]);
    let shape = Shape::read(config)?;
    let layers = shape.num_hidden_layers;
    let window = config.opt_size("sliding_window")?;
    let windows = windows(config, layers, window, |_| false)?;
    let far = config.rope("full_attention", 500_000.0)?;
    let near = config.rope("sliding_attention", 10_000.0)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let experts = Experts::read(config, ["num_experts", "num_local_experts"])?;
    let inner = config.size("moe_intermediate_size")?;
    let normalises = config.opt_flag("norm_topk_prob")?.unwrap_or(true);
    let sparse = sparse_layers(config, layers)?;
    w.leave_layers_from(layers);
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            qk_norms: NormSpan::Head,
            window: windows[index],
            ..AttentionParts::PLAIN
        };
        let rope = if windows[index].is_some() { &near } else { &far };
        let attention = shape.attention(&w.at("self_attn"), Some(rope), parts)?;
        let mlp = w.at("mlp");
        if !sparse[index] {
            return shape.pre_norm_block(w, attention, shape.mlp(&mlp, act, false)?);
        }
        let sizes = [shape.hidden_size, inner];
        let (gate_up, down_proj) = experts.linears(&mlp, ExpertNames::PROJ, sizes)?;
        let moe = FeedForward::from(Moe {
            router: mlp.router("gate", shape.hidden_size, experts.count, false)?,
            routing: if normalises { Routing::Normalised } else { Routing::Probabilities },
            experts_per_token: experts.per_token,
            gate_up,
            down_proj,
            activation: act,
            shared: None,
            kernels: w.kernels(),
        });
        shape.pre_norm_block(w, attention, moe)
    })?;
    Ok(experts.widen(decoder, inner))
}
