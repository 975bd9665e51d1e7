//! The fault of a constraint, in words for whoever wrote it.

use std::fmt::Display;

use inference_core::Error;

/// Characters of an error; the library repeats what it was given.
const MAX_REASON: usize = 500;

/// The library's words before a schema's fault in a grammar. The grammar follows the fault.
const IN_GRAMMAR: &str = "failed to compile JSON schema: ";

/// The library's words before a regular expression of a grammar.
const REGEX: &str = "invalid regex ";

/// The library's words before the keywords that it does not hold.
const KEYWORDS: &str = "Unimplemented keys: ";

pub(super) fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidOption { option: "constraint", reason: reason.into() }
}

/// `text` up to the lines of a grammar that have their numbers before them.
fn before_listing(text: &str) -> &str {
    let is_listed = |line: &str| {
        let line = line.trim_start();
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.len() < line.len() && rest.starts_with(" | ")
    };
    let mut lines = text.split_inclusive('\n');
    let kept: usize = lines.by_ref().take_while(|line| !is_listed(line)).map(str::len).sum();
    text[..kept].trim_end()
}

/// The library's own words, without its traces.
pub(super) fn reason(error: impl Display) -> String {
    let text = format!("{error:#}");
    let end = ["\n<", "<non-verbose/>"].iter().filter_map(|mark| text.find(mark)).min();
    let text = text[..end.unwrap_or(text.len())].trim();
    // The grammar may be none that the caller wrote.
    let at = [IN_GRAMMAR, REGEX].iter().find_map(|words| text.find(words));
    let text = match at.filter(|_| text.starts_with("at ")) {
        Some(at) => before_listing(text[at..].trim_start_matches(IN_GRAMMAR)),
        None => text,
    };
    let text = match text.strip_prefix("panic: ") {
        Some(text) => format!("the grammar library failed on it: {text}"),
        // The library's remedy is not for callers to take.
        None if text.contains("coerce_one_of") => {
            "`oneOf` whose alternatives may overlap is not supported: write `anyOf`".to_owned()
        }
        None => match text.strip_prefix(KEYWORDS) {
            Some(names) => {
                let names = names.trim_matches(['[', ']']).replace('"', "`");
                format!("not supported in a schema: {names}; leave it out")
            }
            None => text.to_owned(),
        },
    };
    match text.char_indices().nth(MAX_REASON) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}
