//! Calls written as Python: `[weather(city="Paris", days=2)]`.

use std::collections::BTreeSet;

use super::call::{Call, Tools, json_kind};
use super::json_scan::{MAX_DEPTH, Step};
use super::marks::is_space;
use super::strings::{Place, Strings};

/// The most bytes of a tool's name, with the whitespace around it.
const NAME_LIMIT: usize = 256;

/// Follows one list of calls to its closing bracket.
#[derive(Debug)]
pub struct ListScan {
    at: usize,
    /// The byte of the first call's name, until it was looked at.
    name: Option<usize>,
    closers: Vec<u8>,
    strings: Strings,
}

impl ListScan {
    /// A scan of the list whose bracket is at byte `at`.
    pub fn new(at: usize) -> ListScan {
        let (closers, strings) = (Vec::new(), Strings::default());
        ListScan { at, name: Some(at + 1), closers, strings }
    }

    /// Goes on in `text`, which begins as it did the last time. The first name must be a tool's.
    pub fn scan(&mut self, text: &str, tools: &Tools) -> Step {
        let bytes = text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            let known = match self.strings.next(byte) {
                // No name has a quote.
                Place::Inside => self.name.is_none(),
                Place::Outside => self.between(byte, text, tools),
                Place::Broken => false,
            };
            if !known {
                return Step::Bad(self.at);
            }
            self.at += 1;
            if self.closers.is_empty() {
                return Step::Done(self.at);
            }
        }
        Step::More
    }

    fn between(&mut self, byte: u8, text: &str, tools: &Tools) -> bool {
        if let Some(start) = self.name
            && !self.closers.is_empty()
        {
            match byte {
                b'(' => {
                    self.name = None;
                    if !tools.has(text[start..self.at].trim_matches(is_space)) {
                        return false;
                    }
                }
                _ => {
                    let known = is_name(byte) || is_space(byte.into());
                    return known && self.at - start < NAME_LIMIT;
                }
            }
        }
        match byte {
            b'(' => self.open(b')'),
            b'[' => self.open(b']'),
            b'{' => self.open(b'}'),
            b')' | b']' | b'}' => self.closers.pop() == Some(byte),
            _ => true,
        }
    }

    fn open(&mut self, closer: u8) -> bool {
        self.closers.push(closer);
        self.closers.len() <= MAX_DEPTH
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)
}

/// The calls of `text`: lists of calls, calls, or calls that are printed, one after the other.
/// Where they cannot be read as Python, quotes and line breaks inside strings may lack their
/// backslash.
pub fn calls(text: &str, tools: &Tools) -> Option<Vec<Call>> {
    calls_with(text, tools, Quotes::Escaped)
        .or_else(|| calls_with(text, tools, Quotes::Bare(",)]}:")))
}

/// The JSON of the one value that `text` is.
pub fn value(text: &str) -> Option<String> {
    let mut reader = Reader { rest: text, depth: 0, quotes: Quotes::Escaped };
    let json = reader.value()?;
    reader.at_end().then_some(json)
}

/// The string literal that `text` begins with, where one of `ends` follows it, and the text behind
/// it.
pub fn string<'a>(text: &'a str, ends: &str, quotes: Quotes) -> Option<(String, &'a str)> {
    if !text.starts_with(['"', '\'']) {
        return None;
    }
    let mut reader = Reader { rest: text, depth: 0, quotes };
    let string = reader.literal()?;
    reader.sees("");
    reader.rest.starts_with(|c| ends.contains(c)).then_some((string, reader.rest))
}

fn calls_with(text: &str, tools: &Tools, quotes: Quotes) -> Option<Vec<Call>> {
    let mut reader = Reader { rest: text, depth: 0, quotes };
    let mut calls = Vec::new();
    loop {
        while reader.eat(";") {}
        if reader.at_end() {
            return (!calls.is_empty()).then_some(calls);
        }
        if reader.eat("[") {
            while !reader.eat("]") {
                calls.push(reader.call(tools)?);
                if !reader.eat(",") && !reader.sees("]") {
                    return None;
                }
            }
        } else if reader.sees("print(") && !tools.has("print") {
            reader.eat("print(");
            calls.push(reader.call(tools)?);
            if !reader.eat(")") {
                return None;
            }
        } else {
            calls.push(reader.call(tools)?);
        }
    }
}

