//! Mixtral: Mistral's form with a mixture of experts in the place of each feed-forward network.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{Decoder, Moe, Routing};
use crate::shape::{AttentionParts, ExpertNames, Experts, Shape, activation, windows};
use crate::weights::Weights;

/// Builds the model under the names of `MixtralForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_defaults(&[("num_experts_per_tok", 2)]);
    let shape = Shape::read(config)?;
    let rope = config.rope("full_attention", 1_000_000.0)?;
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let sliding_window = config.opt_size("sliding_window")?;
    let windows = windows(config, shape.num_hidden_layers, sliding_window, |_| true)?;
    let experts = Experts::read(config, ["num_local_experts", "num_experts"])?;
    let sizes = [shape.hidden_size, shape.intermediate_size];
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts { window: windows[index], ..AttentionParts::PLAIN };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mixture = w.at("block_sparse_moe");
        let (gate_up, down_proj) = experts.linears(&mixture, ExpertNames::NUMBERED, sizes)?;
        let moe = Moe {
            router: mixture.router("gate", shape.hidden_size, experts.count, false)?,
            routing: Routing::Logits,
            experts_per_token: experts.per_token,
            gate_up,
            down_proj,
            activation: act,
            shared: None,
            kernels: w.kernels(),
        };
        shape.pre_norm_block(w, attention, moe.into())
    })?;
    Ok(experts.widen(decoder, shape.intermediate_size))
}
