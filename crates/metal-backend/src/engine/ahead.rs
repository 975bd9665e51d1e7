//! What a step draws before the draws of the step before are read.

use serde::{Deserialize, Serialize};

use crate::sampling::Sampler;

/// What is drawn before the draws of the step before are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ahead {
    /// A row has to know what was drawn.
    Nothing,
    /// What each row asks for.
    Draws,
    /// The most likely ids, which ranks find without the logits of each other.
    MostLikely,
}

impl Ahead {
    /// What rows with these samplers allow, where the logits are split between ranks or not.
    pub fn of<'a>(
        mut samplers: impl Iterator<Item = &'a Sampler> + Clone,
        are_split: bool,
    ) -> Ahead {
        if are_split && samplers.clone().all(Sampler::is_settled) {
            Ahead::MostLikely
        } else if samplers.any(Sampler::needs_history) {
            Ahead::Nothing
        } else {
            Ahead::Draws
        }
    }
}
