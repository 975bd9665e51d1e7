//! The text of a grammar to its rules.

use std::collections::BTreeMap;

/// Bytes of a grammar, and of what is written of it: rules are written where they are named.
pub(super) const MAX_BYTES: usize = 64 << 10;
/// Levels that brackets may nest.
const MAX_DEPTH: usize = 50;
/// The most rules of a grammar: what is known of each is looked up for all of them in turns.
const MAX_RULES: usize = 1000;
/// The most repetitions of one part, one behind the other.
const MAX_REPEATED: usize = 4;
/// The most that a count of repetitions may be.
const MAX_COUNT: u32 = 100_000;

/// A part of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    /// A text.
    Text(String),
    /// A character of these ranges, or of all others.
    Class { ranges: Vec<(char, char)>, negated: bool },
    /// Any character.
    Any,
    /// The rule of this number.
    Rule(usize),
    /// Each of them, in turn.
    All(Vec<Part>),
    /// One of them.
    OneOf(Vec<Part>),
    /// So many times; without a bound where there is no second number.
    Times(Box<Part>, u32, Option<u32>),
}

/// The rules of a grammar, the first of which is `root`.
#[derive(Debug)]
pub(super) struct Rules(pub Vec<Part>);

type Result<T> = std::result::Result<T, String>;

/// The rules that `grammar` tells.
///
/// # Errors
/// The fault, with its line.
pub(super) fn rules(grammar: &str) -> Result<Rules> {
    let mut reader = Reader { rest: grammar, line: 1, names: BTreeMap::new(), rules: Vec::new() };
    reader.number("root");
    reader.read_all().map_err(|reason| format!("line {}: {reason}", reader.line))?;
    let Reader { names, rules, .. } = reader;
    let missing = names.iter().find(|(_, number)| rules[**number].is_none());
    if let Some((name, _)) = missing {
        return Err(format!("there is no rule `{name}`"));
    }
    Ok(Rules(rules.into_iter().flatten().collect()))
}

/// Returns true for a character of a rule's name.
pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    names: BTreeMap<&'a str, usize>,
    rules: Vec<Option<Part>>,
}

impl<'a> Reader<'a> {
    fn read_all(&mut self) -> Result<()> {
        self.skip(true);
        while !self.rest.is_empty() {
            let name = self.name().ok_or_else(|| self.found())?;
            self.skip(false);
            if self.rules.len() > MAX_RULES {
                return Err(format!("more than {MAX_RULES} rules"));
            }
            if !self.takes("::=") {
                return Err(format!("`{name}` is not followed by `::=`"));
            }
            self.skip(true);
            let number = self.number(name);
            let part = self.one_of(0)?;
            if self.rules[number].replace(part).is_some() {
                return Err(format!("a second rule `{name}`"));
            }
            if !self.rest.is_empty() && !self.rest.starts_with(['\n', '\r']) {
                return Err(self.found());
            }
            self.skip(true);
        }
        Ok(())
    }

    /// Alternatives: within brackets on several lines, else until the line's end.
    fn one_of(&mut self, depth: usize) -> Result<Part> {
        if depth > MAX_DEPTH {
            return Err(format!("brackets nest deeper than {MAX_DEPTH} levels"));
        }
        let mut choices = vec![self.all(depth)?];
        while self.takes("|") {
            self.skip(true);
            choices.push(self.all(depth)?);
        }
        Ok(if choices.len() == 1 { choices.remove(0) } else { Part::OneOf(choices) })
    }

    fn all(&mut self, depth: usize) -> Result<Part> {
        let mut parts = Vec::new();
        while let Some(part) = self.one(depth)? {
            parts.push(self.repeated(part, depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Part::All(parts) })
    }

    fn one(&mut self, depth: usize) -> Result<Option<Part>> {
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        Ok(Some(match first {
            '"' => self.text()?,
            '[' => self.class()?,
            '.' => {
                self.takes(".");
                Part::Any
            }
            '(' => {
                self.takes("(");
                self.skip(true);
                let part = self.one_of(depth + 1)?;
                if !self.takes(")") {
                    return Err("a `(` without a `)`".to_owned());
                }
                part
            }
            '<' | '!' => return Err("tokens by their ids or names are not taken".to_owned()),
            c if is_name(c) => {
                let name = self.name().unwrap_or_default();
                Part::Rule(self.number(name))
            }
            '|' | ')' | '\n' | '\r' => return Ok(None),
            _ => return Err(self.found()),
        }))
    }

    /// `part` with what follows it: `*`, `+`, `?`, or numbers in braces.
    fn repeated(&mut self, mut part: Part, depth: usize) -> Result<Part> {
        for count in 0.. {
            self.skip(depth > 0);
            let (least, most) = if self.takes("*") {
                (0, None)
            } else if self.takes("+") {
                (1, None)
            } else if self.takes("?") {
                (0, Some(1))
            } else if self.takes("{") {
                self.counts()?
            } else {
                return Ok(part);
            };
            if count == MAX_REPEATED {
                break;
            }
            part = Part::Times(Box::new(part), least, most);
        }
        Err(format!("more than {MAX_REPEATED} repetitions behind each other"))
    }

    fn counts(&mut self) -> Result<(u32, Option<u32>)> {
        self.skip(false);
        let least = self.count()?;
        self.skip(false);
        let most = if self.takes(",") {
            self.skip(false);
            if self.rest.starts_with('}') { None } else { Some(self.count()?) }
        } else {
            Some(least)
        };
        self.skip(false);
        if !self.takes("}") {
            return Err("a `{` without a `}`".to_owned());
        }
        match most {
            Some(most) if most < least => Err(format!("{least} is more than {most}")),
            most => Ok((least, most)),
        }
    }

    fn count(&mut self) -> Result<u32> {
        let digits =
            self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, rest) = self.rest.split_at(digits);
        let number = number.parse().ok().filter(|number| *number <= MAX_COUNT);
        self.rest = rest;
        number.ok_or_else(|| format!("a count is a number up to {MAX_COUNT}"))
    }

