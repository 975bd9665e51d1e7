//! Qwen 3 Next: three gated delta nets to one attention layer, with a mixture of experts in most
//! layers and beside it one that all positions pass.

use super::qwen3_5::Hybrid;
use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{SharedExperts, SparseLayers, activation};
use crate::weights::Weights;

/// The default of config.json for dividing weights by their sum.
const NORMALISES: bool = true;

/// Builds the model under the names of `Qwen3NextForCausalLM`; the layers that predict further
/// tokens are set aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let model = w.at("model");
    let hybrid = Hybrid::read(config, &model, 10_000.0)?;
    let experts = SharedExperts::read(config, NORMALISES)?;
    let sparse = SparseLayers::read(config)?;
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let decoder = hybrid.decoder(config, w, &model, |w, index| {
        let mlp = w.at("mlp");
        match sparse.has(index) {
            true => experts.build(&hybrid.shape, &mlp, act),
            false => hybrid.shape.mlp(&mlp, act, false),
        }
    })?;
    Ok(experts.widen(decoder))
}
