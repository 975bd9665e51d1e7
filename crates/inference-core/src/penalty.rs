//! The scope of the penalties of repeated tokens.

use crate::{Error, Result};

/// Which ids the penalties look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PenaltyScope {
    /// The prompt's and the generated ones.
    #[default]
    Context,
    /// The generated ones, the prompt left out.
    Generated,
}

impl PenaltyScope {
    /// `context` or `generated`.
    pub fn as_str(self) -> &'static str {
        match self {
            PenaltyScope::Context => "context",
            PenaltyScope::Generated => "generated",
        }
    }
}

impl std::str::FromStr for PenaltyScope {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "context" => Ok(PenaltyScope::Context),
            "generated" => Ok(PenaltyScope::Generated),
            other => Err(Error::InvalidOption {
                option: "penalty_scope",
                reason: format!("`{other}` is not one of context, generated"),
            }),
        }
    }
}
