//! Calls as elements: a name, and keys with values that are written as they are.

use serde_json::Value;

use super::call::{Call, Tools};
use super::format::Opening;
use super::json_scan::Step;
use super::marks::{Found, Prefix, after_space, find, prefix};
use super::tags::{Lines, Tags};
use super::typed::{Kinds, typed};

/// The most bytes of a name or a key.
const LIMIT: usize = 256;

/// Which of the end marks in a value ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// One behind which the call goes on as a call does, outside of whole elements that the value
    /// holds. Behind the call itself comes another one or nothing.
    Weighed,
    /// The first one that may.
    First,
}

/// Follows one element to its end.
#[derive(Debug)]
pub struct ElementScan {
    tags: &'static Tags,
    /// The marks that begin and end the call.
    opening: Opening,
    ends: Ends,
    at: usize,
    phase: Phase,
    name: String,
    /// Keys with their values as they are written.
    fields: Vec<(String, String)>,
    /// Elements that began inside the value and have not ended.
    depth: usize,
    /// The beginning of the first value with an end that was passed over, and the fields up to it.
    /// The scan goes on from there, with [`Ends::First`], where weighing leads nowhere.
    passed: Option<(usize, usize)>,
    weighed_in_vain: bool,
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
    /// A mark that seems to begin an element inside a value. If a name follows, it does.
    Inner {
        start: usize,
    },
    /// A mark that seems to end the value, from `end` on. If something follows that may, it does.
    Ended {
        start: usize,
        end: usize,
    },
    /// A mark that seems to be the next key inside a value, from `end` on. If it is one, the
    /// value's own end is missing.
    NextKey {
        start: usize,
        end: usize,
    },
    /// A mark that seems to end the element, whose last value goes from `start` to `value`. If it
    /// is followed as an end is, it does. `closed` is set once the mark that ends the call has
    /// followed.
    Doubt {
        start: usize,
        value: usize,
        end: usize,
        closed: bool,
    },
}

impl ElementScan {
    /// A scan of the element that begins at byte `at`, in a call with this opening.
    pub fn new(tags: &'static Tags, at: usize, opening: Opening, ends: Ends) -> ElementScan {
        let (name, fields, phase) = (String::new(), Vec::new(), Phase::Open);
        let (depth, passed, weighed_in_vain) = (0, None, false);
        ElementScan { tags, opening, ends, at, phase, name, fields, depth, passed, weighed_in_vain }
    }

    /// Goes on in `text`, which begins as it did the last time. The name must be a tool's.
    pub fn scan(&mut self, text: &str, tools: &Tools) -> Step {
        loop {
            match self.advance(text, tools) {
                Ok(()) => {}
                Err(Step::Bad(_)) if self.take_first() => {}
                Err(step) => return step,
            }
        }
    }

    /// Returns the end of the element, if nothing follows the text scanned.
    pub fn finish(&mut self, text: &str, tools: &Tools) -> Option<usize> {
        loop {
            if let Phase::Doubt { start, value, end, .. } = self.phase {
                self.take(&text[start..value]);
                return Some(end);
            }
            if !self.take_first() {
                return None;
            }
            if let Step::Done(end) = self.scan(text, tools) {
                return Some(end);
            }
        }
    }

    /// Returns true once the first end was taken after a look through the text behind it.
    pub fn weighed_in_vain(&self) -> bool {
        self.weighed_in_vain
    }

