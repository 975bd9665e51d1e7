//! Hunyuan A13B: HunYuan's attention, and a mixture of experts beside one that all positions pass.

use super::hunyuan_v1_dense;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Decoder, Moe, Routing, SharedExpert};
use crate::shape::{ExpertNames, Experts, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `HunYuanMoEV1ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &of_all_layers(config)?.with_default_number("rms_norm_eps", 1e-5);
    for (key, known) in [("norm_topk_prob", true), ("use_mixed_mlp_moe", true)] {
        if let Some(other) = config.opt_flag(key)?.filter(|found| *found != known) {
            return Err(config.wrong(key, &other.into(), &known.to_string()));
        }
    }
    if let Some(dense) = config.opt_index("moe_layer_num_skipped")?.filter(|dense| *dense > 0) {
        return Err(config.wrong("moe_layer_num_skipped", &dense.into(), "0"));
    }
    let shape = Shape::read(config)?;
    let attention = hunyuan_v1_dense::attention(config, &shape)?;
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let experts = Experts::read_as(config, ["num_experts", "num_local_experts"], "moe_topk")?;
    let hidden = shape.hidden_size;
    let inner = config.opt_size("moe_intermediate_size")?.unwrap_or(shape.intermediate_size);
    let shared = config.opt_size("num_shared_expert")?.unwrap_or(1);
    let shared_inner = shape.intermediate_size.checked_mul(shared).ok_or_else(|| {
        Error::model(format!("config.json: `num_shared_expert` {shared} is too large"))
    })?;
    let decoder = shape.decoder(config, w, &w.at("model"), |w, _| {
        let mlp = w.at("mlp");
        let (gate_up, down_proj) = experts.linears(&mlp, ExpertNames::PROJ, [hidden, inner])?;
        let moe = Moe {
            router: mlp.router("gate.wg", hidden, experts.count, false)?,
            routing: Routing::Normalised,
            experts_per_token: experts.per_token,
            gate_up,
            down_proj,
            activation: act,
            shared: Some(SharedExpert {
                mlp: shape.mlp_of(&mlp.at("shared_mlp"), shared_inner, act, false)?,
                gate: None,
            }),
            kernels: w.kernels(),
        };
        shape.pre_norm_block(w, attention(w)?, moe.into())
    })?;
    Ok(experts.widen_beside(decoder, inner, shared_inner))
}

/// The config with one number where it lists one for each layer.
///
/// # Errors
/// Numbers that differ from layer to layer.
fn of_all_layers(config: &Config) -> Result<Config> {
    const KEYS: [&str; 5] = [
        "num_experts",
        "moe_topk",
        "moe_intermediate_size",
        "num_shared_expert",
        "num_local_experts",
    ];
    let mut all = config.clone();
    for key in KEYS {
        let Some(listed) = config.get(key).filter(|value| value.is_array()) else { continue };
        let sizes = config.opt_indices(key)?.unwrap_or_default();
        let first = sizes.first().and_then(|first| i32::try_from(*first).ok());
        let is_one = sizes.iter().all(|size| Some(size) == sizes.first());
        let (Some(size), true) = (first, is_one) else {
            return Err(config.wrong(key, listed, "one number for all layers"));
        };
        all = all.with_size(key, size);
    }
    Ok(all)
}
