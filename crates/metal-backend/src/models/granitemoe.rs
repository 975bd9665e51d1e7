//! Granite 3 with a mixture of experts in each layer: Granite's factors, and perhaps one expert
//! that all positions pass.

use super::granite::Granite;
use super::granitemoehybrid::shared_mlp;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Decoder, Moe, Routing, SharedExpert};
use crate::shape::{ExpertNames, Experts, activation};
use crate::weights::Weights;

/// The size of the expert that all positions pass; 0: there is none.
const SHARED: &str = "shared_intermediate_size";

/// Builds the model under the names of `GraniteMoeForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &Granite::read(config)?, 0)
}

/// Builds the model under the names of `GraniteMoeSharedForCausalLM`.
pub(super) fn load_shared(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &Granite::read(config)?, config.opt_index(SHARED)?.unwrap_or(0))
}

/// Builds the model under the names of `GraniteMoeSWAForCausalLM`.
pub(super) fn load_windowed(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &Granite::read_windowed(config)?, config.opt_index(SHARED)?.unwrap_or(0))
}

/// Builds the model with a shared expert of so many values.
fn build(config: &Config, w: &Weights, granite: &Granite, shared: i32) -> Result<Decoder> {
    let shape = &granite.shape;
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let experts = Experts::read(config, ["num_local_experts", "num_experts"])?;
    let (hidden, inner) = (shape.hidden_size, shape.intermediate_size);
    let decoder = granite.decoder(config, w, |w| {
        let sparse = w.at("block_sparse_moe");
        let (gate_up, down_proj) = experts.linears(&sparse, ExpertNames::PROJ, [hidden, inner])?;
        let beside = || {
            // Both projections are one, but in files of GGUF.
            let mlp = match w.at("mlp").is_empty() {
                true => shared_mlp(shape, &w.at("shared_mlp"), shared, act)?,
                false => shape.mlp_of(&w.at("mlp"), shared, act, false)?,
            };
            Ok::<_, Error>(SharedExpert { mlp, gate: None })
        };
        // transformers saves that of models with windows under the second name.
        let is_layer = !sparse.at("router.layer").is_empty() || w.is_random();
        let router = if is_layer { "router.layer" } else { "router" };
        let moe = Moe {
            router: sparse.router(router, hidden, experts.count, false)?,
            routing: Routing::Normalised,
            experts_per_token: experts.per_token,
            gate_up,
            down_proj,
            activation: act,
            shared: (shared > 0).then(beside).transpose()?,
            kernels: w.kernels(),
        };
        Ok(moe.into())
    })?;
    Ok(experts.widen_beside(decoder, inner, shared))
}
