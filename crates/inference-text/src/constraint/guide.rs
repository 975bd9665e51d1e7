//! A sequence held to a constraint of its text, to a bound of its reasoning, or to both.

use inference_core::Result;

use super::budget::Budget;
use super::matcher::{Mask, Matcher};

/// The state of one sequence in what it is held to; any thread may own it.
pub struct Guide {
    matcher: Option<Matcher>,
    budget: Option<Budget>,
    /// Rows of the output layer.
    size: usize,
}

impl Guide {
    /// The state before the first token, for a model with `size` rows in its output layer.
    pub(super) fn new(matcher: Option<Matcher>, budget: Option<Budget>, size: usize) -> Guide {
        Guide { matcher, budget, size }
    }

    /// Also lets the text end with one of `ids` where the grammar may end.
    pub fn stop_at(&mut self, ids: &[u32]) {
        if let Some(matcher) = &mut self.matcher {
            matcher.stop_at(ids);
        }
    }

    /// The ids that may come next; `None`: any.
    ///
    /// # Errors
    /// Those of [`Matcher::mask`].
    pub fn mask(&mut self) -> Result<Option<Mask>> {
        let forced = self.budget.as_ref().and_then(Budget::forced);
        let forced = forced.filter(|id| (*id as usize) < self.size);
        let only = forced.map(|id| (id, Mask::only(id, self.size)));
        let Some(matcher) = &mut self.matcher else { return Ok(only.map(|(_, mask)| mask)) };
        let mask = matcher.mask()?;
        Ok(Some(match only {
            // A grammar that has no place for the mark goes first.
            Some((id, only)) if mask.allows(id) => only,
            _ => mask,
        }))
    }

    /// Takes note of a token that was drawn. An error is that of the next [`mask`](Self::mask).
    pub fn accept(&mut self, id: u32) {
        if let Some(matcher) = &mut self.matcher {
            matcher.accept(id);
        }
        if self.budget.as_mut().is_some_and(|budget| !budget.takes(id)) {
            self.budget = None;
        }
    }

    /// Returns true when the next token can only be drawn once all before it are known.
    pub fn must_know(&self) -> bool {
        self.matcher.is_some() || self.budget.as_ref().is_some_and(Budget::must_know)
    }

    /// Returns true when the text is complete: nothing but an end may follow.
    pub fn is_complete(&self) -> bool {
        self.matcher.as_ref().is_some_and(Matcher::is_complete)
    }
}
