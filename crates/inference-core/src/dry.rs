//! DRY: a penalty on going on with what was there before.

use crate::{Error, Result};

/// The penalty on ids that would go on with a sequence which was there before, by llama.cpp's
/// definition.
///
/// A repeat of length `n` is there where the last `n` ids, prompt included, are those before an
/// earlier id. That id goes on with it. Of an id's repeats the longest counts: from its logit,
/// `multiplier · base^(n - allowed_length)` is taken where `n` is `allowed_length` or more.
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    /// How much is taken where a repeat has `allowed_length`; 0: off.
    pub multiplier: f32,
    /// The growth with each further id, from 1 on.
    pub base: f32,
    /// Repeats that are shorter cost nothing.
    pub allowed_length: usize,
    /// How many of the last ids are looked at; 0: off; `None`: all.
    pub penalty_last_n: Option<usize>,
    /// Texts over which no repeat goes, of which the first 40 bytes count.
    pub sequence_breakers: Vec<String>,
}

impl Default for Dry {
    fn default() -> Dry {
        Dry {
            multiplier: 0.0,
            base: 1.75,
            allowed_length: 2,
            penalty_last_n: None,
            sequence_breakers: ["\n", ":", "\"", "*"].map(str::to_owned).to_vec(),
        }
    }
}

impl Dry {
    /// The most that `sequence_breakers` may be.
    pub const MAX_SEQUENCE_BREAKERS: usize = 64;

    /// Returns true when it changes a logit in some text.
    pub fn is_on(&self) -> bool {
        self.multiplier != 0.0 && self.penalty_last_n != Some(0)
    }

    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with the first bad option's name.
    pub fn validate(&self) -> Result<()> {
        let invalid = |option, reason: String| Err(Error::InvalidOption { option, reason });
        if !(self.multiplier.is_finite() && self.multiplier >= 0.0) {
            let reason = format!("{} is not at least 0 and finite", self.multiplier);
            return invalid("dry.multiplier", reason);
        }
        if !(self.base.is_finite() && self.base >= 1.0) {
            return invalid("dry.base", format!("{} is not at least 1 and finite", self.base));
        }
        let breakers = &self.sequence_breakers;
        if breakers.len() > Self::MAX_SEQUENCE_BREAKERS {
            let most = Self::MAX_SEQUENCE_BREAKERS;
            return invalid("dry.sequence_breakers", format!("has more than {most} texts"));
        }
        match breakers.iter().position(String::is_empty) {
            Some(index) => invalid("dry.sequence_breakers", format!("text {index} is empty")),
            None => Ok(()),
        }
    }
}
