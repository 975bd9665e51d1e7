//! Reasoning before a constrained text: free between its marks, then the constraint holds.

use std::sync::Arc;

use inference_core::{Error, ReasoningMarks, Result};

use crate::reasoning::Begun;
use crate::{AddSpecial, SkipSpecial, Tokenizer};

/// Tokens of line breaks that may stand between the reasoning and the text.
const MAX_LINE_BREAKS: usize = 2;

/// How far one sequence has come in its reasoning.
#[derive(Clone, Debug)]
pub(super) struct Reasoning {
    marks: Arc<Marks>,
    phase: Phase,
    /// The last ids, at most as many as the closing mark has.
    last: Vec<u32>,
}

#[derive(Debug)]
struct Marks {
    open: Vec<u32>,
    close: Vec<u32>,
    line_breaks: Arc<[u32]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// So many ids of the opening mark have come.
    Opening(usize),
    /// The closing mark has not come yet.
    Inside,
    /// So many more tokens of line breaks may come.
    Closed(usize),
}

/// The ids that may come next.
#[derive(Debug, PartialEq)]
pub(super) enum Next<'a> {
    /// The text, or one of these ids.
    Text { or: &'a [u32] },
    /// This id.
    Only(u32),
    /// Anything but an end.
    Any,
}

impl Reasoning {
    /// The state behind `prompt`; `None` where the text begins at once.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a mark that does not begin with an added token.
    pub fn new(
        marks: &ReasoningMarks,
        tokenizer: &Tokenizer,
        line_breaks: Arc<[u32]>,
        prompt: &[u32],
    ) -> Result<Option<Reasoning>> {
        let open = mark_ids(&marks.open, "reasoning", tokenizer)?;
        let close = mark_ids(&marks.close, "reasoning", tokenizer)?;
        let phase = match begun(marks, tokenizer, prompt) {
            Begun::Open(_) => Phase::Inside,
            Begun::Over => return Ok(None),
            Begun::Not => Phase::Opening(0),
        };
        let marks = Arc::new(Marks { open, close, line_breaks });
        Ok(Some(Reasoning { marks, phase, last: Vec::new() }))
    }

    /// Returns the ids that may come next.
    pub(super) fn next(&self) -> Next<'_> {
        match self.phase {
            Phase::Opening(0) => Next::Text { or: &self.marks.open[..1] },
            Phase::Opening(at) => Next::Only(self.marks.open[at]),
            Phase::Inside => Next::Any,
            Phase::Closed(0) => Next::Text { or: &[] },
            Phase::Closed(_) => Next::Text { or: &self.marks.line_breaks },
        }
    }

    /// Takes note of an id. False where the text begins with it, which `is_text` allows.
    pub fn takes(&mut self, id: u32, is_text: bool) -> bool {
        // The closing mark may begin with what the opening one ends with.
        self.last.push(id);
        if self.last.len() > self.marks.close.len() {
            self.last.remove(0);
        }
        self.phase = match self.phase {
            Phase::Opening(0) if id != self.marks.open[0] => return false,
            Phase::Opening(at) if at + 1 == self.marks.open.len() => Phase::Inside,
            Phase::Opening(at) => Phase::Opening(at + 1),
            Phase::Inside if self.last == self.marks.close => Phase::Closed(MAX_LINE_BREAKS),
            Phase::Inside => Phase::Inside,
            Phase::Closed(left) => {
                if is_text || left == 0 || !self.marks.line_breaks.contains(&id) {
                    return false;
                }
                Phase::Closed(left - 1)
            }
        };
        true
    }
}

/// The reasoning of an answer to `prompt`, where its text begins.
pub(super) fn begun<'a>(
    marks: &'a ReasoningMarks,
    tokenizer: &Tokenizer,
    prompt: &[u32],
) -> Begun<'a> {
    let pair = (marks.open.as_str(), marks.close.as_str());
    Begun::of(&end(prompt, pair, tokenizer), std::iter::once(pair))
}

/// The text of the end of a prompt, enough of it to have one of the marks and the whitespace behind
/// it.
fn end(prompt: &[u32], (open, close): (&str, &str), tokenizer: &Tokenizer) -> String {
    let text = |ids: &[u32]| tokenizer.decode(ids, SkipSpecial::No).unwrap_or_default();
    let is_blank = |id: &&u32| {
        let text = text(&[**id]);
        !text.is_empty() && text.trim().is_empty()
    };
    let blank = prompt.iter().rev().take_while(is_blank).count();
    // Each id is at least a byte of the text.
    let count = blank + open.len().max(close.len());
    text(&prompt[prompt.len().saturating_sub(count)..])
}

/// The ids of a mark of the option `option`.
///
/// # Errors
/// [`Error::InvalidOption`] where it does not begin with an added token.
pub(super) fn mark_ids(
    mark: &str,
    option: &'static str,
    tokenizer: &Tokenizer,
) -> Result<Vec<u32>> {
    let invalid = |reason| Error::InvalidOption { option, reason };
    let ids = tokenizer.encode(mark, AddSpecial::Never);
    let ids = ids.map_err(|error| invalid(format!("`{mark}`: {error}")))?;
    if ids.first().is_some_and(|id| tokenizer.is_added(*id)) {
        return Ok(ids);
    }
    Err(invalid(format!("`{mark}` does not begin with an added token of this model")))
}
