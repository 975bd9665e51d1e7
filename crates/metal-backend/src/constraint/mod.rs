//! Constrained text: JSON schemas, regular expressions and Lark grammars, by llguidance.
//!
//! A constraint is compiled on the caller's thread into a [`Matcher`], which goes with the request:
//! before each draw it says which ids may come next, and it learns each id that became part of the
//! text. Nothing here knows MLX.

mod checks;
mod compile;
mod matcher;
mod vocabulary;

use std::sync::{Mutex, PoisonError};

use inference_core::{Constraint, Error, Result};

pub(crate) use matcher::{Mask, Matcher};
use vocabulary::Vocabulary;

use crate::text::Tokenizer;

/// The constraints of one model. The vocabulary is built with the first constrained request.
pub(crate) struct Constraints {
    tokenizer: Tokenizer,
    eos_ids: Vec<u32>,
    vocab_size: usize,
    vocabulary: Mutex<Option<Vocabulary>>,
}

impl Constraints {
    /// For a model with `vocab_size` rows in its output layer, whose text ends with `eos_ids`.
    pub fn new(tokenizer: Tokenizer, eos_ids: Vec<u32>, vocab_size: usize) -> Constraints {
        Constraints { tokenizer, eos_ids, vocab_size, vocabulary: Mutex::new(None) }
    }

    /// A matcher at the beginning of a text.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a constraint that is wrong or exceeds the limits;
    /// [`Error::Unsupported`] where the tokenizer cannot be constrained.
    pub fn matcher(&self, constraint: &Constraint) -> Result<Matcher> {
        compile::compile(constraint, self.vocabulary()?)
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
