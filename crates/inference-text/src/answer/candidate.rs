//! What may become tool calls: followed from its mark to its end, then judged.

use super::call::{Arguments, Call, Tools, json_calls};
use super::elements::{CODER, ElementScan, GLM};
use super::format::{Kind, Opening};
use super::gemma;
use super::header;
use super::json_scan::{JsonScan, Step};
use super::marks::{Found, Prefix, after_space, find, prefix};
use super::python::{self, ListScan};

/// The keys of a call; JSON without a mark that begins with another one is an answer.
const KEYS: &[&str] = &["name", "type", "id", "arguments", "parameters"];

/// The most bytes of whitespace where a list begins.
const LIMIT: usize = 512;

/// Possible calls, whose text begins with the mark.
#[derive(Debug)]
pub struct Candidate {
    opening: Opening,
    /// What lies before this byte needs no second look.
    at: usize,
    /// The calls so far, of which there is at least one, and where the last one ends.
    found: Option<(Vec<Call>, usize)>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Whitespace before a call.
    Lead,
    /// A tool's name and its marks, from this byte on.
    Header {
        start: usize,
    },
    Json {
        start: usize,
        body: Body,
        scan: JsonScan,
    },
    List {
        start: usize,
        scan: ListScan,
    },
    Element(ElementScan),
    /// Anything up to the closing mark.
    Until {
        start: usize,
    },
    /// What may follow a call that ends before this byte: further closing marks, those from `closed` on, and calls.
    Tail {
        end: usize,
        closed: usize,
    },
}

/// What JSON is.
#[derive(Debug)]
enum Body {
    /// Calls, with their names.
    Calls,
    /// The arguments of this tool.
    Of(String),
    /// The arguments of a tool that nothing else tells.
    Unnamed,
}

impl Candidate {
    pub fn new(opening: Opening) -> Candidate {
        Candidate { opening, at: opening.mark.len(), found: None, phase: Phase::Lead }
    }

    /// What it began with.
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// Goes on in `text`, which begins with the mark and as it did the last time.
    pub fn scan(&mut self, text: &str, tools: &Tools) -> Step {
        loop {
            let step = match &mut self.phase {
                Phase::Lead => self.lead(text),
                Phase::Header { start } => {
                    let start = *start;
                    self.header(text, start, tools)
                }
                Phase::Json { scan, .. } => Err(scan.scan(text)),
                Phase::List { scan, .. } => Err(scan.scan(text, tools)),
                Phase::Element(scan) => Err(scan.scan(text, tools)),
                Phase::Until { .. } => Err(match find(&text[self.at..], &[self.opening.close]) {
                    Found::Mark(at, _) => Step::Done(self.at + at),
                    Found::Nothing(at) => {
                        self.at += at;
                        Step::More
                    }
                }),
                Phase::Tail { end, closed } => {
                    let (end, closed) = (*end, *closed);
                    match self.tail(text, end, closed) {
                        Ok(phase) => Ok(phase),
                        Err(step) => return step,
                    }
                }
            };
            match (step, &self.found) {
                (Ok(phase), _) => self.phase = phase,
                (Err(Step::Done(end)), _) => self.judge(text, end, tools),
                // What was found before stays found.
                (Err(Step::Bad(_)), Some((_, end))) => return Step::Done(*end),
                (Err(step), _) => return step,
            }
        }
    }

    /// What the scan comes to if nothing follows `text`.
    pub fn finish(&mut self, text: &str, tools: &Tools) -> Step {
        if let Phase::Until { .. } = self.phase {
            let close = self.opening.close;
            let cut = (0..close.len())
                .rev()
                .find(|&len| close.is_char_boundary(len) && text.ends_with(&close[..len]));
            self.judge(text, text.len() - cut.unwrap_or(0), tools);
        }
        if let Phase::Element(scan) = &mut self.phase
            && let Some(end) = scan.finish(text)
        {
            self.judge(text, end, tools);
        }
        match (&self.phase, &self.found) {
            // The beginning of a closing mark belongs to it.
            (Phase::Tail { .. }, _) => Step::Done(text.len()),
            (_, Some((_, end))) => Step::Done(*end),
            _ => Step::Bad(text.len()),
        }
    }

    /// The calls, once the scan is done; none where it is no call.
    pub fn calls(self) -> Option<Vec<Call>> {
        self.found.map(|(calls, _)| calls)
    }

