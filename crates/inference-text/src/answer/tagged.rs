//! Families that put reasoning and calls between marks in one run of text.

use std::ops::Range;

use super::call::{Call, Tools};
use super::candidate::Candidate;
use super::draft::Draft;
use super::elements::Ends;
use super::family::Family;
use super::format::{
    Opening, SEPARATED, UNMARKED, answer_marks, begun_reasoning, calls_without_mark, openings,
    reasoning_marks,
};
use super::json_scan::{JsonScan, Step};
use super::marks::{Found, Prefix, after_space, find, is_space, prefix};
use super::output::Output;
use super::piece::Piece;
use crate::reasoning::Begun;

/// How often the end of a call is looked for in vain up to the answer's end. Then the first end
/// counts, so that the time stays linear.
const DOUBTS: usize = 8;

/// Reads one answer.
#[derive(Debug)]
pub struct Tagged {
    family: Family,
    tools: Tools,
    openings: &'static [Opening],
    /// Marks that end content or reasoning: those of `openings`, and the one that closes reasoning
    /// or an answer while it is open.
    marks: Vec<&'static str>,
    /// Text that was pushed; all before `cursor` is done with.
    text: String,
    cursor: usize,
    /// How much of the answer lies before `text`.
    base: usize,
    /// How far from `cursor` on reasoning is known to go on.
    unclosed: usize,
    /// Whitespace before `cursor` that is dropped if a mark follows.
    space: String,
    /// A call is the last thing but whitespace, which is dropped if nothing follows.
    after_call: bool,
    /// How often ends were weighed in vain.
    doubts: usize,
    state: State,
    output: Output,
}

#[derive(Debug)]
enum State {
    /// Nothing but whitespace yet.
    Start {
        reasoning: Reasoning,
    },
    /// Until this mark; `begun` once there is more than whitespace.
    Reasoning {
        close: &'static str,
        begun: bool,
    },
    /// Calls in reasoning. They are thoughts where this mark or anything else follows.
    Draft {
        close: &'static str,
        draft: Draft,
    },
    Content,
    /// Content that begins as an object or an array of JSON. A mark in it is text, up to its end or
    /// to what is no JSON.
    Json(JsonScan),
    AfterCall,
    Call(Candidate),
}

/// The state of reasoning before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reasoning {
    Possible,
    Over,
}

/// The result of a step of the state machine.
enum Progress {
    Made,
    NeedsText,
}

