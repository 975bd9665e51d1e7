//! Calls as `call:NAME{key:value}`, with strings between marks of their own (FunctionGemma, Gemma
//! 4).

use std::collections::BTreeSet;

use serde_json::Value;

use super::call::{Call, Tools};
use super::json_scan::MAX_DEPTH;
use super::marks::is_space;
use super::python::{self, Quotes};
use super::typed::{Kinds, referred, typed};

/// The most bytes of a key in quotes behind a value without them.
const KEY_LIMIT: usize = 256;

/// The calls of `text`, one after the other, whose strings are between two `quote`s.
pub fn calls(text: &str, quote: &str, tools: &Tools) -> Option<Vec<Call>> {
    let mut reader = Reader { rest: text, quote, depth: 0, unended: BTreeSet::new(), root: None };
    let mut calls = Vec::new();
    while !reader.at_end() {
        if !reader.eat("call:") {
            // Brackets too many.
            let rest = reader.rest.trim_start_matches(|c| is_space(c) || "}]".contains(c));
            return (rest.is_empty() && !calls.is_empty()).then_some(calls);
        }
        let (name, _) = reader.rest.split_once('{')?;
        reader.rest = &reader.rest[name.len()..];
        let name = name.trim_matches(|c| is_space(c) || "'\"".contains(c));
        reader.root = tools.schema(name);
        calls.push(tools.call(name, &reader.object(reader.root)?)?);
    }
    (!calls.is_empty()).then_some(calls)
}

/// The container of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Object,
    /// No key can follow.
    Array,
}

/// Reads the marks and writes JSON.
struct Reader<'a> {
    rest: &'a str,
    quote: &'a str,
    depth: usize,
    /// Quotes, and what follows a string in them, which no more strings end with.
    unended: BTreeSet<(char, &'static str)>,
    /// The schema of the call's arguments, where it is known.
    root: Option<&'a Value>,
}

impl<'a> Reader<'a> {
    fn eat(&mut self, mark: &str) -> bool {
        self.rest = self.rest.trim_start_matches(is_space);
        match self.rest.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn at_end(&mut self) -> bool {
        self.eat("") && self.rest.is_empty()
    }

    fn object(&mut self, schema: Option<&'a Value>) -> Option<String> {
        self.eat("{");
        let mut fields = Vec::new();
        while !self.eat("}") {
            let key = if self.eat(self.quote) {
                self.string()?
            } else if let Some(key) = self.literal(":") {
                key
            } else {
                let (key, _) = self.rest.split_once(':')?;
                self.rest = &self.rest[key.len()..];
                Value::from(key.trim_end_matches(is_space)).to_string()
            };
            if !self.eat(":") {
                return None;
            }
            let name: String = serde_json::from_str(&key).ok()?;
            let property = self.part(schema, |schema| schema.get("properties")?.get(&name));
            fields.push(format!("{key}: {}", self.value(property, Within::Object)?));
            if !self.eat(",") && !self.rest.starts_with('}') {
                return None;
            }
        }
        Some(format!("{{{}}}", fields.join(", ")))
    }

    /// A part of `schema`, where that is known.
    fn part(
        &self,
        schema: Option<&'a Value>,
        of: impl Fn(&'a Value) -> Option<&'a Value>,
    ) -> Option<&'a Value> {
        of(referred(self.root?, schema?))
    }

    fn array(&mut self, schema: Option<&'a Value>) -> Option<String> {
        self.eat("[");
        let mut items = Vec::new();
        while !self.eat("]") {
            let item = self.part(schema, |schema| schema.get("items"));
            items.push(self.value(item, Within::Array)?);
            if !self.eat(",") && !self.rest.starts_with(']') {
                return None;
            }
        }
        Some(format!("[{}]", items.join(", ")))
    }

    fn value(&mut self, schema: Option<&'a Value>, within: Within) -> Option<String> {
        if self.eat(self.quote) {
            return self.string();
        }
        if let Some(text) = self.literal(",}]") {
            return Some(text);
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let json = match self.rest.bytes().next()? {
            b'{' => self.object(schema)?,
            b'[' => self.array(schema)?,
            _ => self.bare(schema, within)?,
        };
        self.depth -= 1;
        Some(json)
    }

    /// Reads the text behind an opening quote, up to the closing one, as a JSON string.
    fn string(&mut self) -> Option<String> {
        let (text, rest) = self.rest.split_once(self.quote)?;
        self.rest = rest;
        Some(Value::from(text).to_string())
    }

    /// A string in the quotes of JSON or Python, as JSON, which one of `ends` follows. Where
    /// nothing follows so, a quote is the first letter of a text without quotes.
    fn literal(&mut self, ends: &'static str) -> Option<String> {
        let quote = self.rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let found = python::string(self.rest, ends, Quotes::Escaped).or_else(|| {
            // Where none ended, no later one does.
            let bare = !self.unended.contains(&(quote, ends));
            bare.then(|| python::string(self.rest, ends, Quotes::Bare(ends))).flatten()
        });
        let Some((text, rest)) = found else {
            self.unended.insert((quote, ends));
            return None;
        };
        let written = self.rest[..self.rest.len() - rest.len()].trim_end_matches(is_space);
        self.rest = rest;
        let is_json = serde_json::from_str::<String>(written).is_ok();
        Some(if is_json { written.to_owned() } else { Value::from(text).to_string() })
    }

    /// Returns true when `rest` begins with a string in quotes, and then a colon.
    fn begins_quoted_key(&self, rest: &str) -> bool {
        let window = &rest[..rest.floor_char_boundary(KEY_LIMIT)];
        python::string(window, ":", Quotes::Escaped).is_some()
    }

    /// A text without quotes, by its schema.
    fn bare(&mut self, schema: Option<&Value>, within: Within) -> Option<String> {
        let is_item = within == Within::Array;
        let mut marks = self.rest.match_indices([',', '}', ']']);
        let (end, _) = marks.find(|(at, mark)| match *mark {
            "," => is_item || self.ends_field(&self.rest[at + 1..]),
            mark => is_item == (mark == "]"),
        })?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        let kinds = self.root.zip(schema).and_then(|(root, schema)| Kinds::of(root, schema));
        Some(typed(text.trim_matches(is_space), kinds))
    }

    /// Returns true when a comma before `rest` ends a field: a field or the object's end follows.
    fn ends_field(&self, rest: &str) -> bool {
        let rest = rest.trim_start_matches(is_space);
        if rest.starts_with('}') || rest.starts_with(self.quote) || self.begins_quoted_key(rest) {
            return true;
        }
        let is_name = |c: char| c.is_alphanumeric() || "_-.$".contains(c);
        let name = rest.len() - rest.trim_start_matches(is_name).len();
        !rest.starts_with(|c: char| !is_name(c) || c.is_ascii_digit())
            && rest[name..].trim_start_matches(is_space).starts_with(':')
    }
}