    fn text(&mut self) -> Result<Part> {
        self.takes("\"");
        let mut text = String::new();
        loop {
            match self.character()? {
                None => return Err("a text without an end".to_owned()),
                Some(('"', false)) => return Ok(Part::Text(text)),
                Some((c, _)) => text.push(c),
            }
        }
    }

    fn class(&mut self) -> Result<Part> {
        self.takes("[");
        let negated = self.takes("^");
        let mut ranges = Vec::new();
        loop {
            let low = match self.character()? {
                None => return Err("a class without an end".to_owned()),
                Some((']', false)) => break,
                Some((low, _)) => low,
            };
            let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            let high = match is_range && self.takes("-") {
                false => low,
                true => self.character()?.ok_or("a class without an end")?.0,
            };
            if high < low {
                return Err(format!("the range from `{low}` to `{high}` is empty"));
            }
            ranges.push((low, high));
        }
        match (ranges.is_empty(), negated) {
            (true, false) => Err("a class of nothing".to_owned()),
            (true, true) => Ok(Part::Any),
            (false, _) => Ok(Part::Class { ranges, negated }),
        }
    }

    /// The next character of a text or a class, and whether it was escaped.
    fn character(&mut self) -> Result<Option<(char, bool)>> {
        let Some(c) = self.next() else { return Ok(None) };
        self.line += usize::from(c == '\n');
        if c != '\\' {
            return Ok(Some((c, false)));
        }
        let Some(escape) = self.next() else { return Ok(None) };
        let c = match escape {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            '\\' | '"' | '[' | ']' | '-' | '^' | '/' | '\'' => escape,
            'x' => self.by_number(2)?,
            'u' => self.by_number(4)?,
            'U' => self.by_number(8)?,
            other => return Err(format!("`\\{other}` is no escape")),
        };
        Ok(Some((c, true)))
    }

    fn by_number(&mut self, digits: usize) -> Result<char> {
        let hex = self.rest.get(..digits).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        let hex = hex.ok_or_else(|| format!("an escape needs {digits} digits of base 16"))?;
        self.rest = &self.rest[digits..];
        let c = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32);
        c.ok_or_else(|| format!("{hex} is the number of no character"))
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn name(&mut self) -> Option<&'a str> {
        let length = self.rest.len() - self.rest.trim_start_matches(is_name).len();
        let (name, rest) = self.rest.split_at(length);
        self.rest = rest;
        (!name.is_empty()).then_some(name)
    }

    /// The number of the rule `name`, which may be told later.
    fn number(&mut self, name: &'a str) -> usize {
        let next = self.rules.len();
        let number = *self.names.entry(name).or_insert(next);
        if number == next {
            self.rules.push(None);
        }
        number
    }

    fn takes(&mut self, sign: &str) -> bool {
        let rest = self.rest.strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Skips blanks and comments, and with `lines` their ends too.
    fn skip(&mut self, lines: bool) {
        while let Some(c) = self.rest.chars().next() {
            match c {
                ' ' | '\t' => {}
                '\n' | '\r' if lines => self.line += usize::from(c == '\n'),
                '#' => {
                    let end = self.rest.find('\n').unwrap_or(self.rest.len());
                    self.rest = &self.rest[end..];
                    continue;
                }
                _ => return,
            }
            self.rest = &self.rest[c.len_utf8()..];
        }
    }

    fn found(&self) -> String {
        match self.rest.chars().next() {
            Some('\n') | None => "the line ends too early".to_owned(),
            Some(c) => format!("found `{c}`, which begins nothing here"),
        }
    }
}
