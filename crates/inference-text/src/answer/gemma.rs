//! Calls as `call:NAME{key:value}`, with strings between marks of their own (FunctionGemma, Gemma 4).

use serde_json::Value;

use super::call::{Call, Tools};
use super::json_scan::MAX_DEPTH;
use super::marks::is_space;
use super::typed::{Kinds, referred, typed};

/// The calls of `text`, one after the other, whose strings are between two `quote`s.
pub fn calls(text: &str, quote: &str, tools: &Tools) -> Option<Vec<Call>> {
    let mut reader = Reader { rest: text, quote, depth: 0, root: None };
    let mut calls = Vec::new();
    while !reader.at_end() {
        if !reader.eat("call:") {
            return None;
        }
        let (name, _) = reader.rest.split_once('{')?;
        reader.rest = &reader.rest[name.len()..];
        reader.root = tools.schema(name);
        calls.push(tools.call(name, &reader.object(reader.root)?)?);
    }
    (!calls.is_empty()).then_some(calls)
}

/// Reads the marks and writes JSON.
struct Reader<'a> {
    rest: &'a str,
    quote: &'a str,
    depth: usize,
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
            } else if self.rest.starts_with('"') {
                self.json_string()?
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
            fields.push(format!("{key}: {}", self.value(property, false)?));
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
            items.push(self.value(item, true)?);
            if !self.eat(",") && !self.rest.starts_with(']') {
                return None;
            }
        }
        Some(format!("[{}]", items.join(", ")))
    }

    fn value(&mut self, schema: Option<&'a Value>, is_item: bool) -> Option<String> {
        if self.eat(self.quote) {
            return self.string();
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let json = match self.rest.bytes().next()? {
            b'{' => self.object(schema)?,
            b'[' => self.array(schema)?,
            b'"' => self.json_string()?,
            _ => self.bare(schema, is_item)?,
        };
        self.depth -= 1;
        Some(json)
    }

    /// What follows an opening quote, up to the closing one, as a JSON string.
    fn string(&mut self) -> Option<String> {
        let (text, rest) = self.rest.split_once(self.quote)?;
        self.rest = rest;
        Some(Value::from(text).to_string())
    }

    /// A string in JSON's own quotes.
    fn json_string(&mut self) -> Option<String> {
        let mut escaped = false;
        let end = self.rest.bytes().skip(1).position(|byte| {
            let closes = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            closes
        })?;
        let (text, rest) = self.rest.split_at(end + 2);
        self.rest = rest;
        serde_json::from_str::<String>(text).is_ok().then(|| text.to_owned())
    }

    /// A text without quotes, by its schema; `is_item` where no key can follow it.
    fn bare(&mut self, schema: Option<&Value>, is_item: bool) -> Option<String> {
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

    /// Whether a comma before `rest` ends a field: another one follows, or the object's end.
    fn ends_field(&self, rest: &str) -> bool {
        let rest = rest.trim_start_matches(is_space);
        let quotes = [self.quote, "\""];
        if rest.starts_with('}') || quotes.iter().any(|quote| rest.starts_with(quote)) {
            return true;
        }
        let is_name = |c: char| c.is_alphanumeric() || "_-.$".contains(c);
        let name = rest.len() - rest.trim_start_matches(is_name).len();
        !rest.starts_with(|c: char| !is_name(c) || c.is_ascii_digit())
            && rest[name..].trim_start_matches(is_space).starts_with(':')
    }
}
