//! What may become a tool call: followed from its mark to its end, then judged.

use super::call::{Arguments, Call, Tools, json_calls};
use super::family::Family;
use super::json_scan::{JsonScan, Step};
use super::marks::{Found, Prefix, after_space, find, prefix};
use super::python::{self, ListScan};
use super::{gemma, xml};

/// How a possible call begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The mark; empty where a call is the whole answer.
    pub mark: &'static str,
    kind: Kind,
    /// The mark that ends it, which may be missing.
    close: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// JSON, or a `<function=` element.
    Hermes,
    /// A `<function=` element whose beginning is the mark.
    Element,
    /// JSON, or a list of calls in Python.
    JsonOrList,
    /// JSON, or a name with its arguments.
    Mistral,
    /// Statements in Python.
    Python,
    /// `call:NAME{…}`, with this around strings.
    Gemma(&'static str),
}

const fn opening(mark: &'static str, kind: Kind, close: &'static str) -> Opening {
    Opening { mark, kind, close }
}

/// The openings of a family that have a mark.
pub fn openings(family: Family) -> &'static [Opening] {
    const HERMES: &[Opening] = &[
        opening("<tool_call>", Kind::Hermes, "</tool_call>"),
        opening("<function=", Kind::Element, ""),
    ];
    const LLAMA3: &[Opening] = &[
        opening("<|python_tag|>", Kind::JsonOrList, ""),
        opening("<|python_start|>", Kind::JsonOrList, "<|python_end|>"),
    ];
    const MISTRAL: &[Opening] = &[opening("[TOOL_CALLS]", Kind::Mistral, "")];
    const GEMMA: &[Opening] = &[
        opening("<start_function_call>", Kind::Gemma("<escape>"), "<end_function_call>"),
        opening("<|tool_call>", Kind::Gemma("<|\"|>"), "<tool_call|>"),
        opening("```tool_code", Kind::Python, "```"),
        opening("```json", Kind::JsonOrList, "```"),
    ];
    match family {
        Family::Plain | Family::Harmony => &[],
        Family::Hermes => HERMES,
        Family::Llama3 => LLAMA3,
        Family::Mistral => MISTRAL,
        Family::Gemma => GEMMA,
    }
}

/// A call without a mark, for families whose calls may be the whole answer.
pub const UNMARKED: Opening = opening("", Kind::JsonOrList, "");

/// A further call after one, for families that separate them so.
pub const SEPARATED: Opening = opening(";", Kind::JsonOrList, "");

/// The keys of a call; JSON without a mark that begins with another one is an answer.
const KEYS: &[&str] = &["name", "type", "id", "arguments", "parameters"];

/// The most bytes of a name with its marks, or of whitespace where a list begins.
const LIMIT: usize = 512;

/// A possible call, whose text begins with the mark.
#[derive(Debug)]
pub struct Candidate {
    opening: Opening,
    /// What lies before this byte needs no second look.
    at: usize,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Whitespace after the mark.
    Lead,
    /// A tool's name and its marks.
    Header {
        start: usize,
    },
    Json {
        start: usize,
        name: Option<String>,
        scan: JsonScan,
    },
    List {
        start: usize,
        scan: ListScan,
    },
    /// Anything up to `end`, which belongs to it where it is `part`.
    Until {
        start: usize,
        end: &'static str,
        part: bool,
    },
    /// The calls, and what may follow them: whitespace and the closing mark.
    Tail {
        calls: Option<Vec<Call>>,
        end: usize,
    },
}

impl Candidate {
    pub fn new(opening: Opening) -> Candidate {
        Candidate { opening, at: opening.mark.len(), phase: Phase::Lead }
    }

    /// Goes on in `text`, which begins with the mark and as it did the last time.
    pub fn scan(&mut self, text: &str, tools: &Tools) -> Step {
        loop {
            let step = match &mut self.phase {
                Phase::Lead => self.lead(text),
                Phase::Header { start } => {
                    let start = *start;
                    self.header(&text[start..], start, tools)
                }
                Phase::Json { scan, .. } => Err(scan.scan(text)),
                Phase::List { scan, .. } => Err(scan.scan(text, tools)),
                Phase::Until { end, part, .. } => Err(match find(&text[self.at..], &[*end]) {
                    Found::Mark(at, mark) if *part => Step::Done(self.at + at + mark.len()),
                    Found::Mark(at, _) => Step::Done(self.at + at),
                    Found::Nothing(at) => {
                        self.at += at;
                        Step::More
                    }
                }),
                Phase::Tail { end, .. } => {
                    let end = *end;
                    return self.tail(text, end);
                }
            };
            match step {
                Ok(phase) => self.phase = phase,
                Err(Step::Done(end)) => self.judge(text, end, tools),
                Err(step) => return step,
            }
        }
    }

    /// What the scan comes to if nothing follows `text`.
    pub fn finish(&mut self, text: &str, tools: &Tools) -> Step {
        if let Phase::Until { end, part: false, .. } = self.phase {
            let cut = (0..end.len()).rev().find(|&len| text.ends_with(&end[..len])).unwrap_or(0);
            self.judge(text, text.len() - cut, tools);
        }
        match &self.phase {
            // The beginning of a closing mark belongs to it.
            Phase::Tail { .. } => Step::Done(text.len()),
            _ => Step::Bad(text.len()),
        }
    }

