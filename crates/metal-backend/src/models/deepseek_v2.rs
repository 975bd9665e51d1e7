//! DeepSeek V2, V2.5 and Coder V2: latent attention, and experts by their probabilities among all,
//! perhaps of the best groups alone.

use super::deepseek_v3;
use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::Mixture;
use crate::weights::Weights;

/// Builds the model under the names of `DeepseekV2ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    // A rank of null means that queries have one projection.
    let defaults = [("first_k_dense_replace", 0), ("n_shared_experts", 2), ("q_lora_rank", 1536)];
    let config = config.with_defaults(&defaults);
    deepseek_v3::build(&config, w, &w.at("model"), Mixture::of_probabilities)
}
