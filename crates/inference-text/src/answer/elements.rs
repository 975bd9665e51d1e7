//! Calls as elements: a name, and keys with values that are written as they are.

use serde_json::Value;

use super::call::{Call, Tools};
use super::json_scan::Step;
use super::marks::{Found, Prefix, after_space, find, prefix};
use super::typed::{Kinds, typed};

/// The marks of an element.
#[derive(Debug, PartialEq, Eq)]
pub struct Tags {
    /// What precedes the name; empty where nothing does.
    pub open: &'static str,
    /// What follows the name; empty where the next mark does.
    pub named: &'static str,
    /// What precedes a key.
    pub key: &'static str,
    /// What stands between a key and its value, with or without whitespace between these.
    pub value: &'static [&'static str],
    /// What ends a value.
    pub value_end: &'static str,
    /// What ends the element.
    pub end: &'static str,
    /// Whether a value stands on lines of its own.
    pub lines: Lines,
}

/// Whether the line breaks around a value belong to the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// One before and one after it.
    Own,
    /// They belong to the value.
    None,
}

/// Qwen 3 Coder's.
pub const CODER: Tags = Tags {
    open: "<function=",
    named: ">",
    key: "<parameter=",
    value: &[">"],
    value_end: "</parameter>",
    end: "</function>",
    lines: Lines::Own,
};

/// Seed-OSS's: Qwen 3 Coder's on one line.
pub const SEED: Tags = Tags { lines: Lines::None, ..CODER };

/// MiniMax M2's.
pub const INVOKE: Tags = Tags {
    open: "<invoke name=\"",
    named: "\">",
    key: "<parameter name=\"",
    value: &["\">"],
    value_end: "</parameter>",
    end: "</invoke>",
    lines: Lines::None,
};

/// Muse's.
pub const ATEM: Tags = Tags {
    open: "<atem:invoke name=\"",
    named: "\">",
    key: "<atem:parameter name=\"",
    value: &["\">"],
    value_end: "</atem:parameter>",
    end: "</atem:invoke>",
    lines: Lines::None,
};

/// GLM's, whose end is that of the call.
pub const GLM: Tags = Tags {
    open: "",
    named: "",
    key: "<arg_key>",
    value: &["</arg_key>", "<arg_value>"],
    value_end: "</arg_value>",
    end: "</tool_call>",
    lines: Lines::None,
};

/// The most bytes of a name or a key.
const LIMIT: usize = 256;

/// Follows one element to its end.
#[derive(Debug)]
pub struct ElementScan {
    tags: &'static Tags,
    /// What follows the element where no other one does; empty where nothing need.
    close: &'static str,
    at: usize,
    phase: Phase,
    name: String,
    /// Keys with their values as they are written.
    fields: Vec<(String, String)>,
}

#[derive(Debug)]
enum Phase {
    Open,
    Name {
        start: usize,
    },
    /// A key, or the end.
    Field,
    Key {
        start: usize,
    },
    /// Further marks between key and value, from this one on.
    Between {
        mark: usize,
    },
    Value {
        start: usize,
    },
    /// What seems to be the next key inside a value, from `end` on. If it is one, the value's own end is missing.
    NextKey {
        start: usize,
        end: usize,
    },
    /// What seems to be the element's end inside a value, from `end` on. If it is followed as an end is, the value's
    /// own end is missing. `closed` is whether `close` has followed.
    Doubt {
        start: usize,
        end: usize,
        closed: bool,
    },
}

impl ElementScan {
    /// A scan of the element that begins at byte `at`, with `close` behind the last one.
    pub fn new(tags: &'static Tags, at: usize, close: &'static str) -> ElementScan {
        let (name, fields) = (String::new(), Vec::new());
        ElementScan { tags, close, at, phase: Phase::Open, name, fields }
    }

    /// Goes on in `text`, which begins as it did the last time. The name must be a tool's.
    pub fn scan(&mut self, text: &str, tools: &Tools) -> Step {
        loop {
            if let Err(step) = self.advance(text, tools) {
                return step;
            }
        }
    }

