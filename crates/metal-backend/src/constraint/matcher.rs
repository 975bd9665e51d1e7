//! How far one sequence's text has come in its grammar.

use std::panic::{AssertUnwindSafe, catch_unwind};

use inference_core::{Error, Result};
use llguidance::TokenParser;
use toktrie::SimpleVob;

use super::compile::reason;
use super::vocabulary::Vocabulary;

/// Which ids may come next: one entry for each row of the output layer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mask(SimpleVob);

impl Mask {
    /// Whether `id` may come next.
    pub fn allows(&self, id: u32) -> bool {
        (id as usize) < self.0.len() && self.0.is_allowed(id)
    }

    /// Forbids an id; one beyond the vocabulary is forbidden already.
    pub fn forbid(&mut self, id: u32) {
        if self.allows(id) {
            self.0.disallow_token(id);
        }
    }

    /// Whether nothing may come next.
    pub fn is_empty(&self) -> bool {
        self.0.is_zero()
    }

    /// One byte an id, 1 where it is allowed.
    pub fn to_bytes(&self) -> Vec<u8> {
        let words = self.0.as_slice();
        let bit = |id: usize| ((words[id / 32] >> (id % 32)) & 1) as u8;
        (0..self.0.len()).map(bit).collect()
    }
}

/// The state of one sequence in its grammar; any thread may own it.
pub(crate) struct Matcher {
    parser: TokenParser,
    vocabulary: Vocabulary,
    /// Ids that end a generation beside the model's own: allowed where the grammar may end.
    stop_ids: Vec<u32>,
    complete: bool,
    /// Why the matcher cannot go on.
    failed: Option<Error>,
}

impl Matcher {
    /// The state before the first token.
    pub(super) fn new(mut parser: TokenParser, vocabulary: Vocabulary) -> Matcher {
        if parser.is_fresh() {
            parser.start_without_prompt();
        }
        Matcher { parser, vocabulary, stop_ids: Vec::new(), complete: false, failed: None }
    }

    /// Also lets the text end with one of `ids` where the grammar may end.
    pub fn stop_at(&mut self, ids: &[u32]) {
        self.stop_ids = ids.to_vec();
    }

    /// The ids that may come next; an end-of-sequence id exactly where the grammar may end.
    ///
    /// # Errors
    /// What exceeds the limits on a step, or failed before; that nothing can come next.
    pub fn mask(&mut self) -> Result<Mask> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mask = self.guarded(|matcher| {
            let mut mask = matcher.parser.compute_mask().map_err(reason)?;
            if !matcher.stop_ids.is_empty() && matcher.parser.is_accepting() {
                matcher.stop_ids.iter().for_each(|id| mask.allow_token(*id));
            }
            Ok(mask)
        });
        mask.map(Mask)
    }

    /// Takes note of a token that is part of the text. An error is that of the next
    /// [`mask`](Self::mask).
    pub fn accept(&mut self, id: u32) {
        if self.failed.is_some() || self.complete {
            return;
        }
        let complete = self.guarded(|matcher| {
            let parser = &mut matcher.parser;
            if parser.consume_token(id).map_err(reason)? > 0 {
                return Err("the grammar takes back what was generated".to_owned());
            }
            // The texts of tokens differ where a text begins.
            parser.token_env = matcher.vocabulary.inner.tok_env().clone();
            parser.bias_computer = matcher.vocabulary.inner.slicer();
            parser.check_stop().map_err(reason)
        });
        // An error is kept for the next mask.
        self.complete = complete.unwrap_or(false);
    }

    /// Whether the text is complete: nothing but an end may follow.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Runs a step of the grammar library, which may panic on what it does not expect.
    fn guarded<T>(&mut self, step: impl FnOnce(&mut Matcher) -> Result<T, String>) -> Result<T> {
        let result = catch_unwind(AssertUnwindSafe(|| step(self)));
        let reason = match result {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(reason)) => reason,
            Err(_) => "the grammar library failed".to_owned(),
        };
        let error = Error::Engine(format!("constraint: {reason}"));
        self.failed = Some(error.clone());
        Err(error)
    }
}
