//! A doc comment stands alone: a reader of the reference or of a hover text sees no neighbours.

use super::lexer::{self, Line};
use super::violation::Violation;
use crate::repository::File;

/// Beginnings that lean on what stands elsewhere.
const LEANING: [&str; 6] = ["The same", "Likewise", "As above", "As before", "As [", "Ditto"];

pub fn check(files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.has_extension(&["rs"])) {
        violations.extend(leaning(&file.text).into_iter().map(|(line, begin)| {
            let message = format!(
                "a doc comment begins with `{begin}`; say what this item is, for a reader who sees \
                 no other"
            );
            Violation::new(&file.path, line, message)
        }));
    }
    violations
}

/// The lines on which a doc comment begins that leans on another one, with its beginning.
fn leaning(source: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let mut goes_on = false;
    for (index, line) in lexer::lines(source).iter().enumerate() {
        let text = doc_text(line);
        if let Some(text) = text
            && !goes_on
            && let Some(begin) = LEANING.iter().find(|begin| text.starts_with(**begin))
        {
            found.push((index + 1, *begin));
        }
        goes_on = text.is_some();
    }
    found
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
    fn later_lines_other_comments_and_strings_may_begin_so() {
        let source = "//! A.\n//! The same.\n\n/// Is\n/// As [b] is.\nfn a() {\n    // The same\n    \
                      // once more.\n    c(\"/// The same\");\n}\n";
        Tree::new().with("a.rs", source).expect(&[]);
    }
}
