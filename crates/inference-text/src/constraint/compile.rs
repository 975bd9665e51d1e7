//! From a constraint to a grammar, within bounds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use inference_core::{Constraint, Error, Result};
use llguidance::api::TopLevelGrammar;

use super::checks::{check_source, schema_json};
use super::error::{invalid, reason};
use super::grammar::grammar_source;
use super::matcher::Matcher;
use super::vocabulary::Vocabulary;

/// A compilation that takes longer is given up.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Compilations of one model that run at once, those that were given up included.
const MAX_AT_ONCE: usize = 4;
/// The library follows references by recursion, some 3 KiB each; the smallest rule has 6 bytes.
/// Only what is used of a stack takes memory.
const STACK_BYTES: usize = 256 << 20;

/// A matcher at the beginning of a text.
///
/// # Errors
/// [`Error::InvalidOption`] with what is wrong and where, as far as it is known;
/// [`Error::QueueFull`] where no slot becomes free.
pub(super) fn compile(
    constraint: &Constraint,
    vocabulary: Vocabulary,
    slots: &Arc<Slots>,
) -> Result<Matcher> {
    let grammar = match constraint {
        Constraint::JsonSchema(schema) => TopLevelGrammar::from_json_schema(schema_json(schema)?),
        Constraint::Regex(regex) => {
            check_source("the regular expression", regex)?;
            TopLevelGrammar::from_regex(regex)
        }
        Constraint::Lark(grammar) => TopLevelGrammar::from_lark(grammar_source(grammar)?),
    };
    let slot = Slots::take(slots, MAX_TIME)?;
    let (done, compiled) = mpsc::channel();
    let build = move || {
        // Held until the thread ends, whether somebody still waits for it or not.
        let _slot = slot;
        let built = catch_unwind(AssertUnwindSafe(|| {
            let mut parser = vocabulary.first.create_parser(grammar).map_err(reason)?;
            match parser.grammar_warnings() {
                warnings if warnings.is_empty() => Matcher::new(parser, vocabulary),
                warnings => Err(warnings.join("; ")),
            }
        }));
        // Nobody may wait any longer.
        let _ = done.send(built.unwrap_or_else(|_| Err("the grammar library failed on it".into())));
    };
    thread::Builder::new()
        .name("ml-grammar".into())
        .stack_size(STACK_BYTES)
        .spawn(build)
        .map_err(|error| Error::Engine(format!("cannot start a thread for a grammar: {error}")))?;
    match compiled.recv_timeout(MAX_TIME) {
        Ok(built) => built.map_err(invalid),
        Err(_) => Err(invalid(format!("takes longer than {} s to compile", MAX_TIME.as_secs()))),
    }
}

/// Counts the compilations that run.
#[derive(Default)]
pub(super) struct Slots {
    taken: Mutex<usize>,
    freed: Condvar,
}

/// Frees its place when it is dropped.
pub(super) struct Slot(Arc<Slots>);

impl Slots {
    /// Waits at most `patience` for a slot.
    ///
    /// # Errors
    /// [`Error::QueueFull`].
    pub fn take(slots: &Arc<Slots>, patience: Duration) -> Result<Slot> {
        let taken = slots.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = slots.freed.wait_timeout_while(taken, patience, |n| *n >= MAX_AT_ONCE);
        let (mut taken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return Err(Error::QueueFull { limit: MAX_AT_ONCE });
        }
        *taken += 1;
        Ok(Slot(Arc::clone(slots)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_one();
    }
}
