//! How far one sequence's text has come in its grammar.

use std::sync::Arc;

use inference_core::{Error, Result};
use llguidance::TokenParser;
use llguidance::api::StopReason;
use toktrie::SimpleVob;

use super::error::{invalid, reason};
use super::reasoning::{Next, Reasoning};
use super::vocabulary::Vocabulary;
use crate::panics::caught;

/// Bytes of the states that one text may make of its grammar.
const MAX_STATE_BYTES: usize = 128 << 20;

/// Which ids may come next: one entry for each row of the output layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Mask(SimpleVob);

impl Mask {
    /// Allows any of `size` ids.
    fn any(size: usize) -> Mask {
        Mask(SimpleVob::alloc_ones(size))
    }

    /// Allows one of `size` ids.
    pub(super) fn only(id: u32, size: usize) -> Mask {
        let mut mask = SimpleVob::alloc(size);
        mask.allow_token(id);
        Mask(mask)
    }

    /// Returns true when `id` may come next.
    pub fn allows(&self, id: u32) -> bool {
        (id as usize) < self.0.len() && self.0.is_allowed(id)
    }

    /// Forbids an id; one beyond the vocabulary is forbidden already.
    pub fn forbid(&mut self, id: u32) {
        if self.allows(id) {
            self.0.disallow_token(id);
        }
    }

    /// Returns true when nothing may come next.
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
pub struct Matcher {
    parser: TokenParser,
    vocabulary: Vocabulary,
    /// Ids that end a generation beside the model's own: allowed where the grammar may end.
    stop_ids: Vec<u32>,
    /// The ids that the grammar allows next, where they were computed already.
    next: Option<Mask>,
    /// The reasoning that comes before the text, until the text begins.
    reasoning: Option<Reasoning>,
    /// Set once a token was drawn.
    begun: bool,
    complete: bool,
    /// Why the matcher cannot go on.
    failed: Option<Error>,
}

impl Matcher {
    /// The state before the first token.
    ///
    /// # Errors
    /// Why there is no first token.
    pub(super) fn new(mut parser: TokenParser, vocabulary: Vocabulary) -> Result<Matcher, String> {
        if parser.is_fresh() {
            parser.start_without_prompt();
        }
        let next = Some(Mask(compute(&mut parser)?));
        let (stop_ids, reasoning, failed) = (Vec::new(), None, None);
        let (begun, complete) = (false, false);
        Ok(Matcher { parser, vocabulary, stop_ids, next, reasoning, begun, complete, failed })
    }

    /// A matcher for another sequence, in the state of this one.
    pub fn fork(&self) -> Matcher {
        Matcher {
            // A plain clone would share the states of the lexer.
            parser: self.parser.deep_clone(),
            vocabulary: self.vocabulary.clone(),
            stop_ids: self.stop_ids.clone(),
            next: self.next.clone(),
            reasoning: self.reasoning.clone(),
            begun: self.begun,
            complete: self.complete,
            failed: self.failed.clone(),
        }
    }

    /// Lets reasoning come before the text.
    pub(super) fn reason_first(&mut self, reasoning: Reasoning) {
        self.reasoning = Some(reasoning);
    }

    /// Also lets the text end with one of `ids` where the grammar may end.
    pub fn stop_at(&mut self, ids: &[u32]) {
        self.stop_ids = ids.to_vec();
    }

