//! From a constraint to a grammar, within bounds.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use inference_core::{Constraint, Error, Result};
use llguidance::ParserFactory;
use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::earley::lexerspec::LexerSpec;

use super::checks::{check_source, schema_json};
use super::error::{invalid, reason};
use super::gbnf::of_gbnf;
use super::grammar::grammar_source;
use super::matcher::Matcher;
use super::measure::check_regex;
use super::slots::Slots;
use super::vocabulary::Vocabulary;
use crate::panics::caught;

/// A compilation that takes longer is given up, and so is the wait for a slot.
const MAX_TIME: Duration = Duration::from_secs(10);
/// The library follows references by recursion, some 3 KiB each; the smallest rule has 6 bytes.
/// Only what is used of a stack takes memory.
const STACK_BYTES: usize = 256 << 20;
/// Bytes of the states that a grammar begins with.
const MAX_LEXER_BYTES: usize = 64 << 20;

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
    let gbnf = match constraint {
        Constraint::Lark(grammar) => of_gbnf(grammar)?,
        _ => None,
    };
    let (grammar, bytes) = match gbnf.as_ref().unwrap_or(constraint) {
        Constraint::JsonSchema(schema) => {
            let schema = schema_json(schema)?;
            let bytes = schema.to_string().len();
            (TopLevelGrammar::from_json_schema(schema), bytes)
        }
        Constraint::Regex(regex) => {
            check_source("the regular expression", regex)?;
            check_regex("the regular expression", regex)?;
            (TopLevelGrammar::from_regex(regex), regex.len())
        }
        Constraint::Lark(grammar) => {
            let source = grammar_source(grammar)?;
            let bytes = source.len();
            (TopLevelGrammar::from_lark(source), bytes)
        }
    };
    let slot = Slots::take(slots, bytes, MAX_TIME)?;
    let (done, compiled) = mpsc::channel();
    let build = move || {
        // Held until the thread ends, whether somebody still waits for it or not.
        let _slot = slot;
        let built = caught(|| built(grammar, vocabulary));
        // Nobody may wait any longer.
        let _ = done.send(built.unwrap_or_else(|| Err("the grammar library failed on it".into())));
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

fn built(grammar: TopLevelGrammar, vocabulary: Vocabulary) -> Result<Matcher, String> {
    let factory = &vocabulary.first;
    let (tokens, limits) = (factory.tok_env().clone(), factory.limits().clone());
    let parts = GrammarInit::Serialized(grammar).to_internal(Some(tokens), limits);
    let (grammar, lexer) = parts.map_err(reason)?;
    let warnings = lexer.render_warnings();
    if !warnings.is_empty() {
        return Err(warnings.join("; "));
    }
    rehearse(&lexer, factory)?;
    let parts = GrammarInit::Internal(grammar, lexer);
    let parser = factory.create_parser_from_init_default(parts).map_err(reason)?;
    Matcher::new(parser, vocabulary)
}

/// Computes within bounds what the library then computes without any: where each byte leads that a
/// text may begin with.
fn rehearse(lexer: &LexerSpec, factory: &ParserFactory) -> Result<(), String> {
    let mut limits = factory.limits().clone();
    let mut lexer = lexer.clone();
    lexer.add_extra_lexemes(&factory.extra_lexemes());
    let mut states = lexer.to_regex_vec(&mut limits).map_err(reason)?;
    states.set_fuel(limits.initial_lexer_fuel);
    states.set_max_states(limits.max_lexer_states);
    let first = states.initial_state(&lexer.all_lexemes());
    for byte in 0..=u8::MAX {
        states.transition(first, byte);
        if let Some(error) = states.get_error() {
            return Err(format!("the beginning of a text exceeds its limits: {error}"));
        }
    }
    match states.num_bytes() {
        bytes if bytes > MAX_LEXER_BYTES => {
            Err(format!("takes {} MiB, at most {} are given", bytes >> 20, MAX_LEXER_BYTES >> 20))
        }
        _ => Ok(()),
    }
}