impl Tagged {
    pub fn new(family: Family, prompt_text: &str, tools: Tools) -> Tagged {
        let openings = if tools.is_empty() { &[] } else { openings(family) };
        let mut marks: Vec<_> = openings.iter().map(|opening| opening.mark).collect();
        let state = match begun_reasoning(family, prompt_text) {
            Begun::Open(close) => {
                marks.push(close);
                State::Reasoning { close, begun: false }
            }
            // What nothing constrains may reason again behind reasoning that the prompt closed.
            Begun::Over | Begun::Not => State::Start { reasoning: Reasoning::Possible },
        };
        Tagged {
            family,
            tools,
            openings,
            marks,
            text: String::new(),
            cursor: 0,
            base: 0,
            unclosed: 0,
            space: String::new(),
            after_call: false,
            doubts: 0,
            state,
            output: Output::default(),
        }
    }

    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.text.push_str(text);
        while let Progress::Made = self.advance() {}
        // Once a push, so that what is held back is not moved for each mark in it.
        self.base += self.cursor;
        self.text.drain(..std::mem::take(&mut self.cursor));
        self.output.take()
    }

    /// Returns the ranges of content found since the last call.
    pub fn take_content(&mut self) -> Vec<Range<usize>> {
        self.output.take_content()
    }

    /// How much of the answer it is certain of what it is.
    pub fn certain(&self) -> usize {
        self.base + self.cursor - self.space.len()
    }

    pub fn finish(&mut self) -> Vec<Piece> {
        loop {
            let text = &self.text[self.cursor..];
            match std::mem::replace(&mut self.state, State::Content) {
                State::Call(mut candidate) => {
                    let step = candidate.finish(text, &self.tools);
                    self.settle(candidate, step)
                }
                State::Draft { close, mut draft } => match draft.finish(text, &self.tools) {
                    Ok(calls) => self.call(text.len(), calls),
                    Err(len) => self.think_on(len, close),
                },
                state => {
                    self.state = state;
                    break;
                }
            };
            while let Progress::Made = self.advance() {}
        }
        let rest = self.text.split_off(self.cursor);
        self.text.clear();
        self.base += std::mem::take(&mut self.cursor);
        let space = std::mem::take(&mut self.space);
        let strays = matches!(self.state, State::AfterCall) && stray_brackets(&rest) == rest.len();
        if let State::Reasoning { .. } = self.state {
            self.output.reasoning(&space);
            self.output.reasoning(&rest);
        } else if !(strays || rest.is_empty() && self.after_call) {
            self.output.content(&space, self.base);
            self.base += rest.len();
            self.output.content(&rest, self.base);
        }
        self.state = State::Content;
        self.output.take()
    }

    fn advance(&mut self) -> Progress {
        match std::mem::replace(&mut self.state, State::Content) {
            State::Start { reasoning } => self.start(reasoning),
            State::Reasoning { close, begun } => self.reason(close, begun),
            State::Draft { close, draft } => self.draft(close, draft),
            State::Content => self.content(),
            State::Json(scan) => self.json(scan),
            State::AfterCall => self.after_call(),
            State::Call(mut candidate) => {
                match candidate.scan(&self.text[self.cursor..], &self.tools) {
                    Step::More => self.wait(State::Call(candidate)),
                    step => self.settle(candidate, step),
                }
            }
        }
    }

    fn wait(&mut self, state: State) -> Progress {
        self.state = state;
        Progress::NeedsText
    }

    fn go(&mut self, state: State) -> Progress {
        self.state = state;
        Progress::Made
    }

    /// Moves whitespace at the cursor to `space`; says what follows.
    fn skip_space(&mut self) -> &str {
        let rest = &self.text[self.cursor..];
        let spaces = rest.len() - after_space(rest).len();
        self.space.push_str(&rest[..spaces]);
        self.cursor += spaces;
        &self.text[self.cursor..]
    }

    fn start(&mut self, reasoning: Reasoning) -> Progress {
        let (family, calls) = (self.family, !self.openings.is_empty());
        self.skip_space();
        if reasoning == Reasoning::Over {
            self.space.clear();
        }
        let rest = &self.text[self.cursor..];
        if rest.is_empty() {
            return self.wait(State::Start { reasoning });
        }
        if reasoning == Reasoning::Possible {
            for &(open, close) in reasoning_marks(family) {
                match prefix(rest, open) {
                    Prefix::Whole => {
                        self.cursor += open.len();
                        self.space.clear();
                        self.marks.push(close);
                        return self.go(State::Reasoning { close, begun: false });
                    }
                    Prefix::Part => return self.wait(State::Start { reasoning }),
                    Prefix::No => {}
                }
            }
        }
        if let Some((open, close)) = answer_marks(family)
            && !self.marks.contains(&close)
        {
            match prefix(rest, open) {
                Prefix::Whole => {
                    self.cursor += open.len();
                    self.space.clear();
                    self.marks.push(close);
                    return self.go(State::Start { reasoning: Reasoning::Over });
                }
                Prefix::Part => return self.wait(State::Start { reasoning }),
                Prefix::No => {}
            }
        }
        let as_mark = |kind| self.marks.iter().any(|mark| prefix(rest, mark) == kind);
        match rest.starts_with(['{', '[']) && !as_mark(Prefix::Whole) {
            true if as_mark(Prefix::Part) => self.wait(State::Start { reasoning }),
            true if calls_without_mark(family) && calls => self.begin(UNMARKED),
            true => self.go(State::Json(JsonScan::new(0, None))),
            false => self.go(State::Content),
        }
    }

    fn json(&mut self, mut scan: JsonScan) -> Progress {
        let rest = &self.text[self.cursor..];
        match scan.scan(rest) {
            Step::More => {
                let len = rest.len();
                self.emit(len);
                scan.forget(len);
                self.wait(State::Json(scan))
            }
            Step::Done(len) | Step::Bad(len) => {
                self.emit(len);
                self.go(State::Content)
            }
        }
    }

    fn reason(&mut self, close: &'static str, mut begun: bool) -> Progress {
        if !begun {
            begun = !self.skip_space().is_empty();
            self.space.clear();
        }
        let (end, mark) = self.up_to_mark();
        self.think(end);
        match mark {
            None => self.wait(State::Reasoning { close, begun }),
            Some((_, Some(opening))) => {
                let draft = Draft::new(self.openings, opening);
                self.go(State::Draft { close, draft })
            }
            Some((mark, None)) => {
                self.cursor += mark.len();
                self.unclosed = 0;
                self.space.clear();
                self.marks.retain(|known| *known != mark);
                self.go(State::Start { reasoning: Reasoning::Over })
            }
        }
    }

    /// Holds calls in reasoning back until it is known whether the answer ends with them.
    fn draft(&mut self, close: &'static str, mut draft: Draft) -> Progress {
        let text = &self.text[self.cursor..];
        // What a closing mark follows is a thought, even if the mark were part of a call.
        let (at, closed) = match find(&text[self.unclosed..], &[close]) {
            Found::Mark(at, _) => (at, true),
            Found::Nothing(at) => (at, false),
        };
        self.unclosed += at;
        if closed {
            return self.think_on(self.unclosed, close);
        }
        match draft.scan(text, &self.tools) {
            // What may become the closing mark is looked at again.
            Step::Bad(len) => self.think_on(len.min(self.unclosed), close),
            _ => self.wait(State::Draft { close, draft }),
        }
    }

    /// Makes the next `len` bytes reasoning that goes on.
    fn think_on(&mut self, len: usize, close: &'static str) -> Progress {
        self.think(len);
        self.go(State::Reasoning { close, begun: true })
    }

    /// Makes the next `len` bytes reasoning; whitespace at their end waits for what follows.
    fn think(&mut self, len: usize) {
        let text = &self.text[self.cursor..self.cursor + len];
        let (text, space) = text.split_at(text.trim_end_matches(is_space).len());
        if !text.is_empty() {
            self.output.reasoning(&self.space);
            self.output.reasoning(text);
            self.space.clear();
        }
        self.space.push_str(space);
        self.cursor += len;
        self.unclosed = self.unclosed.saturating_sub(len);
    }

    /// How much precedes the next mark, and the mark with the call that it opens, if it does.
    fn up_to_mark(&self) -> (usize, Option<(&'static str, Option<Opening>)>) {
        match find(&self.text[self.cursor..], &self.marks) {
            Found::Mark(at, mark) => {
                let opening = self.openings.iter().find(|opening| opening.mark == mark);
                (at, Some((mark, opening.copied())))
            }
            Found::Nothing(at) => (at, None),
        }
    }

    fn content(&mut self) -> Progress {
        let (end, mark) = self.up_to_mark();
        self.emit(end);
        match mark {
            Some((_, Some(opening))) => self.begin(opening),
            Some((close, None)) => {
                self.cursor += close.len();
                self.space.clear();
                self.marks.retain(|mark| *mark != close);
                // Like a call, it may be followed by whitespace that means nothing.
                self.after_call = true;
                self.go(State::Start { reasoning: Reasoning::Over })
            }
            None => self.wait(State::Content),
        }
    }

    /// Makes the next `len` bytes content; whitespace at their end waits for what follows.
    fn emit(&mut self, len: usize) {
        let text = &self.text[self.cursor..self.cursor + len];
        let kept = match self.marks.is_empty() {
            true => text.len(),
            false => text.trim_end_matches(is_space).len(),
        };
        if kept > 0 {
            let at = self.base + self.cursor;
            self.output.content(&self.space, at);
            self.output.content(&text[..kept], at + kept);
            self.space.clear();
            self.after_call = false;
        }
        self.space.push_str(&text[kept..]);
        self.cursor += len;
    }

    /// Reads the text behind calls that no mark ends: brackets too many, and further calls, which
    /// Llama separates by `;` or whitespace alone.
    fn after_call(&mut self) -> Progress {
        let calls = match self.family {
            Family::Llama3 | Family::Mistral => true,
            family if calls_without_mark(family) => false,
            _ => return self.go(State::Content),
        };
        self.skip_space();
        let rest = &self.text[self.cursor..];
        let strays = stray_brackets(rest);
        let beyond = &rest[strays..];
        let is_mark = |kind| self.marks.iter().any(|mark| prefix(beyond, mark) == kind);
        match beyond.bytes().next() {
            None => self.wait(State::AfterCall),
            Some(_) if is_mark(Prefix::Whole) => {
                self.pass_over(strays);
                self.go(State::Content)
            }
            Some(_) if strays > 0 && is_mark(Prefix::Part) => self.wait(State::AfterCall),
            Some(b';' | b'{') if !calls => self.go(State::Content),
            Some(next @ (b';' | b'{')) => {
                self.pass_over(strays);
                self.begin(if next == b';' { SEPARATED } else { UNMARKED })
            }
            Some(_) => self.go(State::Content),
        }
    }

    /// Leaves the next `len` bytes out, with the whitespace before them.
    fn pass_over(&mut self, len: usize) {
        if len > 0 {
            self.space.clear();
            self.cursor += len;
        }
    }

    /// A possible call.
    fn begin(&mut self, opening: Opening) -> Progress {
        let ends = if self.doubts < DOUBTS { Ends::Weighed } else { Ends::First };
        self.go(State::Call(Candidate::new(opening, ends)))
    }

    /// A candidate's end: its calls, or its text.
    fn settle(&mut self, candidate: Candidate, step: Step) -> Progress {
        let opening = candidate.opening();
        self.doubts += usize::from(candidate.weighed_in_vain());
        let (len, calls) = match step {
            Step::Done(len) => (len, candidate.calls()),
            // What was no call may be JSON all the same.
            _ if opening == UNMARKED => return self.go(State::Json(JsonScan::new(0, None))),
            Step::Bad(len) => (len, None),
            Step::More => (0, None),
        };
        match calls {
            Some(calls) => self.call(len, calls),
            None => {
                self.emit(len);
                self.go(State::Content)
            }
        }
    }

    /// Makes the next `len` bytes calls.
    fn call(&mut self, len: usize, calls: Vec<Call>) -> Progress {
        self.space.clear();
        self.cursor += len;
        self.after_call = true;
        for call in calls {
            self.output.call(call);
        }
        self.go(State::AfterCall)
    }
}

/// The length of the closing brackets that `text` begins with, and of the whitespace behind them.
fn stray_brackets(text: &str) -> usize {
    match text.starts_with(['}', ']']) {
        true => text.len() - text.trim_start_matches(|c| is_space(c) || "}]".contains(c)).len(),
        false => 0,
    }
}
