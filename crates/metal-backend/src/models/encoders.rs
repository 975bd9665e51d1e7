//! The architectures that encode whole texts: one file each, and one line here.

use super::{bert, modernbert, xlm_roberta};
use crate::config::Config;
use crate::error::Result;
use crate::layers::{ClassHead, TextEncoder};
use crate::weights::Weights;

/// Builds a model from its config and takes its weights, and those of its head where it scores
/// pairs.
type Load = fn(&Config, &Weights) -> Result<(TextEncoder, Option<ClassHead>)>;

/// Each `model_type` with its builder.
const REGISTRY: &[(&str, Load)] = &[
    ("bert", bert::load),
    ("modernbert", modernbert::load),
    ("roberta", xlm_roberta::load),
    ("xlm-roberta", xlm_roberta::load),
];

/// The name of an architecture that encodes texts and generates none, where `name` is one.
pub(crate) fn encoder_named(name: &str) -> Option<&'static str> {
    REGISTRY.iter().map(|(known, _)| *known).find(|known| *known == name)
}

/// Builds the model that `config` describes from `weights`, where its architecture is one of these.
/// The head is there where the checkpoint scores pairs by one.
///
/// # Errors
/// A config or a tensor that does not fit.
pub(super) fn load(
    config: &Config,
    weights: &Weights,
) -> Result<Option<(TextEncoder, Option<ClassHead>)>> {
    let name = config.opt_text("model_type")?.unwrap_or_default();
    let known = REGISTRY.iter().find(|(known, _)| *known == name);
    known.map(|(_, load)| load(config, weights)).transpose()
}