    /// Where the element ends, if nothing follows what was scanned.
    pub fn finish(&mut self, text: &str) -> Option<usize> {
        let Phase::Doubt { start, end, .. } = self.phase else { return None };
        Some(self.end(text, start, end))
    }

    /// The call, once the scan is done.
    pub fn call(&self, tools: &Tools) -> Option<Call> {
        let schema = tools.schema(&self.name);
        let field = |(key, value): &(String, String)| {
            let kinds = schema.and_then(|schema| Kinds::of_property(schema, key));
            let value = match self.tags.lines {
                Lines::Own => {
                    let value = value.strip_prefix('\n').unwrap_or(value);
                    value.strip_suffix('\n').unwrap_or(value)
                }
                Lines::None => value,
            };
            format!("{}: {}", Value::from(key.as_str()), typed(value, kinds))
        };
        let fields: Vec<String> = self.fields.iter().map(field).collect();
        tools.call(&self.name, &format!("{{{}}}", fields.join(", ")))
    }

    fn advance(&mut self, text: &str, tools: &Tools) -> Result<(), Step> {
        match self.phase {
            Phase::Open => {
                self.eat(text, self.tags.open)?;
                self.phase = Phase::Name { start: self.at };
            }
            Phase::Name { start } => {
                let name = match self.tags.named {
                    "" => self.up_to(text, start, "<")?.to_owned(),
                    mark => {
                        let name = self.up_to(text, start, mark)?.to_owned();
                        self.at += mark.len();
                        name
                    }
                };
                let Some(name) = tools.resolve(name.trim()) else { return Err(Step::Bad(start)) };
                name.clone_into(&mut self.name);
                self.phase = Phase::Field;
            }
            Phase::Field => {
                self.skip_space(text);
                let rest = &text[self.at..];
                match (prefix(rest, self.tags.key), prefix(rest, self.tags.end), self.next(rest)) {
                    (_, Prefix::Whole, _) => return Err(Step::Done(self.at + self.tags.end.len())),
                    (Prefix::Whole, ..) => {
                        self.at += self.tags.key.len();
                        self.phase = Phase::Key { start: self.at };
                    }
                    // The element's end is missing. Where it is the call's own, nothing else says that it is over.
                    (.., Prefix::Whole) if !self.tags.open.is_empty() => {
                        return Err(Step::Done(self.at));
                    }
                    (Prefix::Part, ..) | (_, Prefix::Part, _) | (.., Prefix::Part) => {
                        return Err(Step::More);
                    }
                    _ => return Err(Step::Bad(self.at)),
                }
            }
            Phase::Key { start } => {
                let key = self.up_to(text, start, self.tags.value[0])?.trim().to_owned();
                self.at += self.tags.value[0].len();
                self.fields.push((key, String::new()));
                self.phase = Phase::Between { mark: 1 };
            }
            Phase::Between { mark } => match self.tags.value.get(mark) {
                Some(next) => {
                    self.skip_space(text);
                    self.eat(text, next)?;
                    self.phase = Phase::Between { mark: mark + 1 };
                }
                None => self.phase = Phase::Value { start: self.at },
            },
            Phase::Value { start } => self.value(text, start)?,
            Phase::NextKey { start, end } => self.next_key(text, start, end, tools)?,
            Phase::Doubt { start, end, closed } => {
                self.skip_space(text);
                let rest = &text[self.at..];
                let closes = !closed && !self.close.is_empty() && rest.starts_with(self.close);
                if closes {
                    self.at += self.close.len();
                    self.phase = Phase::Doubt { start, end, closed: true };
                    return Ok(());
                }
                // A value may hold a whole call, behind which its own end comes.
                let follows = match closed {
                    true => match prefix(rest, self.tags.value_end) {
                        Prefix::Whole => Prefix::No,
                        Prefix::Part => Prefix::Part,
                        Prefix::No => Prefix::Whole,
                    },
                    false => self.next(rest),
                };
                match follows {
                    Prefix::Whole => return Err(Step::Done(self.end(text, start, end))),
                    Prefix::Part => return Err(Step::More),
                    Prefix::No => self.phase = Phase::Value { start },
                }
            }
        }
        Ok(())
    }

