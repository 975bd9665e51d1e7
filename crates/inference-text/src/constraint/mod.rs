//! Constrained text: JSON schemas, regular expressions and grammars (Lark and GBNF), by llguidance.
//!
//! A constraint is compiled on the caller's thread into a [`Matcher`], which goes with the request:
//! before each draw it says which ids may come next, and it learns each id that was drawn.

mod annotations;
mod budget;
mod checks;
mod closing;
mod compile;
mod error;
mod gbnf;
mod grammar;
mod guide;
mod matcher;
mod measure;
mod reasoning;
mod slots;
mod vocabulary;

use std::sync::{Arc, Mutex, PoisonError};

use inference_core::{Constraint, Error, GenerateOptions, Result};

use budget::Budget;
pub use gbnf::of_gbnf;
pub use guide::Guide;
pub use matcher::{Mask, Matcher};
use reasoning::Reasoning;
use slots::Slots;
use vocabulary::Vocabulary;
pub use vocabulary::refusal;

use crate::Tokenizer;

/// Compiled constraints that are kept, those that were used last.
const KEPT: usize = 8;

/// The constraints of one model. The vocabulary is built with the first constrained request.
pub struct Constraints {
    tokenizer: Tokenizer,
    eos_ids: Vec<u32>,
    vocab_size: usize,
    vocabulary: Mutex<Option<Vocabulary>>,
    slots: Arc<Slots>,
    /// At the beginning of a text; the one used last comes last.
    compiled: Mutex<Vec<(Constraint, Matcher)>>,
}

impl Constraints {
    /// For a model with `vocab_size` rows in its output layer, whose text ends with `eos_ids`.
    pub fn new(tokenizer: Tokenizer, eos_ids: Vec<u32>, vocab_size: usize) -> Constraints {
        let (vocabulary, compiled) = (Mutex::new(None), Mutex::new(Vec::new()));
        let slots = Arc::new(Slots::default());
        Constraints { tokenizer, eos_ids, vocab_size, vocabulary, slots, compiled }
    }

    /// The guide of a request behind `prompt`, if its options hold it to something.
    ///
    /// # Errors
    /// Those of [`matcher`](Self::matcher); [`Error::InvalidOption`] for marks that the model does
    /// not have.
    pub fn begin(&self, options: &GenerateOptions, prompt: &[u32]) -> Result<Option<Guide>> {
        let budget = match &options.reasoning_budget {
            Some(budget) => Budget::new(budget, &self.tokenizer, prompt)?,
            None => None,
        };
        if let Some(budget) = &budget {
            budget.check(&options.logit_bias)?;
        }
        let Some(constraint) = &options.constraint else {
            return Ok(budget.map(|budget| Guide::new(None, Some(budget), self.vocab_size)));
        };
        let mut matcher = self.matcher(constraint)?;
        if let Some(marks) = &options.reasoning {
            let line_breaks = self.vocabulary()?.line_breaks;
            let reasoning = Reasoning::new(marks, &self.tokenizer, line_breaks, prompt)?;
            reasoning.into_iter().for_each(|reasoning| matcher.reason_first(reasoning));
        }
        Ok(Some(Guide::new(Some(matcher), budget, self.vocab_size)))
    }

    /// A matcher at the beginning of a text.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a constraint that is wrong or exceeds the limits;
    /// [`Error::Unsupported`] where the tokenizer cannot be constrained; [`Error::QueueFull`] where
    /// too many are being compiled.
    pub fn matcher(&self, constraint: &Constraint) -> Result<Matcher> {
        if let Some(kept) = self.kept(constraint) {
            return Ok(kept);
        }
        let matcher = compile::compile(constraint, self.vocabulary()?, &self.slots)?;
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if compiled.len() == KEPT {
            compiled.remove(0);
        }
        compiled.push((constraint.clone(), matcher.fork()));
        Ok(matcher)
    }

    fn kept(&self, constraint: &Constraint) -> Option<Matcher> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let at = compiled.iter().position(|(kept, _)| kept == constraint)?;
        let entry = compiled.remove(at);
        let matcher = entry.1.fork();
        compiled.push(entry);
        Some(matcher)
    }

    fn vocabulary(&self) -> Result<Vocabulary> {
        let mut shared = self.vocabulary.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(vocabulary) = &*shared {
            return Ok(vocabulary.clone());
        }
        let built = Vocabulary::new(&self.tokenizer, &self.eos_ids, self.vocab_size);
        let built = built.map_err(|error| Error::Unsupported {
            what: "constraint".into(),
            reason: format!("this model's tokenizer cannot be constrained: {error}"),
        })?;
        Ok(shared.insert(built).clone())
    }
}

#[cfg(test)]
mod tests;
