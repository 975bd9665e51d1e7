//! GLM 5: DeepSeek V3.2's form, in which some layers may attend to the keys that an earlier one
//! chose.

use super::deepseek_v32;
use crate::config::{Config, RopePairs};
use crate::error::{Error, Result};
use crate::layers::Decoder;
use crate::shape::IndexParts;
use crate::weights::Weights;

/// Builds the model under the names of `GlmMoeDsaForCausalLM`; the layer that predicts a further
/// token is left aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let defaults = [("first_k_dense_replace", 3), ("n_group", 1), ("topk_group", 1)];
    let config = config
        .with_defaults(&defaults)
        .with_default_number("routed_scaling_factor", 2.5)
        .with_default_number("rms_norm_eps", 1e-5);
    let pairs = match config.opt_flag("indexer_rope_interleave")? {
        Some(false) => RopePairs::Halves,
        Some(true) | None => RopePairs::Neighbours,
    };
    let index = IndexParts::read(&config, 32, pairs)?.with_own(own_indexes(&config)?)?;
    deepseek_v32::build(&config, w, &index)
}

/// Which layers have an index of their own: by their kinds, by a letter for each, or one of every
/// so many behind the first.
fn own_indexes(config: &Config) -> Result<Vec<bool>> {
    const TYPES: &str = "indexer_types";
    const PATTERN: &str = "index_topk_pattern";
    let is_own = |key: &str, kind: &str| match kind {
        "full" | "F" => Ok(true),
        "shared" | "S" => Ok(false),
        other => Err(Error::model(format!(
            "config.json: `{key}` names `{other}`, known are full, shared"
        ))),
    };
    if let Some(types) = config.opt_texts(TYPES)? {
        return types.into_iter().map(|kind| is_own(TYPES, kind)).collect();
    }
    match config.get(PATTERN) {
        Some(pattern) if pattern.is_string() => {
            let letters = config.opt_text(PATTERN)?.unwrap_or_default();
            letters.chars().map(|letter| is_own(PATTERN, &letter.to_string())).collect()
        }
        Some(_) => {
            let types = config.opt_texts(PATTERN)?.unwrap_or_default();
            types.into_iter().map(|kind| is_own(PATTERN, kind)).collect()
        }
        None => {
            let every = config.opt_index("index_topk_freq")?.unwrap_or(1).max(1);
            let offset = config.opt_index("index_skip_topk_offset")?.unwrap_or(2);
            let layers = config.size("num_hidden_layers")?;
            Ok((0..layers).map(|layer| (layer - offset + 1).max(0) % every == 0).collect())
        }
    }
}
