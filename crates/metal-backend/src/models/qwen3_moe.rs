//! Qwen 3 with a mixture of experts in the place of most feed-forward networks.

use crate::config::{Config, RopeConfig};
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{Decoder, FeedForward, Moe, Routing};
use crate::shape::{
    AttentionParts, ExpertNames, Experts, NormSpan, Shape, SparseLayers, activation, windows,
};
use crate::weights::Weights;

/// Builds the model under the names of `Qwen3MoeForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let rope = config.rope("full_attention", 10_000.0)?;
    let normalises = config.opt_flag("norm_topk_prob")?.unwrap_or(false);
    let routing = match normalises {
        true => || Routing::Normalised,
        false => || Routing::Probabilities,
    };
    build(config, w, &w.at("model"), (rope, routing))
}

/// Builds the model with its blocks under `model` and its output layer under `w`: how its positions
/// are encoded, and how its experts are chosen.
pub(super) fn build(
    config: &Config,
    w: &Weights,
    model: &Weights,
    (rope, routing): (RopeConfig, fn() -> Routing),
) -> Result<Decoder> {
    let shape = Shape::read(config)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let uses_window = config.opt_flag("use_sliding_window")?.unwrap_or(false);
    let window = config.opt_size("sliding_window")?.unwrap_or(4096);
    let windows =
        windows(config, shape.num_hidden_layers, uses_window.then_some(window), |_| true)?;
    let experts = Experts::read(config, ["num_experts", "num_local_experts"])?;
    let inner = config.size("moe_intermediate_size")?;
    let sparse = SparseLayers::read(config)?;
    let decoder = shape.decoder(config, w, model, |w, index| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            qk_norms: NormSpan::Head,
            window: windows[index],
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mlp = w.at("mlp");
        let mlp = if sparse.has(index) {
            let sizes = [shape.hidden_size, inner];
            let (gate_up, down_proj) = experts.linears(&mlp, ExpertNames::PROJ, sizes)?;
            FeedForward::from(Moe {
                router: mlp.router("gate", shape.hidden_size, experts.count, false)?,
                routing: routing(),
                experts_per_token: experts.per_token,
                gate_up,
                down_proj,
                activation: act,
                shared: None,
                kernels: w.kernels(),
            })
        } else {
            shape.mlp(&mlp, act, false)?
        };
        shape.pre_norm_block(w, attention, mlp)
    })?;
    Ok(experts.widen(decoder, inner))
}
