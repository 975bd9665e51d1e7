//! Possible tool calls: followed from the mark to the end, then judged.

use super::call::{Arguments, Call, Tools, json_calls};
use super::closing::CloseScan;
use super::elements::{ElementScan, Ends};
use super::format::{Kind, Opening};
use super::gemma;
use super::header;
use super::json_scan::{JsonScan, Step};
use super::marks::{Prefix, after_space, is_space, prefix};
use super::python::{self, ListScan};
use super::tags::{CODER, GLM};

/// The keys of a call; JSON without a mark that begins with another one is an answer.
const KEYS: &[&str] = &["name", "type", "id", "arguments", "parameters"];

/// The most bytes of whitespace where a list begins.
const LIMIT: usize = 512;

/// Possible calls, whose text begins with the mark.
#[derive(Debug)]
pub struct Candidate {
    opening: Opening,
    ends: Ends,
    /// Set once ends in values of elements were weighed in vain.
    weighed_in_vain: bool,
    /// The byte up to which the text needs no second look.
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
        scan: CloseScan,
    },
    /// The text behind a call that ends before `end`: further closing marks, those from `closed`
    /// on, and calls.
    Tail {
        end: usize,
        closed: usize,
        of: Written,
    },
}

/// The notation of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// JSON with its name, behind which another one may follow.
    Call,
    /// JSON with its arguments.
    Arguments,
    Otherwise,
}

