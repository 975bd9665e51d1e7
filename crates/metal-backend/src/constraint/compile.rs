//! From a constraint to a grammar, within bounds.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use inference_core::{Constraint, Error, Result, Value};
use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value as Json};

use super::matcher::Matcher;
use super::vocabulary::Vocabulary;
use crate::model::json;

/// Bytes of a schema, as JSON.
const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Bytes of a regular expression or a grammar; the time of some grows with the square.
const MAX_SOURCE_BYTES: usize = 64 << 10;
/// Patterns of properties in a schema: each pair of them is compared.
const MAX_PATTERNS: usize = 32;
/// A compilation that takes longer is given up.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Levels that brackets, or the values of a schema, may nest.
const MAX_DEPTH: usize = 100;
/// The library follows references by recursion, some 3 KiB each; the smallest rule has 6 bytes.
/// Only what is used of a stack takes memory.
const STACK_BYTES: usize = 256 << 20;
/// Characters of an error; the library repeats what it was given.
const MAX_REASON: usize = 500;

/// The key under which the library takes options from a schema.
const OPTIONS: &str = "x-guidance";
/// Between two tokens of JSON: nothing, a space, or a line break with an indentation. Without a
/// bound, a model that has nothing to say would say blanks for ever.
const WHITESPACE: &str = r" |\n[ \t]{0,40}";

/// A matcher at the beginning of a text.
///
/// # Errors
/// [`Error::InvalidOption`] with what is wrong and where, as far as it is known.
pub(super) fn compile(constraint: &Constraint, vocabulary: Vocabulary) -> Result<Matcher> {
    let grammar = match constraint {
        Constraint::JsonSchema(schema) => TopLevelGrammar::from_json_schema(schema_json(schema)?),
        Constraint::Regex(regex) => {
            check_source("the regular expression", regex)?;
            TopLevelGrammar::from_regex(regex)
        }
        Constraint::Lark(grammar) => {
            check_source("the grammar", grammar)?;
            check_schemas_in(grammar)?;
            TopLevelGrammar::from_lark(grammar.clone())
        }
    };
    let (done, compiled) = mpsc::channel();
    let build = move || {
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

/// What the library says, without its traces.
pub(super) fn reason(error: impl Display) -> String {
    let text = format!("{error:#}");
    let end = ["\n<", "<non-verbose/>"].iter().filter_map(|mark| text.find(mark)).min();
    let text = text[..end.unwrap_or(text.len())].trim();
    match text.char_indices().nth(MAX_REASON) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidOption { option: "constraint", reason: reason.into() }
}

/// A schema as the library takes it, with the whitespace that texts may have.
fn schema_json(schema: &Value) -> Result<Json> {
    if nests_deeper(schema, MAX_DEPTH) {
        return Err(too_deep("the schema"));
    }
    let mut fields = match json(schema).map_err(|error| invalid(error.to_string()))? {
        Json::Object(fields) => fields,
        // Every value, written as a schema that can hold options.
        Json::Bool(true) => Map::new(),
        Json::Bool(false) => return Err(invalid("the schema `false` allows no text")),
        other => return Err(invalid(format!("a schema is an object or a boolean, not {other}"))),
    };
    check_schema(&fields)?;
    fields.insert(OPTIONS.to_owned(), serde_json::json!({"whitespace_pattern": WHITESPACE}));
    let schema = Json::Object(fields);
    check_size("the schema", schema.to_string().len(), MAX_SCHEMA_BYTES)?;
    Ok(schema)
}

/// Refuses options of the library, and what takes too long.
fn check_schema(fields: &Map<String, Json>) -> Result<()> {
    if fields.contains_key(OPTIONS) {
        return Err(invalid(format!("`{OPTIONS}` in a schema is not honoured")));
    }
    let mut open: Vec<(Option<&str>, &Json)> =
        fields.iter().map(|(key, field)| (Some(key.as_str()), field)).collect();
    let mut patterns = 0;
    while let Some((key, value)) = open.pop() {
        match value {
            Json::Array(items) => open.extend(items.iter().map(|item| (None, item))),
            Json::Object(fields) => {
                if key == Some("patternProperties") {
                    patterns += fields.len();
                }
                open.extend(fields.iter().map(|(key, field)| (Some(key.as_str()), field)));
            }
            _ => {}
        }
    }
    if patterns > MAX_PATTERNS {
        return Err(invalid(format!(
            "the schema has {patterns} patterns in `patternProperties`, at most {MAX_PATTERNS} are taken"
        )));
    }
    Ok(())
}

/// Checks the schemas inside a grammar. What is no JSON is for the library to tell.
fn check_schemas_in(grammar: &str) -> Result<()> {
    for (at, directive) in grammar.match_indices("%json") {
        let rest = &grammar[at + directive.len()..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Json>();
        if let Some(Ok(Json::Object(fields))) = values.next() {
            check_schema(&fields)?;
        }
    }
    Ok(())
}

fn nests_deeper(value: &Value, limit: usize) -> bool {
    let mut open = vec![(value, 0)];
    while let Some((value, depth)) = open.pop() {
        if depth > limit {
            return true;
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(fields) => open.extend(fields.iter().map(|(_, field)| (field, depth + 1))),
            _ => {}
        }
    }
    false
}

/// Checks the size of a regular expression or a grammar and how deep its brackets nest.
fn check_source(what: &str, source: &str) -> Result<()> {
    check_size(what, source.len(), MAX_SOURCE_BYTES)?;
    let mut depth = 0_usize;
    let mut escaped = false;
    for byte in source.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(too_deep(what));
        }
    }
    Ok(())
}

fn check_size(what: &str, size: usize, most: usize) -> Result<()> {
    if size > most {
        return Err(invalid(format!("{what} has {size} bytes, at most {most} are taken")));
    }
    Ok(())
}

fn too_deep(what: &str) -> Error {
    invalid(format!("{what} nests deeper than {MAX_DEPTH} levels"))
}
