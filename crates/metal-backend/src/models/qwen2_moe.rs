//! Qwen 2 MoE: Qwen 2's form with a mixture of experts, and beside it one that all positions pass.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{
    AttentionParts, Shape, SharedExperts, SparseLayers, activation, qwen2_moe_windows,
};
use crate::weights::Weights;

/// The default of config.json for dividing weights by their sum.
const NORMALISES: bool = false;

/// Builds the model under the names of `Qwen2MoeForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let shape = Shape::read(config)?;
    let rope = config.rope("full_attention", 10_000.0)?;
    let qkv_bias = config.opt_flag("qkv_bias")?.unwrap_or(true);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let windows = qwen2_moe_windows(config, shape.num_hidden_layers)?;
    let experts = SharedExperts::read(config, NORMALISES)?;
    let sparse = SparseLayers::read(config)?;
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts { qkv_bias, window: windows[index], ..AttentionParts::PLAIN };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mlp = w.at("mlp");
        let mlp = match sparse.has(index) {
            true => experts.build(&shape, &mlp, act)?,
            false => shape.mlp(&mlp, act, false)?,
        };
        shape.pre_norm_block(w, attention, mlp)
    })?;
    Ok(experts.widen(decoder))
}