/// The rule by which a quote ends a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quotes {
    /// At the first quote without a backslash, on its line.
    Escaped,
    /// At the first quote without a backslash that one of these follows, which can follow a string.
    Bare(&'static str),
}

/// Reads Python and writes JSON.
struct Reader<'a> {
    rest: &'a str,
    depth: usize,
    quotes: Quotes,
}

impl<'a> Reader<'a> {
    fn sees(&mut self, mark: &str) -> bool {
        self.rest = self.rest.trim_start_matches(is_space);
        self.rest.starts_with(mark)
    }

    fn eat(&mut self, mark: &str) -> bool {
        let seen = self.sees(mark);
        if seen {
            self.rest = &self.rest[mark.len()..];
        }
        seen
    }

    fn at_end(&mut self) -> bool {
        self.sees("") && self.rest.is_empty()
    }

    fn name(&mut self) -> Option<&'a str> {
        self.sees("");
        let end = self.rest.bytes().position(|byte| !is_name(byte)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!name.is_empty()).then_some(name)
    }

    fn call(&mut self, tools: &Tools) -> Option<Call> {
        let name = self.name()?;
        if !self.eat("(") {
            return None;
        }
        let mut keys = BTreeSet::new();
        let mut fields = Vec::new();
        while !self.eat(")") {
            let key = self.name()?;
            if !self.eat("=") || !keys.insert(key) {
                return None;
            }
            fields.push(format!("{}: {}", quoted(key), self.value()?));
            if !self.eat(",") && !self.sees(")") {
                return None;
            }
        }
        tools.call(name, &format!("{{{}}}", fields.join(", ")))
    }

    fn value(&mut self) -> Option<String> {
        self.sees("");
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let json = match self.rest.bytes().next()? {
            _ if self.sees_string() => quoted(&self.string()?),
            b'[' => self.items("[", "]")?,
            b'(' => self.items("(", ")")?,
            b'{' => self.object()?,
            _ => match self.name_or_number() {
                "True" | "true" => "true".to_owned(),
                "False" | "false" => "false".to_owned(),
                "None" | "null" => "null".to_owned(),
                word => number(word)?,
            },
        };
        self.depth -= 1;
        Some(json)
    }

    fn name_or_number(&mut self) -> &'a str {
        let known = |byte: u8| is_name(byte) || byte == b'+';
        let end = self.rest.bytes().position(|byte| !known(byte)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn items(&mut self, open: &str, close: &str) -> Option<String> {
        self.eat(open);
        let mut items = Vec::new();
        while !self.eat(close) {
            items.push(self.value()?);
            if !self.eat(",") && !self.sees(close) {
                return None;
            }
        }
        Some(format!("[{}]", items.join(", ")))
    }

    fn object(&mut self) -> Option<String> {
        self.eat("{");
        let mut fields = Vec::new();
        while !self.eat("}") {
            if !self.sees_string() {
                return None;
            }
            let key = quoted(&self.string()?);
            if !self.eat(":") {
                return None;
            }
            fields.push(format!("{key}: {}", self.value()?));
            if !self.eat(",") && !self.sees("}") {
                return None;
            }
        }
        Some(format!("{{{}}}", fields.join(", ")))
    }

    /// Returns true when a string literal follows.
    fn sees_string(&mut self) -> bool {
        self.sees("");
        self.rest[letter(self.rest)..].starts_with(['"', '\''])
    }

    /// String literals, without their quotes and escapes. Those that stand side by side are one
    /// string.
    fn string(&mut self) -> Option<String> {
        let mut text = self.literal()?;
        while self.quotes == Quotes::Escaped && self.sees_string() {
            text += &self.literal()?;
        }
        Some(text)
    }

    fn literal(&mut self) -> Option<String> {
        let (letter, rest) = self.rest.split_at(letter(self.rest));
        let is_raw = letter.eq_ignore_ascii_case("r");
        let triple = ["\"\"\"", "'''"].into_iter().find(|mark| rest.starts_with(mark));
        let mut chars = rest.chars();
        let quote = chars.next()?;
        if triple.is_some() {
            chars.nth(1);
        }
        let mut text = String::new();
        loop {
            if let Some(rest) = triple.and_then(|mark| chars.as_str().strip_prefix(mark)) {
                self.rest = rest;
                return Some(text);
            }
            match chars.next()? {
                '\n' if triple.is_none() && self.quotes == Quotes::Escaped => return None,
                '\\' if is_raw => text.extend(['\\', chars.next()?]),
                '\\' => escape(&mut chars, &mut text)?,
                c if c == quote && triple.is_none() && self.ends_string(chars.as_str()) => break,
                c => text.push(c),
            }
        }
        self.rest = chars.as_str();
        Some(text)
    }

    /// Returns true when a quote before `rest` ends a string.
    fn ends_string(&self, rest: &str) -> bool {
        let mut next = rest.chars().skip_while(|c| is_space(*c));
        match self.quotes {
            Quotes::Escaped => true,
            Quotes::Bare(ends) => next.next().is_none_or(|c| ends.contains(c)),
        }
    }
}

