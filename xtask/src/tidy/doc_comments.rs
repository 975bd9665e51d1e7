//! The form of comments. A doc comment stands alone, since a reader of the reference or of a hover
//! text sees no neighbours, and begins with a noun phrase or a verb.

use super::lexer::{self, Line};
use super::rust::GENERATED;
use super::violation::Violation;
use crate::repository::File;

/// Beginnings that lean on what stands elsewhere.
const LEANING: [&str; 6] = ["The same", "Likewise", "As above", "As before", "As [", "Ditto"];

/// Beginnings of clauses, which name no subject.
const CLAUSES: [&str; 3] = ["What ", "Whether ", "Where "];

/// The most columns of a line that is a comment.
const WIDTH: usize = 100;

pub fn check(files: &[File]) -> Vec<Violation> {
    let sources = files.iter().filter(|file| file.has_extension(&["rs"]));
    sources.filter(|file| file.name() != GENERATED).flat_map(faults).collect()
}

/// The faults of one file's comments.
fn faults(file: &File) -> Vec<Violation> {
    let mut found = Vec::new();
    let (mut goes_on, mut in_code) = (false, false);
    let lines = lexer::lines(&file.text);
    for (index, (line, whole)) in lines.iter().zip(file.text.lines()).enumerate() {
        let text = doc_text(line);
        in_code ^= text.is_some_and(|text| text.starts_with("```"));
        let begin = text.filter(|_| !goes_on).and_then(begin_fault);
        let is_prose = !in_code && !text.is_some_and(|text| text.starts_with('|'));
        let width = is_prose.then(|| width_fault(line, whole)).flatten();
        let reasons = begin.into_iter().chain(width);
        found.extend(reasons.map(|reason| Violation::new(&file.path, index + 1, reason)));
        goes_on = text.is_some();
    }
    found
}

/// The fault of a doc comment that begins with `text`.
fn begin_fault(text: &str) -> Option<String> {
    let of = |all: &[&'static str]| all.iter().copied().find(|begin| text.starts_with(begin));
    let (begin, remedy) = match (of(&LEANING), of(&CLAUSES)) {
        (Some(begin), _) => (begin, "say what this item is, for a reader who sees no other"),
        (_, Some(begin)) => (begin.trim_end(), "begin with a noun phrase or a verb"),
        _ => return None,
    };
    Some(format!("a doc comment begins with `{begin}`; {remedy}"))
}

/// The fault of a line that is a comment and too wide. A word alone may be wider, such as an
/// address.
fn width_fault(line: &Line, whole: &str) -> Option<String> {
    let columns = whole.chars().count();
    let is_comment = line.code.trim().is_empty() && !line.comment.is_empty();
    let can_be_broken = line.comment.split_whitespace().count() > 2;
    (columns > WIDTH && is_comment && can_be_broken)
        .then(|| format!("a comment of {columns} columns; break it at {WIDTH}"))
}

/// The text of a line of a doc comment.
fn doc_text(line: &Line) -> Option<&str> {
    let markers = ["///", "//!", "/**", "/*!"];
    let text = markers.iter().find_map(|marker| line.comment.strip_prefix(marker))?;
    line.code.trim().is_empty().then(|| text.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::Tree;

    #[test]
    fn a_doc_comment_that_begins_with_its_neighbour_is_found() {
        for begin in LEANING {
            let source = format!("//! A.\n\n/// {begin}`b`] in c.\nfn a() {{}}\n");
            Tree::new().with("a.rs", &source).expect(&[("a.rs:3", begin)]);
        }
        Tree::new().with("a.rs", "//! The same as b.\n").expect(&[("a.rs:1", "The same")]);
    }

    #[test]
    fn a_clause_and_a_wide_line_are_found() {
        for begin in CLAUSES {
            let source = format!("//! A.\n\n/// {begin}b is.\nfn a() {{}}\n");
            Tree::new().with("a.rs", &source).expect(&[("a.rs:3", begin.trim_end())]);
        }
        let wide = format!("//! A.\n\n// {}\nfn a() {{}}\n", "word ".repeat(25));
        Tree::new().with("a.rs", &wide).expect(&[("a.rs:3", "columns")]);
        let address = format!("//! A.\n\n// <https://{}>\nfn a() {{}}\n", "a".repeat(120));
        Tree::new().with("a.rs", &address).expect(&[]);
        let words = "word ".repeat(25);
        let code = format!("//! A.\n//! ```\n//! {words}\n//! ```\n//! | {words} |\n");
        Tree::new().with("a.rs", &code).expect(&[]);
    }

    #[test]
    fn later_lines_other_comments_and_strings_may_begin_so() {
        let source = "//! A.\n//! The same.\n\n/// Is\n/// As [b] is.\nfn a() {\n    // The same\n    \
                      // once more.\n    c(\"/// The same\");\n}\n";
        Tree::new().with("a.rs", source).expect(&[]);
    }
}