    /// Skips whitespace and sees what follows.
    fn lead(&mut self, text: &str) -> Result<Phase, Step> {
        let close = self.opening.close;
        if let Kind::Element(tags) = self.opening.kind {
            return Ok(Phase::Element(ElementScan::new(tags, 0, close)));
        }
        let rest = after_space(&text[self.at..]);
        let start = text.len() - rest.len();
        self.at = start;
        let json =
            |keys| Phase::Json { start, body: Body::Calls, scan: JsonScan::new(start, keys) };
        let element = |tags| Phase::Element(ElementScan::new(tags, start, close));
        let Some(first) = rest.bytes().next() else { return Err(Step::More) };
        match (self.opening.kind, first) {
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
            (Kind::Python, _) => Ok(Phase::Until { start }),
            (Kind::Gemma(_), first) if first != b'{' => Ok(Phase::Until { start }),
            (Kind::JsonOrList, _) => Err(Step::Bad(start)),
            (_, b'{' | b'[') => Ok(json(None)),
            (Kind::Hermes, b'<') => match prefix(rest, CODER.open) {
                Prefix::Whole => Ok(element(&CODER)),
                Prefix::Part => Err(Step::More),
                Prefix::No => Err(Step::Bad(start)),
            },
            (Kind::Hermes, _) => {
                Ok(Phase::Element(ElementScan::new(&GLM, start, self.opening.mark)))
            }
            (Kind::Elements(tags), _) => Ok(element(tags)),
            (Kind::Named(_), _) => Ok(Phase::Header { start }),
            (Kind::Json | Kind::Gemma(_) | Kind::Element(_), _) => Err(Step::Bad(start)),
        }
    }

    fn header(&self, text: &str, start: usize, tools: &Tools) -> Result<Phase, Step> {
        let Kind::Named(names) = self.opening.kind else { return Err(Step::Bad(start)) };
        match header::read(names, &text[start..], tools) {
            Ok((name, at)) => {
                let start = start + at;
                let body = name.map_or(Body::Unnamed, Body::Of);
                Ok(Phase::Json { start, body, scan: JsonScan::new(start, None) })
            }
            Err(Step::Bad(at)) => Err(Step::Bad(start + at)),
            Err(step) => Err(step),
        }
    }

    /// Takes the body, which ends before byte `end`, for what it is.
    fn judge(&mut self, text: &str, end: usize, tools: &Tools) {
        let json = |text: &str, arguments| json_calls(text, tools, arguments);
        let calls = match &self.phase {
            Phase::Json { start, body, .. } => {
                let text = &text[*start..end];
                match (body, self.opening.kind) {
                    (Body::Of(name), _) => tools.call(name, text).map(|call| vec![call]),
                    (Body::Unnamed, _) => tools.fitting(text).map(|call| vec![call]),
                    (Body::Calls, Kind::JsonOrList) => json(text, Arguments::Required),
                    (Body::Calls, _) => json(text, Arguments::Optional),
                }
            }
            Phase::List { start, .. } => python::calls(&text[*start..end], tools),
            Phase::Element(scan) => scan.call(tools).map(|call| vec![call]),
            Phase::Until { start } => match self.opening.kind {
                Kind::Gemma(quote) => gemma::calls(&text[*start..end], quote, tools),
                _ => python::calls(&text[*start..end], tools)
                    .or_else(|| json(&text[*start..end], Arguments::Required)),
            },
            Phase::Lead | Phase::Header { .. } | Phase::Tail { .. } => None,
        };
        self.at = end;
        self.phase = Phase::Tail { end, closed: 0 };
        if let Some(calls) = calls {
            let (found, last) = self.found.get_or_insert_default();
            found.extend(calls);
            *last = end;
        }
    }

    /// Takes closing marks along, where they follow, and sees whether another call does.
    fn tail(&mut self, text: &str, end: usize, closed: usize) -> Result<Phase, Step> {
        let (closes, next): (&[&str], &str) = match self.opening.kind {
            Kind::Named(names) => (names.closes, names.open),
            Kind::Elements(tags) => (&[], tags.open),
            _ => (&[], ""),
        };
        let close = self.opening.close;
        // What was no call ends where it ended.
        let next =
            if self.found.as_ref().is_some_and(|(_, last)| *last >= end) { next } else { "" };
        if close.is_empty() && next.is_empty() && closes.is_empty() {
            return Err(Step::Done(end));
        }
        let rest = after_space(&text[self.at..]);
        self.at = text.len() - rest.len();
        let mut part = false;
        for (index, mark) in closes.iter().enumerate().skip(closed) {
            match prefix(rest, mark) {
                Prefix::Whole => {
                    self.at += mark.len();
                    if let Some((_, last)) = &mut self.found {
                        *last = self.at;
                    }
                    return Ok(Phase::Tail { end: self.at, closed: index + 1 });
                }
                Prefix::Part => part = true,
                Prefix::No => {}
            }
        }
        if !close.is_empty() {
            match prefix(rest, close) {
                Prefix::Whole => return Err(Step::Done(self.at + close.len())),
                Prefix::Part => part = true,
                Prefix::No => {}
            }
        }
        if !next.is_empty() {
            match prefix(rest, next) {
                Prefix::Whole => return Ok(Phase::Lead),
                Prefix::Part => part = true,
                Prefix::No => {}
            }
        }
        Err(if part { Step::More } else { Step::Done(end) })
    }
}
