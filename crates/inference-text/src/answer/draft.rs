//! Calls within reasoning: thoughts, unless the answer ends with them.

use super::call::{Call, Tools};
use super::candidate::Candidate;
use super::elements::Ends;
use super::format::Opening;
use super::json_scan::Step;
use super::marks::{Prefix, after_space, prefix};

/// Calls with nothing but whitespace between them, whose text begins with the first one's mark.
#[derive(Debug)]
pub struct Draft {
    openings: &'static [Opening],
    /// The calls that end before `at`.
    calls: Vec<Call>,
    at: usize,
    /// The one that begins at `at`.
    candidate: Option<Candidate>,
}

impl Draft {
    /// A draft that begins with `opening`, one of `openings`.
    pub fn new(openings: &'static [Opening], opening: Opening) -> Draft {
        let candidate = Some(Candidate::new(opening, Ends::First));
        Draft { openings, calls: Vec::new(), at: 0, candidate }
    }

    /// Goes on in `text`, which begins as it did the last time. There is no end to it but what is
    /// no call.
    pub fn scan(&mut self, text: &str, tools: &Tools) -> Step {
        loop {
            let step = match &mut self.candidate {
                Some(candidate) => match candidate.scan(&text[self.at..], tools) {
                    Step::More => return Step::More,
                    step => self.settle(step),
                },
                None => self.next(text),
            };
            if let Err(step) = step {
                return step;
            }
        }
    }

    /// The calls that `text` consists of, now that nothing follows it; otherwise how much of it is
    /// thoughts.
    pub fn finish(&mut self, text: &str, tools: &Tools) -> Result<Vec<Call>, usize> {
        loop {
            if let Step::Bad(len) = self.scan(text, tools) {
                return Err(len);
            }
            let Some(candidate) = &mut self.candidate else { break };
            let step = candidate.finish(&text[self.at..], tools);
            if let Err(Step::Bad(len)) = self.settle(step) {
                return Err(len);
            }
        }
        match self.at == text.len() {
            true => Ok(std::mem::take(&mut self.calls)),
            false => Err(text.len()),
        }
    }

    /// A candidate's end: its calls, or the end of them all.
    fn settle(&mut self, step: Step) -> Result<(), Step> {
        let (len, calls) = match (step, self.candidate.take()) {
            (Step::Done(len), Some(candidate)) => (len, candidate.calls()),
            (Step::Bad(len), _) => (len, None),
            _ => (0, None),
        };
        self.at += len;
        self.calls.extend(calls.ok_or(Step::Bad(self.at))?);
        Ok(())
    }

    /// Sees whether a further call follows.
    fn next(&mut self, text: &str) -> Result<(), Step> {
        let rest = after_space(&text[self.at..]);
        self.at = text.len() - rest.len();
        let mut step = Step::Bad(self.at);
        for opening in self.openings {
            match prefix(rest, opening.mark) {
                Prefix::Whole => {
                    self.candidate = Some(Candidate::new(*opening, Ends::First));
                    return Ok(());
                }
                Prefix::Part => step = Step::More,
                Prefix::No => {}
            }
        }
        Err(step)
    }
}
