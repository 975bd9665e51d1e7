//! The penalty on going on with what was there before.

use clap::Args;
use inference_core::Dry;

use super::values;

/// The penalty on going on with what was there before.
#[derive(Args, Clone, Debug, Default)]
pub struct DryArgs {
    /// Makes tokens less likely that go on with what was there before (DRY); 0: off
    #[arg(long, value_name = "X", value_parser = values::number, allow_hyphen_values = true)]
    pub dry_multiplier: Option<f32>,
    /// How that grows with each token of a repeat, from 1 on [default: 1.75]
    #[arg(long, value_name = "X", value_parser = values::number, allow_hyphen_values = true)]
    pub dry_base: Option<f32>,
    /// Shorter repeats cost nothing [default: 2]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub dry_allowed_length: Option<usize>,
    /// How many of the last tokens are looked at; 0: off [default: all]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub dry_penalty_last_n: Option<usize>,
    /// Repeats do not go over this text; repeatable; `none`: no text [default: line break, : " *]
    #[arg(long, value_name = "TEXT")]
    pub dry_sequence_breaker: Vec<String>,
}

impl DryArgs {
    /// The contract's option, where a multiplier is given.
    pub fn options(&self) -> Option<Dry> {
        let usual = Dry::default();
        let sequence_breakers = match self.dry_sequence_breaker.as_slice() {
            [] => usual.sequence_breakers,
            [none] if none == "none" => Vec::new(),
            texts => texts.to_vec(),
        };
        Some(Dry {
            multiplier: self.dry_multiplier?,
            base: self.dry_base.unwrap_or(usual.base),
            allowed_length: self.dry_allowed_length.unwrap_or(usual.allowed_length),
            penalty_last_n: self.dry_penalty_last_n,
            sequence_breakers,
        })
    }
}
