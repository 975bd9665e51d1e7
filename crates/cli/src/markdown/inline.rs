//! Emphasis and code within a line.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

const RESET: &str = "\x1b[0m";

/// Characters that emphasis and code begin and end with.
pub const MARKS: [char; 4] = ['*', '_', '`', '~'];

/// A word as it is printed.
#[derive(Debug, PartialEq, Eq)]
pub struct Word {
    /// The text, with escape sequences that hold for it alone.
    pub text: String,
    /// Columns that it takes.
    pub width: usize,
}

/// The emphasis at one place of a text.
#[derive(Clone, Debug, Default)]
pub struct Inline {
    is_styled: bool,
    is_heading: bool,
    is_bold: bool,
    is_italic: bool,
    is_struck: bool,
    /// Backticks that end the code, inside of some.
    code: usize,
    /// The last character, where no white space stands behind it.
    last: Option<char>,
}

/// Returns true for a character beside which a line may break, such as those of Chinese.
pub fn stands_alone(c: char) -> bool {
    let is_cjk = matches!(c, '\u{2e80}'..='\u{d7af}' | '\u{f900}'..='\u{faff}'
        | '\u{ff00}'..='\u{ffef}' | '\u{20000}'..='\u{3ffff}');
    is_cjk && c.width() == Some(2)
}

impl Inline {
    /// No emphasis. Where nothing `is_styled`, marks stay as they are.
    pub fn new(is_styled: bool) -> Inline {
        Inline { is_styled, ..Inline::default() }
    }

    /// Ends all emphasis: another block begins.
    pub fn reset(&mut self) {
        *self = Inline::new(self.is_styled);
    }

    /// Begins a heading, which the line's end ends.
    pub fn begin_heading(&mut self) {
        self.reset();
        self.is_heading = true;
    }

    /// White space stands here.
    pub fn space(&mut self) {
        self.last = None;
    }

    /// Ends a line.
    pub fn end_line(&mut self) {
        self.last = None;
        if self.is_heading {
            self.reset();
        }
    }

    /// Returns a word as it is printed. White space stands behind it, or a character that stands
    /// alone.
    pub fn word(&mut self, word: &str) -> Word {
        if !self.is_styled {
            return Word { text: word.to_owned(), width: word.width() };
        }
        let chars: Vec<char> = word.chars().collect();
        let (mut text, mut run) = (String::new(), String::new());
        let mut at = 0;
        while at < chars.len() {
            let before = self.clone();
            let (count, shown) = self.step(&chars, at);
            match shown {
                Some(c) => run.push(c),
                None => before.push_run(&mut run, &mut text),
            }
            at += count;
        }
        self.push_run(&mut run, &mut text);
        self.last = chars.last().copied();
        let width = visible(&text);
        Word { text, width }
    }

    /// Reads what stands at `at`: how many characters, and the one to print; `None` for a mark.
    fn step(&mut self, chars: &[char], at: usize) -> (usize, Option<char>) {
        let c = chars[at];
        let count = chars[at..].iter().take_while(|other| **other == c).count();
        if self.code > 0 {
            return match c == '`' && count == self.code {
                true => {
                    self.code = 0;
                    (count, None)
                }
                false => (1, Some(c)),
            };
        }
        let before = at.checked_sub(1).map(|at| chars[at]).or(self.last);
        let behind = chars.get(at + count).copied();
        match c {
            '\\' if chars.get(at + 1).is_some_and(|next| "*_`~#|".contains(*next)) => {
                (2, Some(chars[at + 1]))
            }
            '`' => {
                self.code = count;
                (count, None)
            }
            '*' | '_' if count <= 3 && self.toggles((c, count), before, behind) => (count, None),
            '~' if count == 2 && (self.is_struck || behind.is_some()) => {
                self.is_struck = !self.is_struck;
                (2, None)
            }
            _ => (1, Some(c)),
        }
    }

    /// Begins or ends emphasis by so many marks; false where they are text.
    fn toggles(
        &mut self,
        (mark, count): (char, usize),
        before: Option<char>,
        behind: Option<char>,
    ) -> bool {
        let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        // `snake_case` and `2*3*4` have no marks.
        if is_word(before) && is_word(behind) && (mark == '_' || count == 1) {
            return false;
        }
        let (bold, italic) = (count >= 2, count != 2);
        let is_on = (!bold || self.is_bold) && (!italic || self.is_italic);
        let opens = behind.is_some() && !is_on;
        let closes = before.is_some() && is_on;
        if !opens && !closes {
            return false;
        }
        if bold {
            self.is_bold = opens;
        }
        if italic {
            self.is_italic = opens;
        }
        true
    }

    /// Prints `run` in the present style.
    fn push_run(&self, run: &mut String, text: &mut String) {
        if run.is_empty() {
            return;
        }
        let mut codes: Vec<&str> = Vec::new();
        if self.code > 0 {
            codes.push("36");
        }
        if self.is_bold || self.is_heading {
            codes.push("1");
        }
        if self.is_italic {
            codes.push("3");
        }
        if self.is_struck {
            codes.push("9");
        }
        match codes.is_empty() {
            true => text.push_str(run),
            false => {
                text.push_str(&format!("\x1b[{}m{run}{RESET}", codes.join(";")));
            }
        }
        run.clear();
    }
}

/// Returns the columns that `text` takes without its escape sequences.
fn visible(text: &str) -> usize {
    let mut plain = String::with_capacity(text.len());
    let mut parts = text.split('\x1b');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        plain.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    plain.width()
}