    /// The calls, once the scan is done; none where it is no call.
    pub fn calls(self) -> Option<Vec<Call>> {
        match self.phase {
            Phase::Tail { calls, .. } => calls,
            _ => None,
        }
    }

    /// Skips whitespace and sees what follows.
    fn lead(&mut self, text: &str) -> Result<Phase, Step> {
        let rest = after_space(&text[self.at..]);
        let start = text.len() - rest.len();
        self.at = start;
        let json = |keys| Phase::Json { start, name: None, scan: JsonScan::new(start, keys) };
        let until = |start, end, part| Phase::Until { start, end, part };
        if self.opening.kind == Kind::Element {
            return Ok(until(0, "</function>", true));
        }
        let Some(first) = rest.bytes().next() else { return Err(Step::More) };
        match (self.opening.kind, first) {
            (Kind::Hermes, b'{') => Ok(json(None)),
            (Kind::Hermes, b'<') => match prefix(rest, "<function=") {
                Prefix::Whole => Ok(until(start, "</function>", true)),
                Prefix::Part => Err(Step::More),
                Prefix::No => Err(Step::Bad(start)),
            },
            (Kind::JsonOrList, b'{') => Ok(json(Some(KEYS))),
            (Kind::JsonOrList, b'[') => {
                let items = after_space(&rest[1..]);
                let is_json = items.bytes().next().map(|byte| byte == b'{');
                match is_json {
                    _ if rest.len() - items.len() > LIMIT => Err(Step::Bad(start + 1)),
                    None => Err(Step::More),
                    Some(true) => Ok(json(Some(KEYS))),
                    Some(false) => Ok(Phase::List { start, scan: ListScan::new(start) }),
                }
            }
            (Kind::Mistral, b'{' | b'[') => Ok(json(None)),
            (Kind::Mistral, _) => Ok(Phase::Header { start }),
            (Kind::Python | Kind::Gemma(_), _) => Ok(until(start, self.opening.close, false)),
            _ => Err(Step::Bad(start)),
        }
    }

    /// `NAME[ARGS]`, or `NAME[CALL_ID]ID[ARGS]`, and then JSON. `text` begins at byte `start`.
    fn header(&self, text: &str, start: usize, tools: &Tools) -> Result<Phase, Step> {
        let word = |text: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            text.find(|c| !known(c)).unwrap_or(text.len())
        };
        let name = word(text);
        let bad = Step::Bad(start + name.min(LIMIT));
        // Wherever it was cut, a header is known or refused by its first bytes alone.
        let window = &text[..text.floor_char_boundary(LIMIT)];
        let more = if text.len() > LIMIT { bad } else { Step::More };
        if name >= window.len() {
            return Err(more);
        }
        if !tools.has(&text[..name]) {
            return Err(bad);
        }
        let mut rest = after_space(&window[name..]);
        if let Some(id) = rest.strip_prefix("[CALL_ID]") {
            rest = &id[word(id)..];
        }
        let rest = match (prefix(rest, "[ARGS]"), prefix(rest, "[CALL_ID]")) {
            (Prefix::Whole, _) => after_space(&rest["[ARGS]".len()..]),
            (Prefix::Part, _) | (_, Prefix::Part) => return Err(more),
            _ => return Err(bad),
        };
        match rest.bytes().next() {
            None => Err(more),
            Some(b'{') => {
                let start = start + window.len() - rest.len();
                let name = Some(text[..name].to_owned());
                Ok(Phase::Json { start, name, scan: JsonScan::new(start, None) })
            }
            Some(_) => Err(bad),
        }
    }

    /// Takes the body, which ends before byte `end`, for what it is.
    fn judge(&mut self, text: &str, end: usize, tools: &Tools) {
        let calls = match (&self.phase, self.opening.kind) {
            (Phase::Json { start, name: Some(name), .. }, _) => {
                tools.call(name, &text[*start..end]).map(|call| vec![call])
            }
            (Phase::Json { start, .. }, kind) => {
                let arguments = match kind {
                    Kind::JsonOrList => Arguments::Required,
                    _ => Arguments::Optional,
                };
                json_calls(&text[*start..end], tools, arguments)
            }
            (Phase::List { start, .. }, _) => python::calls(&text[*start..end], tools),
            (Phase::Until { start, .. }, Kind::Python) => python::calls(&text[*start..end], tools),
            (Phase::Until { start, .. }, Kind::Gemma(quote)) => {
                gemma::calls(&text[*start..end], quote, tools)
            }
            (Phase::Until { start, .. }, _) => {
                xml::call(&text[*start..end], tools).map(|call| vec![call])
            }
            (Phase::Lead | Phase::Header { .. } | Phase::Tail { .. }, _) => None,
        };
        self.at = end;
        self.phase = Phase::Tail { calls, end };
    }

    /// Takes the closing mark along, where it follows.
    fn tail(&mut self, text: &str, end: usize) -> Step {
        if self.opening.close.is_empty() {
            return Step::Done(end);
        }
        let rest = after_space(&text[self.at..]);
        let start = text.len() - rest.len();
        match prefix(rest, self.opening.close) {
            Prefix::Whole => Step::Done(start + self.opening.close.len()),
            Prefix::Part => {
                self.at = start;
                Step::More
            }
            Prefix::No => Step::Done(end),
        }
    }
}
