//! Prepares a Lark grammar for the library: its schemas are checked as those outside of grammars.

use inference_core::Result;
use serde_json::Value as Json;

use super::checks::{check_schema_size, check_source, with_whitespace};
use super::measure::check_regex;

/// The directive before a schema in a grammar.
const DIRECTIVE: &str = "%json";

/// The grammar as the library takes it: checked, and with the whitespace that texts may have
/// between the tokens of JSON. What is no JSON is for the library to tell.
///
/// # Errors
/// A grammar that exceeds the limits on grammars and schemas.
pub(super) fn grammar_source(grammar: &str) -> Result<String> {
    let mut written = String::with_capacity(grammar.len());
    // Brackets in the texts of a grammar do not nest.
    let mut outside_of_texts = String::with_capacity(grammar.len());
    let mut schema_bytes = 0;
    let mut rest = grammar;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => quoted(rest, '"'),
            '/' if rest.starts_with("//") => line(rest),
            '/' => quoted(rest, '/'),
            '#' => line(rest),
            '<' => special(rest),
            '%' if rest.starts_with(DIRECTIVE) => DIRECTIVE.len(),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        written.push_str(token);
        if first == '/' && !token.starts_with("//") {
            let inner = token.strip_prefix('/').unwrap_or(token);
            let inner = inner.strip_suffix('/').unwrap_or(inner);
            check_regex("a regular expression of the grammar", inner)?;
        }
        match first {
            '"' => outside_of_texts.extend(token.chars().map(|_| ' ')),
            _ => outside_of_texts.push_str(token),
        }
        if token == DIRECTIVE {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Json>();
            if let Some(Ok(Json::Object(fields))) = values.next() {
                schema_bytes += values.byte_offset();
                check_schema_size(schema_bytes)?;
                rest = &rest[values.byte_offset()..];
                written.push(' ');
                written.push_str(&with_whitespace(fields)?.to_string());
            }
        }
    }
    check_source("the grammar", &outside_of_texts)?;
    Ok(written)
}

/// The bytes of a text up to and with its closing `mark`, or of all that is left.
fn quoted(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == mark => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// The bytes of a special token's name, such as `</s>`, or of the sign alone.
fn special(text: &str) -> usize {
    match text[1..].find(|c: char| "<>".contains(c) || c.is_whitespace()) {
        Some(end) if text[1 + end..].starts_with('>') => end + 2,
        _ => 1,
    }
}

/// The bytes of a line without its end.
fn line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}
