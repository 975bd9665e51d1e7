//! Markdown at a terminal, as it streams: what was printed is never drawn again.
//!
//! Text comes out a word at a time, wrapped at the borders of words. Tables come out once they are
//! complete, since their columns depend on all of their rows.

mod inline;
mod lines;
mod table;

use self::inline::{Inline, Word};
use self::lines::{Head, Line, Opening};
use crate::output::harmless;

/// Makes less prominent what is not the model's own text.
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// An answer as it is rendered.
pub struct Markdown {
    /// The terminal shows escape sequences.
    is_styled: bool,
    /// Columns of the terminal.
    width: usize,
    /// The beginning of a line, until it is known what the line is.
    head: Head,
    /// The line that is being printed.
    line: Line,
    inline: Inline,
    /// The beginning of a word.
    word: String,
    /// The fence that closes the block of code, inside of one.
    fence: Option<String>,
    /// Lines of a table.
    table: Vec<String>,
}

impl Markdown {
    /// An empty answer. Without `is_styled` no escape sequence is written, and marks of emphasis
    /// stay.
    pub fn new(is_styled: bool) -> Markdown {
        Markdown {
            is_styled,
            width: usize::MAX,
            head: Head::default(),
            line: Line::default(),
            inline: Inline::new(is_styled),
            word: String::new(),
            fence: None,
            table: Vec::new(),
        }
    }

    /// Returns what `text` adds to a terminal of `width` columns.
    pub fn push(&mut self, text: &str, width: Option<usize>) -> String {
        self.width = width.filter(|width| *width > 0).unwrap_or(usize::MAX);
        let mut out = String::new();
        for c in harmless(text).chars() {
            self.add(c, &mut out);
        }
        out
    }

    /// Returns what was held back; the next text begins a line of its own.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        if !self.head.is_decided() && !self.head.text().is_empty() {
            let head = self.head.decide();
            self.end_undecided(&head, &mut out);
        }
        self.end_table(&mut out);
        self.end_word(&mut out);
        // Lines of a table end themselves, and so does the caller.
        if out.ends_with('\n') {
            out.pop();
        }
        *self = Markdown::new(self.is_styled);
        out
    }

    fn add(&mut self, c: char, out: &mut String) {
        if c == '\n' {
            return self.end_line(out);
        }
        if self.head.is_decided() {
            return self.add_to_line(c, out);
        }
        self.head.push(c);
        let opening = match &self.fence {
            Some(fence) if lines::may_close(self.head.text(), fence) => None,
            Some(_) => Some(Opening::Verbatim),
            None => Opening::decide(self.head.text(), false),
        };
        if opening.is_some() {
            self.open(opening, out);
        }
    }

    /// Begins the line whose head was read.
    fn open(&mut self, opening: Option<Opening>, out: &mut String) {
        let head = self.head.decide();
        let opening = opening.unwrap_or(Opening::Text { indent: 0, marker: String::new() });
        if !matches!(opening, Opening::Row) {
            self.end_table(out);
        }
        match opening {
            Opening::Row => {
                self.line = Line::row();
                self.word = head.trim_start().to_owned();
            }
            Opening::Verbatim => {
                self.line = Line::verbatim();
                out.push_str(&head);
            }
            Opening::Text { indent, marker } => {
                let quoted = marker == lines::QUOTE;
                let taken = if marker.is_empty() { indent } else { lines::taken(&head) };
                if !marker.is_empty() {
                    self.inline.reset();
                }
                self.line = Line::begin(indent, &marker, quoted);
                out.push_str(&" ".repeat(indent));
                out.push_str(&if quoted { self.dim(&marker) } else { marker });
                for c in head.chars().skip(taken) {
                    self.add_to_line(c, out);
                }
            }
            Opening::Heading => {
                self.inline.begin_heading();
                self.line = Line::default();
                let text = if self.is_styled { head.trim_start_matches(['#', ' ']) } else { &head };
                let text = text.to_owned();
                text.chars().for_each(|c| self.add_to_line(c, out));
            }
        }
    }

    fn add_to_line(&mut self, c: char, out: &mut String) {
        if self.line.is_verbatim() {
            out.push(c);
        } else if self.line.is_row() {
            self.word.push(c);
        } else if c.is_whitespace() && c != '\u{a0}' {
            self.end_word(out);
            self.inline.space();
            self.line.space(c);
        } else if inline::stands_alone(c) {
            // Marks in front of it belong to it.
            if !self.word.ends_with(inline::MARKS) {
                self.end_word(out);
            }
            self.word.push(c);
            self.end_word(out);
        } else {
            self.word.push(c);
        }
    }

    fn end_word(&mut self, out: &mut String) {
        if self.word.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word);
        let Word { text, width } = self.inline.word(&word);
        let edge = self.dim(lines::QUOTE);
        self.line.word(&text, width, (self.width, &edge), out);
    }

    fn end_line(&mut self, out: &mut String) {
        if !self.head.is_decided() {
            let head = self.head.decide();
            return self.end_undecided(&head, out);
        }
        if self.line.is_row() {
            self.table.push(std::mem::take(&mut self.word));
        } else {
            self.end_word(out);
            self.inline.end_line();
            out.push('\n');
        }
        self.line = Line::default();
        self.head = Head::default();
    }

    /// Ends a line that is all head: an empty one, a fence, a rule.
    fn end_undecided(&mut self, head: &str, out: &mut String) {
        self.head = Head::default();
        match &self.fence {
            Some(fence) if lines::closes(head, fence) => {
                out.push_str(&self.dim(head));
                self.fence = None;
            }
            Some(_) => out.push_str(head),
            None => {
                self.end_table(out);
                if let Some(fence) = lines::fence(head) {
                    self.inline.reset();
                    self.fence = Some(fence);
                    out.push_str(&self.dim(head));
                } else if lines::is_rule(head) {
                    let width = self.width.min(lines::LONGEST_RULE);
                    out.push_str(&self.dim(&"─".repeat(width)));
                } else if head.trim().is_empty() {
                    self.inline.reset();
                } else {
                    self.head = Head::of(head);
                    self.open(Opening::decide(head, true), out);
                    return self.end_line(out);
                }
            }
        }
        out.push('\n');
    }

    fn end_table(&mut self, out: &mut String) {
        if self.line.is_row() {
            self.table.push(std::mem::take(&mut self.word));
        }
        let rows = std::mem::take(&mut self.table);
        if !rows.is_empty() {
            out.push_str(&table::laid_out(&rows, self.width, self.is_styled));
        }
    }

    fn dim(&self, text: &str) -> String {
        if self.is_styled { format!("{DIM}{text}{RESET}") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests;