    /// How `rest` stands to what may follow an element.
    fn next(&self, rest: &str) -> Prefix {
        let marks = [self.close, self.tags.open];
        let found = |kind| marks.iter().any(|mark| !mark.is_empty() && prefix(rest, mark) == kind);
        match (found(Prefix::Whole), found(Prefix::Part) || rest.is_empty()) {
            (true, _) => Prefix::Whole,
            (_, true) => Prefix::Part,
            _ => Prefix::No,
        }
    }

    /// Ends the value that begins at `start`, and the element, whose end is at `end`.
    fn end(&mut self, text: &str, start: usize, end: usize) -> usize {
        self.take(&text[start..end]);
        end + self.tags.end.len()
    }

    fn take(&mut self, text: &str) {
        if let Some((_, value)) = self.fields.last_mut() {
            text.clone_into(value);
        }
    }

    /// Ends the value that begins at `start` where the mark at `end` precedes a key that the call lacks.
    fn next_key(
        &mut self,
        text: &str,
        start: usize,
        end: usize,
        tools: &Tools,
    ) -> Result<(), Step> {
        let window = &text[self.at..text.floor_char_boundary(self.at + LIMIT)];
        let is_key = match window.split_once(self.tags.value[0]) {
            Some((key, _)) => !key.contains('\n') && self.lacks(key.trim(), tools),
            None if text.len() < self.at + LIMIT && !window.contains('\n') => {
                return Err(Step::More);
            }
            None => false,
        };
        self.phase = match is_key {
            true => {
                self.take(&text[start..end]);
                Phase::Key { start: self.at }
            }
            false => Phase::Value { start },
        };
        Ok(())
    }

    /// Whether `key` may be one that the call does not have yet: a property, where the schema names any.
    fn lacks(&self, key: &str, tools: &Tools) -> bool {
        let schema = tools.schema(&self.name);
        let known = schema.and_then(|schema| schema.get("properties")?.as_object());
        let may_be = match known.filter(|known| !known.is_empty()) {
            Some(known) => known.contains_key(key),
            None => !key.is_empty() && !key.contains('<'),
        };
        may_be && self.fields.iter().all(|(other, _)| other != key)
    }

    fn value(&mut self, text: &str, start: usize) -> Result<(), Step> {
        let tags = self.tags;
        match find(&text[self.at..], &[tags.value_end, tags.end, tags.key]) {
            Found::Mark(at, mark) => {
                let end = self.at + at;
                self.at = end + mark.len();
                self.phase = if mark == tags.end {
                    Phase::Doubt { start, end, closed: false }
                } else if mark == tags.key {
                    Phase::NextKey { start, end }
                } else {
                    self.take(&text[start..end]);
                    Phase::Field
                };
                Ok(())
            }
            Found::Nothing(at) => {
                self.at += at;
                Err(Step::More)
            }
        }
    }

    fn skip_space(&mut self, text: &str) {
        self.at = text.len() - after_space(&text[self.at..]).len();
    }

    fn eat(&mut self, text: &str, mark: &str) -> Result<(), Step> {
        match prefix(&text[self.at..], mark) {
            Prefix::Whole => {
                self.at += mark.len();
                Ok(())
            }
            Prefix::Part => Err(Step::More),
            Prefix::No => Err(Step::Bad(self.at)),
        }
    }

    /// The text from `start` to `mark`, where the scan goes on.
    fn up_to<'a>(&mut self, text: &'a str, start: usize, mark: &str) -> Result<&'a str, Step> {
        let (at, step) = match find(&text[self.at..], &[mark]) {
            Found::Mark(at, _) => (at, None),
            Found::Nothing(at) => (at, Some(Step::More)),
        };
        self.at += at;
        if self.at - start > LIMIT {
            return Err(Step::Bad(start));
        }
        step.map_or(Ok(&text[start..self.at]), Err)
    }
}
