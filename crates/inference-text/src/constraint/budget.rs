//! A bound of the tokens of reasoning: then its closing mark is forced.

use std::collections::BTreeMap;

use inference_core::{Error, GenerateOptions, ReasoningBudget, Result};

use super::reasoning::{begun, mark_ids};
use crate::reasoning::Begun;
use crate::{AddSpecial, Tokenizer};

/// Tokens before the bound from which each has to be known before the next one is drawn: as many as
/// are drawn at once, and some that are queued.
const MARGIN: usize = GenerateOptions::MAX_DRAFT_TOKENS + 8;

/// How far one sequence has come in its reasoning.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    open: Vec<u32>,
    close: Vec<u32>,
    phase: Phase,
    /// Tokens that may still come inside.
    left: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// So many ids of the opening mark have come.
    Opening(usize),
    /// The closing mark has not come yet.
    Inside,
    /// So many ids of the closing mark were forced.
    Closing(usize),
}

impl Budget {
    /// The state behind `prompt`; `None` where it has closed the reasoning.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a mark of several tokens that does not begin with an added one.
    pub fn new(
        budget: &ReasoningBudget,
        tokenizer: &Tokenizer,
        prompt: &[u32],
    ) -> Result<Option<Budget>> {
        let marks = &budget.marks;
        let ids = |mark: &str| match tokenizer.encode(mark, AddSpecial::Never) {
            Ok(ids) if ids.len() == 1 => Ok(ids),
            _ => mark_ids(mark, "reasoning_budget", tokenizer),
        };
        let (open, close) = (ids(&marks.open)?, ids(&marks.close)?);
        let phase = match begun(marks, tokenizer, prompt) {
            Begun::Open(_) => Phase::Inside,
            Begun::Over => return Ok(None),
            Begun::Not => Phase::Opening(0),
        };
        Ok(Some(Budget { open, close, phase, left: budget.tokens }))
    }

    /// Checks that the biases of logits leave the closing mark.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where one forbids it.
    pub fn check(&self, bias: &BTreeMap<u32, f32>) -> Result<()> {
        let is_forbidden = |id: &&u32| bias.get(id) == Some(&f32::NEG_INFINITY);
        match self.close.iter().find(is_forbidden) {
            Some(id) => Err(Error::InvalidOption {
                option: "logit_bias",
                reason: format!("forbids {id}, by which the `reasoning_budget` ends the reasoning"),
            }),
            None => Ok(()),
        }
    }

    /// The only id that may come next, where the bound is reached.
    pub fn forced(&self) -> Option<u32> {
        match self.phase {
            Phase::Inside if self.left == 0 => Some(self.close[0]),
            Phase::Closing(at) => Some(self.close[at]),
            Phase::Opening(_) | Phase::Inside => None,
        }
    }

    /// Returns true when the next id must not be drawn before all others are known.
    pub fn must_know(&self) -> bool {
        self.left <= MARGIN
    }

    /// Takes note of an id. False where no reasoning follows.
    pub fn takes(&mut self, id: u32) -> bool {
        match self.phase {
            Phase::Opening(at) if id != self.open[at] => false,
            Phase::Opening(at) => {
                let is_open = at + 1 == self.open.len();
                self.phase = if is_open { Phase::Inside } else { Phase::Opening(at + 1) };
                true
            }
            // It ends by itself, or is closed now. What follows the first id of a mark need not be
            // the rest of it where the model has written it.
            Phase::Inside if id == self.close[0] => {
                let goes_on = self.left == 0 && self.close.len() > 1;
                self.phase = Phase::Closing(1);
                goes_on
            }
            Phase::Inside => {
                self.left = self.left.saturating_sub(1);
                true
            }
            Phase::Closing(at) => {
                self.phase = Phase::Closing(at + 1);
                id == self.close[at] && at + 1 < self.close.len()
            }
        }
    }
}
