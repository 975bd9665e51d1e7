//! Families that put reasoning and calls between marks in one run of text.

use super::call::Tools;
use super::candidate::Candidate;
use super::family::Family;
use super::format::{
    Opening, SEPARATED, UNMARKED, answer_marks, begun_reasoning, calls_without_mark, openings,
    reasoning_marks,
};
use super::json_scan::Step;
use super::marks::{Found, Prefix, after_space, find, is_space, prefix};
use super::output::Output;
use super::piece::Piece;
use crate::reasoning::Begun;

/// Reads one answer.
#[derive(Debug)]
pub struct Tagged {
    family: Family,
    tools: Tools,
    openings: &'static [Opening],
    /// What ends content: the marks of `openings`, and the one that closes an answer while it is open.
    marks: Vec<&'static str>,
    /// What was pushed; what lies before `cursor` is done with.
    text: String,
    cursor: usize,
    /// Whitespace before `cursor` that is dropped if a mark follows.
    space: String,
    /// Whether a call is the last thing but whitespace, which is dropped if nothing follows.
    after_call: bool,
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
    Content,
    AfterCall,
    Call(Candidate),
}

/// Whether reasoning may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reasoning {
    Possible,
    Over,
}

/// Whether the state machine got on.
enum Progress {
    Made,
    NeedsText,
}

impl Tagged {
    pub fn new(family: Family, prompt_text: &str, tools: Tools) -> Tagged {
        let openings = if tools.is_empty() { &[] } else { openings(family) };
        let state = match begun_reasoning(family, prompt_text) {
            Begun::Open(close) => State::Reasoning { close, begun: false },
            // What nothing constrains may reason again behind reasoning that the prompt closed.
            Begun::Over | Begun::Not => State::Start { reasoning: Reasoning::Possible },
        };
        Tagged {
            family,
            tools,
            openings,
            marks: openings.iter().map(|opening| opening.mark).collect(),
            text: String::new(),
            cursor: 0,
            space: String::new(),
            after_call: false,
            state,
            output: Output::default(),
        }
    }

    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.text.push_str(text);
        while let Progress::Made = self.advance() {}
        // Once a push, so that what is held back is not moved for each mark in it.
        self.text.drain(..std::mem::take(&mut self.cursor));
        self.output.take()
    }

    pub fn finish(&mut self) -> Vec<Piece> {
        while let State::Call(candidate) = &mut self.state {
            let step = candidate.finish(&self.text[self.cursor..], &self.tools);
            if let State::Call(candidate) = std::mem::replace(&mut self.state, State::Content) {
                self.settle(candidate, step);
            }
            while let Progress::Made = self.advance() {}
        }
        let rest = self.text.split_off(self.cursor);
        self.text.clear();
        self.cursor = 0;
        let space = std::mem::take(&mut self.space);
        if let State::Reasoning { .. } = self.state {
            self.output.reasoning(&space);
            self.output.reasoning(&rest);
        } else if !rest.is_empty() || !self.after_call {
            self.output.content(&space);
            self.output.content(&rest);
        }
        self.state = State::Content;
        self.output.take()
    }

    fn advance(&mut self) -> Progress {
        match std::mem::replace(&mut self.state, State::Content) {
            State::Start { reasoning } => self.start(reasoning),
            State::Reasoning { close, begun } => self.reason(close, begun),
            State::Content => self.content(),
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
        let whole = calls_without_mark(family) && rest.starts_with(['{', '[']);
        match whole && calls {
            true => self.go(State::Call(Candidate::new(UNMARKED))),
            false => self.go(State::Content),
        }
    }

    fn reason(&mut self, close: &'static str, mut begun: bool) -> Progress {
        if !begun {
            begun = !self.skip_space().is_empty();
            self.space.clear();
        }
        let rest = &self.text[self.cursor..];
        let (end, closed) = match find(rest, &[close]) {
            Found::Mark(at, _) => (at, true),
            Found::Nothing(at) => (at, false),
        };
        let (text, space) = rest[..end].split_at(rest[..end].trim_end_matches(is_space).len());
        if !text.is_empty() {
            self.output.reasoning(&self.space);
            self.output.reasoning(text);
            self.space.clear();
        }
        self.space.push_str(space);
        self.cursor += end;
        if !closed {
            return self.wait(State::Reasoning { close, begun });
        }
        self.cursor += close.len();
        self.space.clear();
        self.go(State::Start { reasoning: Reasoning::Over })
    }

    fn content(&mut self) -> Progress {
        let (end, mark) = match find(&self.text[self.cursor..], &self.marks) {
            Found::Mark(at, mark) => (at, Some(mark)),
            Found::Nothing(at) => (at, None),
        };
        self.emit(end);
        let opening = self.openings.iter().find(|opening| Some(opening.mark) == mark);
        match (opening, mark) {
            (Some(opening), _) => self.go(State::Call(Candidate::new(*opening))),
            (None, Some(close)) => {
                self.cursor += close.len();
                self.space.clear();
                self.marks.retain(|mark| *mark != close);
                // Like a call, it may be followed by whitespace that means nothing.
                self.after_call = true;
                self.go(State::Start { reasoning: Reasoning::Over })
            }
            (None, None) => self.wait(State::Content),
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
            self.output.content(&self.space);
            self.output.content(&text[..kept]);
            self.space.clear();
            self.after_call = false;
        }
        self.space.push_str(&text[kept..]);
        self.cursor += len;
    }

    /// Llama separates calls by `;` or whitespace alone.
    fn after_call(&mut self) -> Progress {
        if self.family != Family::Llama3 {
            return self.go(State::Content);
        }
        let rest = self.skip_space();
        match rest.bytes().next() {
            None => self.wait(State::AfterCall),
            Some(b';') => self.go(State::Call(Candidate::new(SEPARATED))),
            Some(b'{') => self.go(State::Call(Candidate::new(UNMARKED))),
            Some(_) => self.go(State::Content),
        }
    }

    /// A candidate's end: its calls, or its text.
    fn settle(&mut self, candidate: Candidate, step: Step) -> Progress {
        let (len, calls) = match step {
            Step::Done(len) => (len, candidate.calls()),
            Step::Bad(len) => (len, None),
            Step::More => (0, None),
        };
        match calls {
            Some(calls) => {
                self.space.clear();
                self.cursor += len;
                self.after_call = true;
                for call in calls {
                    self.output.call(call);
                }
                self.go(State::AfterCall)
            }
            None => {
                self.emit(len);
                self.go(State::Content)
            }
        }
    }
}
