//! From a constraint to a grammar, within bounds.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use inference_core::{Constraint, Error, Result, Value};
use llguidance::TokenParser;
use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value as Json};

use super::vocabulary::Vocabulary;
use crate::model::json;

/// Bytes of a regular expression, a grammar, or a schema as JSON.
const MAX_BYTES: usize = 1 << 20;
/// Levels that brackets, or the values of a schema, may nest.
const MAX_DEPTH: usize = 100;
/// The library descends by recursion; what is nested [`MAX_DEPTH`] levels fits well.
const STACK_BYTES: usize = 64 << 20;

/// The key under which the library takes options from a schema.
const OPTIONS: &str = "x-guidance";
/// Between two tokens of JSON: nothing, a space, or a line break with an indentation. Without a
/// bound, a model that has nothing to say would say blanks for ever.
const WHITESPACE: &str = r" |\n[ \t]{0,40}";

/// The grammar of a constraint at its beginning.
///
/// # Errors
/// [`Error::InvalidOption`] with what is wrong and where, as far as it is known.
pub(super) fn compile(constraint: &Constraint, vocabulary: &Vocabulary) -> Result<TokenParser> {
    let grammar = match constraint {
        Constraint::JsonSchema(schema) => TopLevelGrammar::from_json_schema(schema_json(schema)?),
        Constraint::Regex(regex) => {
            check_source("the regular expression", regex)?;
            TopLevelGrammar::from_regex(regex)
        }
        Constraint::Lark(grammar) => {
            check_source("the grammar", grammar)?;
            TopLevelGrammar::from_lark(grammar.clone())
        }
    };
    let build = || {
        let built = catch_unwind(AssertUnwindSafe(|| {
            let mut parser = vocabulary.first.create_parser(grammar).map_err(reason)?;
            match parser.grammar_warnings() {
                warnings if warnings.is_empty() => Ok(parser),
                warnings => Err(warnings.join("; ")),
            }
        }));
        built.unwrap_or_else(|_| Err("the grammar library failed on it".to_owned()))
    };
    let parser = thread::scope(|scope| {
        let thread = thread::Builder::new().name("ml-grammar".into()).stack_size(STACK_BYTES);
        let running = thread.spawn_scoped(scope, build);
        let running = running.map_err(|error| format!("cannot start a thread for it: {error}"))?;
        running.join().unwrap_or_else(|_| Err("the grammar library failed on it".to_owned()))
    });
    parser.map_err(invalid)
}

/// What the library says, without its traces.
pub(super) fn reason(error: impl Display) -> String {
    let text = format!("{error:#}");
    let end = ["\n<", "<non-verbose/>"].iter().filter_map(|mark| text.find(mark)).min();
    text[..end.unwrap_or(text.len())].trim().to_owned()
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
    if fields.contains_key(OPTIONS) {
        return Err(invalid(format!("`{OPTIONS}` in a schema is not honoured")));
    }
    fields.insert(OPTIONS.to_owned(), serde_json::json!({"whitespace_pattern": WHITESPACE}));
    let schema = Json::Object(fields);
    check_size("the schema", schema.to_string().len())?;
    Ok(schema)
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
    check_size(what, source.len())?;
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

fn check_size(what: &str, size: usize) -> Result<()> {
    if size > MAX_BYTES {
        return Err(invalid(format!("{what} has {size} bytes, at most {MAX_BYTES} are taken")));
    }
    Ok(())
}

fn too_deep(what: &str) -> Error {
    invalid(format!("{what} nests deeper than {MAX_DEPTH} levels"))
}
