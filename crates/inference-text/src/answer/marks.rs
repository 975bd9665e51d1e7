//! Finding marks in text that has not ended.

/// The result of a search for marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// The first mark, at this byte.
    Mark(usize, &'a str),
    /// No mark; what begins at this byte may become one. It is the text's length where nothing may.
    Nothing(usize),
}

/// Finds the first of `marks`, none of which is empty or begins with another, in one pass.
pub fn find<'a>(text: &str, marks: &[&'a str]) -> Found<'a> {
    let bytes = text.as_bytes();
    let longest = marks.iter().map(|mark| mark.len()).max().unwrap_or(0);
    for at in 0..bytes.len() {
        let rest = &bytes[at..];
        if let Some(mark) = marks.iter().find(|mark| rest.starts_with(mark.as_bytes())) {
            return Found::Mark(at, mark);
        }
        // Only so near the end can the text be too short for a mark.
        if rest.len() < longest && marks.iter().any(|mark| mark.as_bytes().starts_with(rest)) {
            return Found::Nothing(at);
        }
    }
    Found::Nothing(bytes.len())
}

/// How `text` stands to `mark`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// The text begins with the mark.
    Whole,
    /// The text is the mark's beginning.
    Part,
    /// Neither.
    No,
}

/// Compares the beginning of `text`, of which there may be more, with `mark`.
pub fn prefix(text: &str, mark: &str) -> Prefix {
    if text.starts_with(mark) {
        Prefix::Whole
    } else if mark.starts_with(text) {
        Prefix::Part
    } else {
        Prefix::No
    }
}

/// The whitespace that formats allow between their parts.
pub fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// `text` without the whitespace at its beginning.
pub fn after_space(text: &str) -> &str {
    text.trim_start_matches(is_space)
}