/// The content of a JSON value.
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
    pub fn new(opening: Opening, ends: Ends) -> Candidate {
        let (at, phase) = (opening.mark.len(), Phase::Lead);
        Candidate { opening, ends, weighed_in_vain: false, at, found: None, phase }
    }

    /// Returns true when the scan looked beyond the calls for ends that are not there.
    pub fn weighed_in_vain(&self) -> bool {
        let of_element = matches!(&self.phase, Phase::Element(scan) if scan.weighed_in_vain());
        self.weighed_in_vain || of_element
    }

    /// Returns the opening that the text began with.
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
                Phase::Json { scan, .. } => {
                    let step = scan.scan(text);
                    Err(self.opening.lacking(step, text))
                }
                Phase::List { scan, .. } => Err(scan.scan(text, tools)),
                Phase::Element(scan) => Err(scan.scan(text, tools)),
                Phase::Until { scan, .. } => Err(scan.scan(text)),
                Phase::Tail { .. } => match self.tail(text) {
                    Ok(phase) => Ok(phase),
                    Err(step) => return step,
                },
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

    /// Returns the result of the scan if nothing follows `text`.
    pub fn finish(&mut self, text: &str, tools: &Tools) -> Step {
        loop {
            let end = match &mut self.phase {
                Phase::Until { .. } => {
                    let close = self.opening.close;
                    let cut = (0..close.len())
                        .rev()
                        .find(|&len| close.is_char_boundary(len) && text.ends_with(&close[..len]));
                    Some(text.len() - cut.unwrap_or(0))
                }
                Phase::Element(scan) => scan.finish(text, tools),
                _ => None,
            };
            let Some(end) = end else { break };
            self.judge(text, end, tools);
            // A call that ends before the text does may be followed by another one.
            match self.scan(text, tools) {
                Step::More => {}
                step => return step,
            }
        }
        match (&self.phase, &self.found) {
            (Phase::Tail { end, .. }, Some((_, last))) if last < end => Step::Done(*last),
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
        let (opening, ends) = (self.opening, self.ends);
        if let Kind::Element(tags) = self.opening.kind {
            return Ok(Phase::Element(ElementScan::new(tags, 0, self.opening, self.ends)));
        }
        let rest = after_space(&text[self.at..]);
        let start = text.len() - rest.len();
        self.at = start;
        let json =
            |keys| Phase::Json { start, body: Body::Calls, scan: JsonScan::new(start, keys) };
        let element = |tags| Phase::Element(ElementScan::new(tags, start, opening, ends));
        let until = |scan| Phase::Until { start, scan };
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
            (Kind::Python, _) => Ok(until(CloseScan::python(start, opening.close, ends))),
            (Kind::Gemma(quote), first) if first != b'{' => {
                Ok(until(CloseScan::quoted(start, opening.close, quote, ends)))
            }
            (Kind::JsonOrList, _) => Err(Step::Bad(start)),
            (_, b'{' | b'[') => Ok(json(None)),
            (Kind::Hermes, b'<') => match prefix(rest, CODER.open) {
                Prefix::Whole => Ok(element(&CODER)),
                Prefix::Part => Err(Step::More),
                Prefix::No => Err(Step::Bad(start)),
            },
            (Kind::Hermes, _) => Ok(element(&GLM)),
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
        let mut end = end;
        let mut of = Written::Otherwise;
        let calls = match &self.phase {
            Phase::Json { start, body, scan } => {
                let text = format!("{}{}", &text[*start..end], scan.closers());
                of = if matches!(body, Body::Calls) { Written::Call } else { Written::Arguments };
                match (body, self.opening.kind) {
                    (Body::Of(name), _) => tools.call(name, &text).map(|call| vec![call]),
                    (Body::Unnamed, _) => tools.fitting(&text).map(|call| vec![call]),
                    (Body::Calls, Kind::JsonOrList) => json(&text, Arguments::Required),
                    (Body::Calls, _) => json(&text, Arguments::Optional),
                }
            }
            Phase::List { start, .. } => python::calls(&text[*start..end], tools),
            Phase::Element(scan) => {
                self.weighed_in_vain |= scan.weighed_in_vain();
                scan.call(tools).map(|call| vec![call])
            }
            Phase::Until { start, scan } => {
                let read = |end: usize| match self.opening.kind {
                    Kind::Gemma(quote) => gemma::calls(&text[*start..end], quote, tools),
                    _ => python::calls(&text[*start..end], tools)
                        .or_else(|| json(&text[*start..end], Arguments::Required)),
                };
                match (read(end), scan.within_string().filter(|first| *first < end)) {
                    (None, Some(first)) => {
                        end = first;
                        self.weighed_in_vain = true;
                        read(first)
                    }
                    (calls, _) => calls,
                }
            }
            Phase::Lead | Phase::Header { .. } | Phase::Tail { .. } => None,
        };
        self.at = end;
        self.phase = Phase::Tail { end, closed: 0, of };
        if let Some(calls) = calls {
            let (found, last) = self.found.get_or_insert_default();
            found.extend(calls);
            *last = end;
        }
    }

    /// Takes closing marks along, where they follow, and sees whether another call does.
    fn tail(&mut self, text: &str) -> Result<Phase, Step> {
        let Phase::Tail { end, closed, of } = self.phase else { return Err(Step::More) };
        match &self.found {
            // What was no call stays text.
            Some((_, last)) if *last < end => return Err(Step::Done(*last)),
            _ => {}
        }
        let (closes, next): (&[&str], &str) = match self.opening.kind {
            Kind::Named(names) => (names.closes, names.open),
            Kind::Elements(tags) => (&[], tags.open),
            _ => (&[], ""),
        };
        let close = self.opening.close;
        let next = if self.found.is_some() { next } else { "" };
        if close.is_empty() && next.is_empty() && closes.is_empty() {
            return Err(Step::Done(end));
        }
        let rest = after_space(&text[self.at..]);
        self.at = text.len() - rest.len();
        let found = self.found.is_some();
        let mut follows = Follows { part: false, rest };
        for (index, mark) in closes.iter().enumerate().skip(closed) {
            if follows.is(mark) {
                self.take_along(mark.len());
                return Ok(Phase::Tail { end: self.at, closed: index + 1, of });
            }
        }
        if !close.is_empty() && follows.is(close) {
            return Err(Step::Done(self.at + close.len()));
        }
        if !next.is_empty() && follows.is(next) {
            return Ok(Phase::Lead);
        }
        if found && of == Written::Call && rest.starts_with(['{', '[']) && closed == 0 {
            return Ok(Phase::Lead);
        }
        let brackets =
            rest.len() - rest.trim_start_matches(|c| is_space(c) || "}]".contains(c)).len();
        if found && of != Written::Otherwise && rest.starts_with(['}', ']']) {
            let mut beyond = Follows { part: false, rest: &rest[brackets..] };
            let marks = closes.iter().copied().chain([close, next]);
            if marks.filter(|mark| !mark.is_empty()).any(|mark| beyond.is(mark)) {
                // A bracket too many.
                self.take_along(brackets);
                return Ok(Phase::Tail { end: self.at, closed, of });
            }
            follows.part |= beyond.part || beyond.rest.is_empty();
        }
        Err(if follows.part { Step::More } else { Step::Done(end) })
    }

    /// Makes the next `len` bytes part of the calls.
    fn take_along(&mut self, len: usize) {
        self.at += len;
        if let Some((_, last)) = &mut self.found {
            *last = self.at;
        }
    }
}

/// The text behind a call.
struct Follows<'a> {
    rest: &'a str,
    /// Set when more text may complete one of the marks that `rest` was compared with.
    part: bool,
}

impl Follows<'_> {
    fn is(&mut self, mark: &str) -> bool {
        let stands = prefix(self.rest, mark);
        self.part |= stands == Prefix::Part;
        stands == Prefix::Whole
    }
}

impl Opening {
    /// Ends a scan of JSON before the call's end, where only the value's last brackets are missing.
    fn lacking(&self, step: Step, text: &str) -> Step {
        let Step::Bad(at) = step else { return step };
        let closes = match self.kind {
            Kind::Named(names) => names.closes,
            _ => &[],
        };
        let mut follows = Follows { rest: &text[at..], part: false };
        let marks = closes.iter().copied().chain([self.close]);
        match marks.filter(|mark| !mark.is_empty()).any(|mark| follows.is(mark)) {
            true => Step::Done(at),
            false if follows.part => Step::More,
            false => step,
        }
    }
}