/// The length of the letter that `text` begins with, where it says how the string behind it is
/// written.
fn letter(text: &str) -> usize {
    let letter = text.starts_with(['r', 'R', 'u', 'U']);
    usize::from(letter && text[1..].starts_with(['"', '\'']))
}

/// The JSON of a number, which may have a plus, underscores, a base, and a point without digits on
/// one side.
fn number(word: &str) -> Option<String> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", word.strip_prefix('+').unwrap_or(word)),
    };
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let parts: Vec<&[u8]> = digits.split('_').map(str::as_bytes).collect();
    if parts.windows(2).any(|pair| !is_digit(pair[0].last()) || !is_digit(pair[1].first())) {
        return None;
    }
    let digits = digits.replace('_', "").to_ascii_lowercase();
    for (mark, base) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = digits.strip_prefix(mark)
            && !digits.starts_with('+')
        {
            return Some(format!("{sign}{}", u128::from_str_radix(digits, base).ok()?));
        }
    }
    let (mantissa, exponent) = digits.split_at(digits.find('e').unwrap_or(digits.len()));
    let mantissa = match mantissa.split_once('.') {
        Some(("", "")) => return None,
        Some(("", fraction)) => format!("0.{fraction}"),
        Some((whole, "")) => format!("{whole}.0"),
        _ => mantissa.to_owned(),
    };
    let json = format!("{sign}{mantissa}{exponent}");
    matches!(json_kind(&json), Some("integer" | "number")).then_some(json)
}

/// Adds what follows a backslash in a string literal; one that means nothing stays.
fn escape(chars: &mut std::str::Chars, text: &mut String) -> Option<()> {
    let escaped = chars.next()?;
    let digits = match escaped {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => 0,
    };
    if digits > 0 {
        let mut code = hex(chars, digits)?;
        // JSON writes characters of 17 bits and more as two.
        if (0xd800..0xdc00).contains(&code) {
            *chars = chars.as_str().strip_prefix("\\u")?.chars();
            let low = hex(chars, 4)?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
            code = 0x10000 + ((code - 0xd800) << 10) + low;
        }
        text.push(char::from_u32(code)?);
        return Some(());
    }
    match escaped {
        'n' => text.push('\n'),
        't' => text.push('\t'),
        'r' => text.push('\r'),
        'a' => text.push('\u{7}'),
        'b' => text.push('\u{8}'),
        'f' => text.push('\u{c}'),
        'v' => text.push('\u{b}'),
        '0' => text.push('\0'),
        '\n' => {}
        '\\' | '\'' | '"' => text.push(escaped),
        other => text.extend(['\\', other]),
    }
    Some(())
}

/// The number of so many hexadecimal digits.
fn hex(chars: &mut std::str::Chars, digits: usize) -> Option<u32> {
    let code = u32::from_str_radix(chars.as_str().get(..digits)?, 16).ok()?;
    *chars = chars.as_str()[digits..].chars();
    Some(code)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
