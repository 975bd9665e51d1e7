//! Calls as `call:NAME{key:value}`, with strings between marks of their own (FunctionGemma, Gemma 4).

use super::call::{Call, Tools};
use super::json_scan::MAX_DEPTH;
use super::marks::is_space;

/// The calls of `text`, one after the other, whose strings are between two `quote`s.
pub fn calls(text: &str, quote: &str, tools: &Tools) -> Option<Vec<Call>> {
    let mut reader = Reader { rest: text, quote, depth: 0 };
    let mut calls = Vec::new();
    while !reader.at_end() {
        if !reader.eat("call:") {
            return None;
        }
        let (name, _) = reader.rest.split_once('{')?;
        reader.rest = &reader.rest[name.len()..];
        calls.push(tools.call(name, &reader.object()?)?);
    }
    (!calls.is_empty()).then_some(calls)
}

/// Reads the marks and writes JSON.
struct Reader<'a> {
    rest: &'a str,
    quote: &'a str,
    depth: usize,
}

impl Reader<'_> {
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

    fn object(&mut self) -> Option<String> {
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
                serde_json::Value::from(key.trim_end_matches(is_space)).to_string()
            };
            if !self.eat(":") {
                return None;
            }
            fields.push(format!("{key}: {}", self.value()?));
            if !self.eat(",") && !self.rest.starts_with('}') {
                return None;
            }
        }
        Some(format!("{{{}}}", fields.join(", ")))
    }

    fn array(&mut self) -> Option<String> {
        self.eat("[");
        let mut items = Vec::new();
        while !self.eat("]") {
            items.push(self.value()?);
            if !self.eat(",") && !self.rest.starts_with(']') {
                return None;
            }
        }
        Some(format!("[{}]", items.join(", ")))
    }

    fn value(&mut self) -> Option<String> {
        if self.eat(self.quote) {
            return self.string();
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let json = match self.rest.bytes().next()? {
            b'{' => self.object()?,
            b'[' => self.array()?,
            b'"' => self.json_string()?,
            _ => self.bare()?,
        };
        self.depth -= 1;
        Some(json)
    }

    /// What follows an opening quote, up to the closing one, as a JSON string.
    fn string(&mut self) -> Option<String> {
        let (text, rest) = self.rest.split_once(self.quote)?;
        self.rest = rest;
        Some(serde_json::Value::from(text).to_string())
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

    /// A number or literal; anything else is a string that lacks its quotes.
    fn bare(&mut self) -> Option<String> {
        let end = self.rest.find([',', '}', ']'])?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        let text = text.trim_matches(is_space);
        match serde_json::from_str::<serde_json::Value>(text) {
            Ok(_) => Some(text.to_owned()),
            Err(_) => Some(serde_json::Value::from(text).to_string()),
        }
    }
}
