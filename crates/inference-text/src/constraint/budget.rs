//! A bound of the tokens of reasoning: then its closing mark is forced.

use inference_core::{GenerateOptions, ReasoningBudget, Result};

use super::reasoning::{begun, mark_ids};
use crate::Tokenizer;
use crate::reasoning::Begun;

/// Tokens before the bound from which each has to be known before the next one is drawn: as many as
/// are drawn at once, and some that are queued.
const MARGIN: usize = GenerateOptions::MAX_DRAFT_TOKENS + 8;

/// How far one sequence has come in its reasoning.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    open: Vec<u32>,
    close: Vec<u32>,
    phase: Phase,
    /// The last ids inside, at most as many as the closing mark has.
    last: Vec<u32>,
    /// Tokens that may still come inside.
    left: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// So many ids of the opening mark have come.
    Opening(usize),
    /// The closing mark has not come yet.
    Inside,
}

impl Budget {
    /// The state behind `prompt`; `None` where it has closed the reasoning.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](inference_core::Error::InvalidOption) for a mark that does not
    /// begin with an added token.
    pub fn new(
        budget: &ReasoningBudget,
        tokenizer: &Tokenizer,
        prompt: &[u32],
    ) -> Result<Option<Budget>> {
        let marks = &budget.marks;
        let open = mark_ids(&marks.open, "reasoning_budget", tokenizer)?;
        let close = mark_ids(&marks.close, "reasoning_budget", tokenizer)?;
        let phase = match begun(marks, tokenizer, prompt) {
            Begun::Open(_) => Phase::Inside,
            Begun::Over => return Ok(None),
            Begun::Not => Phase::Opening(0),
        };
        Ok(Some(Budget { open, close, phase, last: Vec::new(), left: budget.tokens }))
    }

    /// The only id that may come next, where the bound is reached.
    pub fn forced(&self) -> Option<u32> {
        if self.phase != Phase::Inside || self.left > 0 {
            return None;
        }
        let is_begun = |count: &usize| self.last.ends_with(&self.close[..*count]);
        let come = (0..self.close.len()).rev().find(is_begun).unwrap_or(0);
        Some(self.close[come])
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
            Phase::Inside => {
                self.last.push(id);
                if self.last.len() > self.close.len() {
                    self.last.remove(0);
                }
                self.left = self.left.saturating_sub(1);
                self.last != self.close
            }
        }
    }
}