    /// The ids that may come next; an end-of-sequence id exactly where the grammar may end.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where a step exceeds its limits, or nothing can come next; what
    /// failed before.
    pub fn mask(&mut self) -> Result<Mask> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let more = match self.reasoning.as_ref().map(Reasoning::next) {
            None => &[][..],
            Some(Next::Text { or }) => or,
            Some(Next::Only(id)) => return Ok(Mask::only(id, self.vocabulary.size)),
            Some(Next::Any) => {
                let mut mask = Mask::any(self.vocabulary.size);
                let ends = self.vocabulary.eos_ids.iter().chain(&self.stop_ids);
                ends.for_each(|id| mask.forbid(*id));
                return Ok(mask);
            }
        };
        let more = more.to_vec();
        self.guarded(|matcher| {
            let mut mask = match &matcher.next {
                Some(mask) => mask.clone(),
                None => Mask(compute(&mut matcher.parser)?),
            };
            matcher.next.get_or_insert_with(|| mask.clone());
            more.iter().for_each(|id| mask.0.allow_token(*id));
            if !matcher.stop_ids.is_empty() && matcher.parser.is_accepting() {
                matcher.stop_ids.iter().for_each(|id| mask.0.allow_token(*id));
            }
            Ok(mask)
        })
    }

    /// Takes note of a token that was drawn. An error is that of the next
    /// [`mask`](Self::mask).
    pub fn accept(&mut self, id: u32) {
        if self.failed.is_some() || self.complete {
            return;
        }
        if let Some(reasoning) = &mut self.reasoning {
            let is_text = self.next.as_ref().is_some_and(|next| next.allows(id));
            if reasoning.takes(id, is_text) {
                return self.go_on();
            }
            self.reasoning = None;
        }
        self.next = None;
        let complete = self.guarded(|matcher| {
            if matcher.parser.consume_token(id).map_err(reason)? > 0 {
                return Err("the grammar takes back what was generated".to_owned());
            }
            matcher.go_on();
            matcher.parser.check_stop().map_err(reason)
        });
        // An error is kept for the next mask.
        self.complete = complete.unwrap_or(false);
    }

    /// Leaves the beginning of the text, where the texts of tokens may differ.
    fn go_on(&mut self) {
        let Vocabulary { first, inner, .. } = &self.vocabulary;
        if std::mem::replace(&mut self.begun, true) || Arc::ptr_eq(first, inner) {
            return;
        }
        self.parser.token_env = inner.tok_env().clone();
        self.parser.bias_computer = inner.slicer();
        self.parser.invalidate_bias_cache();
        self.next = None;
    }

    /// Returns true when the text is complete: nothing but an end may follow.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Runs a step of the grammar library, which may panic on what it does not expect.
    fn guarded<T>(&mut self, step: impl FnOnce(&mut Matcher) -> Result<T, String>) -> Result<T> {
        let error = match caught(|| step(self)) {
            Some(Ok(value)) => return Ok(value),
            Some(Err(reason)) if is_the_grammars(&self.parser) => invalid(reason),
            Some(Err(reason)) => Error::Engine(format!("constraint: {reason}")),
            None => Error::Engine("constraint: the grammar library failed".to_owned()),
        };
        self.failed = Some(error.clone());
        Err(error)
    }
}

/// Returns true when a parser stopped by the grammar's own fault.
fn is_the_grammars(parser: &TokenParser) -> bool {
    use StopReason::{LexerTooComplex, NoExtensionBias, ParserTooComplex};
    matches!(parser.stop_reason(), NoExtensionBias | LexerTooComplex | ParserTooComplex)
        || state_bytes(parser) > MAX_STATE_BYTES
}

/// Bytes of the states that were made of the grammar so far.
fn state_bytes(parser: &TokenParser) -> usize {
    parser.parser.lexer_stats().num_bytes
}

fn compute(parser: &mut TokenParser) -> Result<SimpleVob, String> {
    let mask = parser.compute_mask().map_err(|error| match parser.stop_reason() {
        StopReason::NoExtensionBias => "no token of the vocabulary can come next".to_owned(),
        StopReason::LexerTooComplex | StopReason::ParserTooComplex => {
            format!("a step exceeds its limits: {}", reason(error))
        }
        _ => reason(error),
    })?;
    match state_bytes(parser) {
        bytes if bytes > MAX_STATE_BYTES => Err(format!(
            "its states take {} MiB, at most {} are given",
            bytes >> 20,
            MAX_STATE_BYTES >> 20
        )),
        _ => Ok(mask),
    }
}
