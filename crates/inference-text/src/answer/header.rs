//! Calls that are a tool's name between marks, and then JSON.

use super::call::Tools;
use super::json_scan::Step;
use super::marks::{Prefix, after_space, prefix};

/// The marks around the names of calls.
#[derive(Debug, PartialEq, Eq)]
pub struct Names {
    /// The mark that begins each call; empty where the family's mark does.
    pub open: &'static str,
    /// A text that may precede the name.
    pub before: &'static str,
    /// The beginnings of call ids that may stand in place of a name; such ids may be numbers too.
    pub ids: &'static [&'static str],
    /// The mark of a further word that may follow the name, before the separators.
    pub id: &'static str,
    /// The marks between name and arguments, one of which is there.
    pub separators: &'static [&'static str],
    /// The marks that may follow the arguments, in this order.
    pub closes: &'static [&'static str],
}

/// `NAME[ARGS]` or `NAME[CALL_ID]ID[ARGS]`.
pub const MISTRAL: Names =
    Names { open: "", before: "", ids: &[], id: "[CALL_ID]", separators: &["[ARGS]"], closes: &[] };

/// `functions.NAME:0`, or an id of another server's.
pub const KIMI: Names = Names {
    open: "<|tool_call_begin|>",
    before: "functions.",
    ids: &["call_", "chatcmpl-tool-", "toolu_"],
    id: ":",
    separators: &["<|tool_call_argument_begin|>"],
    closes: &["<|tool_call_end|>"],
};

/// `function<｜tool▁sep｜>NAME`, a fence and JSON; or `NAME<｜tool▁sep｜>` and JSON.
pub const DEEPSEEK: Names = Names {
    open: "<｜tool▁call▁begin｜>",
    before: "function<｜tool▁sep｜>",
    ids: &[],
    id: "",
    separators: &["```json", "<｜tool▁sep｜>"],
    closes: &["```", "<｜tool▁call▁end｜>"],
};

/// The most bytes of a name with its marks.
const LIMIT: usize = 512;

/// The name at the beginning of `text`, where it is not an id, and where the JSON of its arguments
/// begins; what is known of `text` where there is none.
pub fn read(names: &Names, text: &str, tools: &Tools) -> Result<(Option<String>, usize), Step> {
    // Wherever it was cut, a header is known or refused by its first bytes alone.
    let window = &text[..text.floor_char_boundary(LIMIT)];
    let more = if text.len() > LIMIT { Step::Bad(0) } else { Step::More };
    let mut rest = window;
    if !names.open.is_empty() {
        rest = past(after_space(rest), names.open).map_err(|part| part.unless(more))?;
    }
    rest = after_space(rest);
    let whole_name = word(rest);
    if whole_name == rest.len() {
        return Err(more);
    }
    // A tool may be called as what precedes the names of all.
    if !tools.has(&rest[..whole_name]) && !names.before.is_empty() {
        match past(rest, names.before) {
            Ok(after) => rest = after,
            // Other words may stand there too.
            Err(_) if !names.ids.is_empty() => {}
            Err(part) => return Err(part.unless(more)),
        }
        if word(rest) == rest.len() {
            return Err(more);
        }
    }
    let (named, after) = rest.split_at(word(rest));
    let name = match names.ids {
        [] => Some(named).filter(|name| tools.has(name)),
        _ => tools.resolve(named),
    };
    if name.is_none() && !is_id(names, named) {
        return Err(Step::Bad(window.len() - after.len()));
    }
    let mut rest = after_space(after);
    if !names.id.is_empty() {
        match prefix(rest, names.id) {
            Prefix::Whole => {
                rest = &rest[names.id.len()..];
                rest = after_space(&rest[word(rest)..]);
            }
            Prefix::Part => return Err(more),
            Prefix::No => {}
        }
    }
    let found = names.separators.iter().map(|mark| past(rest, mark)).reduce(|one, other| {
        match (one, other) {
            (Ok(rest), _) | (_, Ok(rest)) => Ok(rest),
            (Err(Missing::Part), _) | (_, Err(Missing::Part)) => Err(Missing::Part),
            (no, _) => no,
        }
    });
    let rest = found.unwrap_or(Ok(rest)).map_err(|part| match part {
        Missing::Part => more,
        Missing::Whole => Step::Bad(window.len() - after.len()),
    })?;
    let rest = after_space(rest);
    match rest.bytes().next() {
        None => Err(more),
        Some(b'{') => Ok((name.map(str::to_owned), window.len() - rest.len())),
        Some(_) => Err(Step::Bad(window.len() - rest.len())),
    }
}

/// How a mark is missing.
enum Missing {
    /// The text ends within it.
    Part,
    /// Something else is there.
    Whole,
}

impl Missing {
    fn unless(self, more: Step) -> Step {
        match self {
            Missing::Part => more,
            Missing::Whole => Step::Bad(0),
        }
    }
}

/// Returns the text behind `mark`, which `text` begins with.
fn past<'a>(text: &'a str, mark: &str) -> Result<&'a str, Missing> {
    match prefix(text, mark) {
        Prefix::Whole => Ok(&text[mark.len()..]),
        Prefix::Part => Err(Missing::Part),
        Prefix::No => Err(Missing::Whole),
    }
}

/// Returns true when `word` is an id in place of a name.
fn is_id(names: &Names, word: &str) -> bool {
    let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    names.ids.iter().any(|begin| is_number || word.starts_with(begin))
}

/// The length of the name or number that `text` begins with.
fn word(text: &str) -> usize {
    let known = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    text.find(|c| !known(c)).unwrap_or(text.len())
}