    /// Goes back to the first end that was passed over, if there is one, and takes it.
    fn take_first(&mut self) -> bool {
        let Some((start, fields)) = self.passed.filter(|_| self.ends == Ends::Weighed) else {
            return false;
        };
        (self.ends, self.weighed_in_vain) = (Ends::First, true);
        self.fields.truncate(fields);
        (self.at, self.depth) = (start, 0);
        self.phase = Phase::Value { start };
        true
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
            Phase::Field => self.field(text)?,
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
            Phase::Inner { start } => self.inner(text, start)?,
            Phase::Ended { start, end } => self.ended(text, start, end)?,
            Phase::NextKey { start, end } => {
                self.phase = match self.key_ahead(text, self.at)? {
                    Some(key) if self.lacks(key, tools) => {
                        self.take(&text[start..end]);
                        Phase::Key { start: self.at }
                    }
                    _ => Phase::Value { start },
                };
            }
            Phase::Doubt { start, value, end, closed } => {
                self.skip_space(text);
                let rest = &text[self.at..];
                if !closed && !self.close().is_empty() && rest.starts_with(self.close()) {
                    self.at += self.close().len();
                    self.phase = Phase::Doubt { start, value, end, closed: true };
                    return Ok(());
                }
                // One word tells of no marks.
                let is_word = text[value..].starts_with(self.tags.value_end)
                    && is_word(text[start..value].trim());
                match self.ends_before(rest, closed) {
                    follows if follows == Prefix::Whole || closed && is_word => {
                        self.take(&text[start..value]);
                        return Err(Step::Done(end));
                    }
                    Prefix::Part => return Err(Step::More),
                    _ => self.go_on(start),
                }
            }
        }
        Ok(())
    }

    /// A key, or the element's end.
    fn field(&mut self, text: &str) -> Result<(), Step> {
        self.skip_space(text);
        let rest = &text[self.at..];
        match (prefix(rest, self.tags.key), prefix(rest, self.tags.end), self.next(rest)) {
            (_, Prefix::Whole, _) => Err(Step::Done(self.at + self.tags.end.len())),
            (Prefix::Whole, ..) => {
                self.at += self.tags.key.len();
                self.phase = Phase::Key { start: self.at };
                Ok(())
            }
            // The element's end is missing. Where it is the call's own, nothing else says that it
            // is over.
            (.., Prefix::Whole) if !self.tags.open.is_empty() => Err(Step::Done(self.at)),
            (Prefix::Part, ..) | (_, Prefix::Part, _) | (.., Prefix::Part) => Err(Step::More),
            _ => Err(Step::Bad(self.at)),
        }
    }

    /// Takes the value from `start` to the mark at `end` where what follows may follow a value.
    fn ended(&mut self, text: &str, start: usize, end: usize) -> Result<(), Step> {
        self.skip_space(text);
        let rest = &text[self.at..];
        let marks = [self.tags.key, self.tags.end, self.close(), self.tags.open];
        match one_of(rest, &marks) {
            Prefix::Part => return Err(Step::More),
            Prefix::No => self.phase = Phase::Value { start },
            Prefix::Whole if self.ends == Ends::First => {
                self.take(&text[start..end]);
                self.phase = Phase::Field;
            }
            Prefix::Whole if rest.starts_with(self.tags.key) => {
                let at = self.at + self.tags.key.len();
                let key = self.key_ahead(text, at)?;
                self.at = at;
                match key.is_some_and(|key| self.fields.iter().any(|(other, _)| other == key)) {
                    // A key that the call has already is one of an example.
                    true => self.go_on(start),
                    false => {
                        self.take(&text[start..end]);
                        self.phase = Phase::Key { start: self.at };
                    }
                }
            }
            Prefix::Whole if rest.starts_with(self.tags.end) => {
                self.at += self.tags.end.len();
                let closed = self.tags.open.is_empty();
                self.phase = Phase::Doubt { start, value: end, end: self.at, closed };
            }
            Prefix::Whole => {
                self.phase = Phase::Doubt { start, value: end, end: self.at, closed: false };
            }
        }
        Ok(())
    }

    /// The mark that ends the call; empty where the element's end does.
    fn close(&self) -> &'static str {
        if self.tags.open.is_empty() { "" } else { self.opening.close }
    }

    /// How `rest` stands to what may follow an element.
    fn next(&self, rest: &str) -> Prefix {
        let begins = if self.tags.open.is_empty() { self.opening.mark } else { self.tags.open };
        one_of(rest, &[self.close(), begins])
    }

    /// Judges by `rest`, the text behind it, a mark that seems to end the element. With `closed`,
    /// `rest` is behind the end of the call.
    fn ends_before(&self, rest: &str, closed: bool) -> Prefix {
        if !closed {
            return self.next(rest);
        }
        match self.ends {
            Ends::Weighed => one_of(rest, &[self.opening.mark, self.tags.open]),
            // A value may hold a whole call, behind which its own end comes.
            Ends::First => match prefix(rest, self.tags.value_end) {
                Prefix::Whole => Prefix::No,
                Prefix::Part => Prefix::Part,
                Prefix::No => Prefix::Whole,
            },
        }
    }

    /// Passes over an end inside the value that begins at `start`.
    fn go_on(&mut self, start: usize) {
        self.passed.get_or_insert((start, self.fields.len()));
        self.phase = Phase::Value { start };
    }

    fn take(&mut self, text: &str) {
        if let Some((_, value)) = self.fields.last_mut() {
            text.clone_into(value);
        }
    }

    /// The key that begins at byte `at`, behind its mark; `None` where there is none.
    fn key_ahead<'a>(&self, text: &'a str, at: usize) -> Result<Option<&'a str>, Step> {
        let window = &text[at..text.floor_char_boundary(at + LIMIT)];
        match window.split_once(self.tags.value[0]) {
            Some((key, _)) => Ok((!key.contains('\n')).then_some(key.trim())),
            None if text.len() < at + LIMIT && !window.contains('\n') => Err(Step::More),
            None => Ok(None),
        }
    }

    /// Returns true when the call may still get `key`: a property, where the schema names any.
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
        let begins = if tags.open.is_empty() { self.opening.mark } else { tags.open };
        let marks = [tags.value_end, tags.end, tags.key, begins];
        let (at, mark) = match find(&text[self.at..], &marks) {
            Found::Mark(at, mark) => (at, mark),
            Found::Nothing(at) => {
                self.at += at;
                return Err(Step::More);
            }
        };
        let end = self.at + at;
        self.at = end + mark.len();
        self.phase = if mark == begins {
            match self.ends {
                Ends::Weighed => Phase::Inner { start },
                Ends::First => Phase::Value { start },
            }
        } else if self.depth > 0 {
            self.depth -= usize::from(mark == tags.end);
            Phase::Value { start }
        } else if mark == tags.end {
            let closed = tags.open.is_empty() && self.ends == Ends::Weighed;
            Phase::Doubt { start, value: end, end: self.at, closed }
        } else if mark == tags.key {
            Phase::NextKey { start, end }
        } else {
            Phase::Ended { start, end }
        };
        Ok(())
    }

    /// Takes note of an element inside the value that begins at `start`, where a name follows.
    fn inner(&mut self, text: &str, start: usize) -> Result<(), Step> {
        let window = &text[self.at..text.floor_char_boundary(self.at + LIMIT)];
        let rest = after_space(window);
        let name = rest.len() - rest.trim_start_matches(is_name).len();
        let ends = match self.tags.named {
            "" => one_of(after_space(&rest[name..]), &[self.tags.key, self.tags.end]),
            mark => one_of(&rest[name..], &[mark]),
        };
        match ends {
            Prefix::Part if text.len() < self.at + LIMIT => return Err(Step::More),
            Prefix::Whole if name > 0 => {
                self.depth += 1;
                self.go_on(start);
            }
            _ => self.phase = Phase::Value { start },
        }
        Ok(())
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

/// How `rest` stands to these marks, of which empty ones are none: to the one that it stands to
/// best. Nothing is the beginning of each.
fn one_of(rest: &str, marks: &[&str]) -> Prefix {
    let found = |kind| marks.iter().any(|mark| !mark.is_empty() && prefix(rest, mark) == kind);
    match (found(Prefix::Whole), found(Prefix::Part) || rest.is_empty()) {
        (true, _) => Prefix::Whole,
        (_, true) => Prefix::Part,
        _ => Prefix::No,
    }
}

/// Returns true when a value is one word or number, with nothing around it.
fn is_word(value: &str) -> bool {
    !value.is_empty() && value.chars().all(|c| is_name(c) || "/:+".contains(c))
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || "_-.".contains(c)
}
