//! Lines of Markdown: what they begin with, and where they break.

/// The mark in front of each line of a quotation.
pub const QUOTE: &str = "│ ";

/// Columns of a rule, at most.
pub const LONGEST_RULE: usize = 60;

/// The beginning of a line.
#[derive(Default)]
pub struct Head {
    text: String,
    is_decided: bool,
}

impl Head {
    /// A head that is known.
    pub fn of(text: &str) -> Head {
        Head { text: text.to_owned(), is_decided: false }
    }

    /// Adds a character.
    pub fn push(&mut self, c: char) {
        self.text.push(c);
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true when it is known what the line is.
    pub fn is_decided(&self) -> bool {
        self.is_decided
    }

    /// Ends the head, which is returned.
    pub fn decide(&mut self) -> String {
        self.is_decided = true;
        std::mem::take(&mut self.text)
    }
}

/// The kind of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Text behind so many spaces and a marker, such as that of a list's item.
    Text {
        /// Spaces in front.
        indent: usize,
        /// The marker as it is shown; empty: none.
        marker: String,
    },
    /// A heading.
    Heading,
    /// A row of a table.
    Row,
    /// Code, which is printed as it is.
    Verbatim,
}

impl Opening {
    /// Returns the kind of the line that begins with `head`; `None` while that is open, which it is
    /// not once the line `is_whole`.
    pub fn decide(head: &str, is_whole: bool) -> Option<Opening> {
        let text = head.trim_start_matches(' ');
        let indent = head.len() - text.len();
        let plain = || Some(Opening::Text { indent, marker: String::new() });
        let mut chars = text.chars();
        let Some(first) = chars.next() else { return if is_whole { plain() } else { None } };
        let rest = chars.as_str();
        let open = || if is_whole { plain() } else { None };
        let item = |marker: &str| Some(Opening::Text { indent, marker: marker.to_owned() });
        match first {
            '|' => Some(Opening::Row),
            '#' => match text.trim_start_matches('#') {
                "" => open(),
                behind if behind.starts_with(' ') && text.len() - behind.len() <= 6 => {
                    Some(Opening::Heading)
                }
                _ => plain(),
            },
            '>' => match rest {
                "" if !is_whole => None,
                _ => item(QUOTE),
            },
            // A fence or a rule is known at the end of its line.
            '`' | '~' if text.chars().take(3).all(|c| c == first) => open(),
            '-' | '*' | '+' if rest.starts_with(' ') && !is_rule_so_far(text) => item("• "),
            '-' | '*' | '_' | '+' if is_rule_so_far(text) => open(),
            '0'..='9' => match text.trim_start_matches(|c: char| c.is_ascii_digit()) {
                "" if text.len() < 10 => open(),
                "." | ")" => open(),
                behind if behind.starts_with(". ") || behind.starts_with(") ") => {
                    item(&text[..text.len() - behind.len() + 2])
                }
                _ => plain(),
            },
            _ => plain(),
        }
    }
}

/// Returns how many characters of `head` the spaces in front and the marker take.
pub fn taken(head: &str) -> usize {
    let text = head.trim_start_matches(' ');
    let indent = head.len() - text.len();
    if let Some(quoted) = text.strip_prefix('>') {
        return indent + 1 + usize::from(quoted.starts_with(' '));
    }
    indent + text.find(' ').map_or(text.len(), |space| space + 1)
}

fn is_rule_so_far(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return false };
    "-*_+".contains(first) && text.chars().all(|c| c == first || c == ' ')
}

/// Returns true for a line that separates what stands before and behind it.
pub fn is_rule(line: &str) -> bool {
    let text = line.trim();
    let marks = text.chars().filter(|c| *c != ' ').count();
    marks >= 3 && is_rule_so_far(text) && !text.starts_with('+')
}

/// The fence that a line begins a block of code with.
pub fn fence(line: &str) -> Option<String> {
    let text = line.trim_start();
    let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let fence: String = text.chars().take_while(|c| *c == mark).collect();
    let is_one = fence.len() >= 3 && !text[fence.len()..].contains('`');
    is_one.then_some(fence)
}

/// Returns true while the line that begins with `head` may close the block of `fence`.
pub fn may_close(head: &str, fence: &str) -> bool {
    let text = head.trim_start();
    let mark = fence.chars().next().unwrap_or('`');
    let marks = text.len() - text.trim_start_matches(mark).len();
    text[marks..].trim().is_empty() && (text[marks..].is_empty() || marks >= fence.len())
}

/// Returns true when `line` closes the block of `fence`.
pub fn closes(line: &str, fence: &str) -> bool {
    line.trim().len() >= fence.len() && may_close(line, fence)
}

/// A line as it is printed.
#[derive(Default)]
pub struct Line {
    /// Columns that are taken.
    column: usize,
    /// Spaces to print before the next word.
    spaces: String,
    /// Columns in front of what is wrapped.
    hang: usize,
    is_quoted: bool,
    is_verbatim: bool,
    is_row: bool,
    has_words: bool,
}

impl Line {
    /// A line of code.
    pub fn verbatim() -> Line {
        Line { is_verbatim: true, ..Line::default() }
    }

    /// A row of a table.
    pub fn row() -> Line {
        Line { is_row: true, ..Line::default() }
    }

    /// A line with so many spaces and a marker in front, which were printed.
    pub fn begin(indent: usize, marker: &str, is_quoted: bool) -> Line {
        let column = indent + marker.chars().count();
        Line { column, hang: column, is_quoted, ..Line::default() }
    }

    /// Returns true for a line of code.
    pub fn is_verbatim(&self) -> bool {
        self.is_verbatim
    }

    /// Returns true for a row of a table.
    pub fn is_row(&self) -> bool {
        self.is_row
    }

    /// Adds white space, which is printed with the next word on the same line.
    pub fn space(&mut self, c: char) {
        match c {
            '\t' => self.spaces.push_str(&" ".repeat(8 - (self.column + self.spaces.len()) % 8)),
            _ => self.spaces.push(' '),
        }
    }

    /// Prints a word of so many columns, on the next line where this one has no room; `edge` stands
    /// in front of each line of a quotation.
    pub fn word(
        &mut self,
        text: &str,
        columns: usize,
        (width, edge): (usize, &str),
        out: &mut String,
    ) {
        let fits = self.column + self.spaces.len() + columns <= width;
        // Where the margin leaves hardly any room, there is none.
        let hang = if self.hang * 2 < width { self.hang } else { 0 };
        if fits || !self.has_words || self.column <= hang {
            out.push_str(&self.spaces);
            self.column += self.spaces.len();
        } else {
            out.push('\n');
            match self.is_quoted {
                true => out.push_str(edge),
                false => out.push_str(&" ".repeat(hang)),
            }
            self.column = if self.is_quoted { self.hang } else { hang };
        }
        self.spaces.clear();
        self.has_words = true;
        out.push_str(text);
        self.column += columns;
        // The terminal breaks what is longer than a line.
        if self.column > width {
            self.column %= width;
        }
    }
}
