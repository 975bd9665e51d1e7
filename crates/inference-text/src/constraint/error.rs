//! What is wrong with a constraint, in words for whoever wrote it.

use std::fmt::Display;

use inference_core::Error;

/// Characters of an error; the library repeats what it was given.
const MAX_REASON: usize = 500;

/// What the library says before the keywords that it does not hold.
const KEYWORDS: &str = "Unimplemented keys: ";

pub(super) fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidOption { option: "constraint", reason: reason.into() }
}

/// What the library says, without its traces.
pub(super) fn reason(error: impl Display) -> String {
    let text = format!("{error:#}");
    let end = ["\n<", "<non-verbose/>"].iter().filter_map(|mark| text.find(mark)).min();
    let text = text[..end.unwrap_or(text.len())].trim();
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
