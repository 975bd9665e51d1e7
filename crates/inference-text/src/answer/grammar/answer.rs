//! Grammars that let reasoning come before a constrained answer.

use inference_core::Constraint;

use super::calls::tool_constraint_with;
use super::{MarkIds, SPACE, ToolChoice, quoted, regex};
use crate::answer::family::Family;
use crate::answer::format::{
    answer_marks, begun_reasoning, calls_without_mark, openings, reasoning_marks,
};
use crate::answer::harmony::{Dialect, HARMONY, MUSE};
use crate::answer::piece::Tool;
use crate::json::from_value;
use crate::reasoning::Begun;

/// Lets reasoning come before what `constraint` asks of the answer: the reasoning that the end of
/// `prompt_text` opens, or that the family may open itself. In Harmony the constraint holds for
/// the final channel; a Lark grammar that names channels itself is left as it is.
///
/// The content that an [`AnswerParser`](crate::answer::AnswerParser) finds in such an answer
/// conforms to the constraint. So a text of a regular expression has no mark that ends it there and
/// no whitespace that is dropped, unless the expression names the mark.
pub fn answer_constraint(family: Family, prompt_text: &str, constraint: Constraint) -> Constraint {
    answer_constraint_with(family, prompt_text, constraint, &|_| None)
}

/// The grammar of [`answer_constraint`], with the marks that `ids` knows as tokens taken as those.
pub fn answer_constraint_with(
    family: Family,
    prompt_text: &str,
    constraint: Constraint,
    ids: MarkIds,
) -> Constraint {
    if family == Family::Harmony {
        return harmony_answer(prompt_text, constraint);
    }
    if family == Family::Muse {
        return muse_answer(prompt_text, constraint);
    }
    let pairs = reasoning_marks(family);
    let opened = match begun_reasoning(family, prompt_text) {
        Begun::Open(close) => Some(close),
        Begun::Not if family != Family::Plain => None,
        Begun::Over | Begun::Not => return answer_alone(family, constraint),
    };
    let mut thoughts = Vec::new();
    let mut rules = String::new();
    for (index, (open, close)) in pairs.iter().enumerate() {
        if opened.is_some_and(|opened| opened != *close) {
            continue;
        }
        let open_id = opening_token(open, ids);
        // As text, the mark's end is the first place where the thought can end.
        let (text, close) = match ids(close) {
            Some(id) => (format!("TEXT_{index}?"), format!(" <[{id}]>")),
            None => (format!("thought_{index}"), String::new()),
        };
        let opening = match (opened, open_id) {
            (Some(_), _) => String::new(),
            (None, Some(token)) => token,
            (None, None) => format!("{} ", quoted(open)),
        };
        thoughts.push(format!("{opening}{text}{close}"));
        let close = regex(pairs[index].1);
        rules += &format!("TEXT_{index}: /(?s:.+)/ & ~/(?s:.*){close}(?s:.*)/\n");
        rules += &format!("thought_{index}[lazy]: /(?s:.*){close}/\n");
    }
    let thoughts = format!("({}) SPACE?", thoughts.join(" | "));
    if let Constraint::Regex(_) = constraint {
        // A text that whitespace or a mark may surround is not told from these.
        let first = if opened.is_some() { "" } else { " | answer" };
        let begins = begins(family, &constraint);
        let behind: Vec<String> = begins.iter().cloned().chain([BLANK.to_owned()]).collect();
        return Constraint::Lark(format!(
            "start: {thoughts} behind{first}\n{rules}{SPACE}{}{}",
            answer_rule("answer", &constraint, &begins),
            answer_rule("behind", &constraint, &behind),
        ));
    }
    let optional = if opened.is_some() { "" } else { "?" };
    let marked = answer_marks(family).map_or_else(String::new, |(open, close)| {
        let mark = |mark| ids(mark).map_or_else(|| quoted(mark), |id| format!("<[{id}]>"));
        format!(" | {} SPACE? answer (SPACE? {})?", mark(open), mark(close))
    });
    Constraint::Lark(format!(
        "start: ({thoughts}){optional} (answer{marked})\n{rules}{SPACE}{}",
        answer_rule("answer", &constraint, &[])
    ))
}

/// The regular expression of texts that begin with whitespace, which is dropped behind a mark.
const BLANK: &str = "[ \\t\\r\\n](?s:.*)";

/// Regular expressions of what begins with the mark of a thought or of an answer. A mark that the
/// constraint itself names is left to whoever wrote it.
fn begins(family: Family, constraint: &Constraint) -> Vec<String> {
    let marks = reasoning_marks(family).iter().copied().chain(answer_marks(family));
    let marks = marks.map(|(open, _)| open).filter(|mark| !names(constraint, mark));
    marks.map(|open| format!("[ \\t\\r\\n]*{}(?s:.*)", regex(open))).collect()
}

/// The regular expression of all that has one of `marks`, but for those that `constraint` names.
fn anywhere<'a>(constraint: &Constraint, marks: impl Iterator<Item = &'a str>) -> Option<String> {
    let marks: Vec<String> = marks.filter(|mark| !names(constraint, mark)).map(regex).collect();
    (!marks.is_empty()).then(|| format!("(?s:.*)({})(?s:.*)", marks.join("|")))
}

/// Returns true when `constraint` asks for `mark` by its name.
fn names(constraint: &Constraint, mark: &str) -> bool {
    match constraint {
        Constraint::Regex(pattern) => pattern.replace('\\', "").contains(mark),
        Constraint::Lark(grammar) => grammar.contains(mark),
        Constraint::JsonSchema(_) => false,
    }
}

/// An answer before which nothing may come.
fn answer_alone(family: Family, constraint: Constraint) -> Constraint {
    match &constraint {
        Constraint::Regex(_) => {
            let answer = answer_rule("answer", &constraint, &begins(family, &constraint));
            Constraint::Lark(format!("start: answer\n{answer}"))
        }
        Constraint::JsonSchema(_) | Constraint::Lark(_) => constraint,
    }
}

/// The grammar of an answer under `constraint`, or of calls of `tools`, as under
/// [`ToolChoice::Required`]. Reasoning comes before it as before any constraint, which
/// [`answer_constraint_with`] lets.
///
/// `None` where nothing marks the family's calls, so that no grammar tells them from an answer.
///
/// # Errors
/// Those of [`tool_constraint_with`].
pub fn answer_or_calls(
    family: Family,
    tools: &[Tool],
    parallel: bool,
    constraint: &Constraint,
    ids: MarkIds,
) -> Result<Option<Constraint>, String> {
    if calls_without_mark(family) {
        return Ok(None);
    }
    let calls = tool_constraint_with(family, tools, &ToolChoice::Required, parallel, ids)?;
    let Some(Constraint::Lark(calls)) = calls else { return Ok(None) };
    let rule =
        |constraint: &Constraint, dropped: &[String]| answer_rule("answer", constraint, dropped);
    let answer = match family {
        // Their grammars name the messages, and let reasoning come before calls by themselves.
        Family::Harmony => rule(&harmony_answer("<|start|>assistant", constraint.clone()), &[]),
        Family::Muse => rule(&muse_answer("<|start|>assistant", constraint.clone()), &[]),
        _ => {
            // Reasoning or the mark of an answer may come before it, of which nothing is known
            // here.
            let close = answer_marks(family).map(|(_, close)| close);
            let marks = openings(family).iter().map(|opening| opening.mark).chain(close);
            let mut dropped = begins(family, constraint);
            dropped.push(BLANK.to_owned());
            dropped.extend(close.map(|_| "(?s:.*)[ \\t\\r\\n]".to_owned()));
            dropped.extend(anywhere(constraint, marks));
            rule(constraint, &dropped)
        }
    };
    let all = format!("start: answer | calls\n{answer}calls: %lark {{\n{calls}\n}}\n");
    Ok(Some(Constraint::Lark(all)))
}

/// The mark that opens reasoning where it is a token, or a token and a word behind it.
fn opening_token(open: &str, ids: MarkIds) -> Option<String> {
    if let Some(id) = ids(open) {
        return Some(format!("<[{id}]> "));
    }
    let (token, word) = open.split_at(open.rfind('>')? + 1);
    let id = ids(token).filter(|_| !word.is_empty())?;
    Some(format!("<[{id}]> {} ", quoted(word)))
}

fn harmony_answer(prompt_text: &str, constraint: Constraint) -> Constraint {
    let channels = |grammar: &str| grammar.contains("<|channel|>");
    if matches!(&constraint, Constraint::Lark(grammar) if channels(grammar)) {
        return constraint;
    }
    let begun = prompt_text.rsplit_once("<|start|>").map_or("", |(_, begun)| begun);
    let start = match begun.split_once("<|message|>") {
        None if begun.contains("<|channel|>") => return constraint,
        None => "start: thought* final\n",
        Some((header, _)) if header.contains("analysis") => {
            "start: TEXT? <|end|> <|start|> \"assistant\" thought* final\n"
        }
        Some(_) => return constraint,
    };
    Constraint::Lark(format!(
        "{start}\
         thought: <|channel|> \"analysis\" <|message|> TEXT? <|end|> <|start|> \"assistant\"\n\
         final: <|channel|> \"final\" (\" \"? <|constrain|> \"json\")? <|message|> answer\n\
         TEXT: /(?s:.+)/\n{}",
        answer_rule("answer", &constraint, &ending(&HARMONY, &constraint))
    ))
}

/// Regular expressions of what has a mark that ends a message.
fn ending(dialect: &Dialect, constraint: &Constraint) -> Vec<String> {
    anywhere(constraint, dialect.ends.iter().copied()).into_iter().collect()
}

/// The constraint holds for the message to the user, unless it names messages itself.
fn muse_answer(prompt_text: &str, constraint: Constraint) -> Constraint {
    let names = |grammar: &str| grammar.contains("<|message|>");
    let begun = prompt_text.rsplit_once("<|start|>").map_or("", |(_, begun)| begun);
    if begun.contains("<|message|>")
        || matches!(&constraint, Constraint::Lark(grammar) if names(grammar))
    {
        return constraint;
    }
    Constraint::Lark(format!(
        "start: thought* \" to=user\" <|message|> answer\n\
         thought: \" to=self\" <|message|> TEXT? <|eom|> <|start|> \"assistant\"\n\
         TEXT: /(?s:.+)/\n{}",
        answer_rule("answer", &constraint, &ending(&MUSE, &constraint))
    ))
}

/// The rule `name` of what `constraint` asks for. A text of a regular expression is none of
/// `dropped`.
fn answer_rule(name: &str, constraint: &Constraint, dropped: &[String]) -> String {
    match constraint {
        Constraint::JsonSchema(schema) => format!("{name}: %json {}\n", from_value(schema)),
        Constraint::Regex(pattern) if pattern.is_empty() => format!("{name}: \"\"\n"),
        Constraint::Regex(pattern) => {
            let terminal = name.to_uppercase();
            let not = match dropped {
                [] => String::new(),
                _ => format!(" & ~/{}/", dropped.join("|")),
            };
            format!("{name}: {terminal}\n{terminal}: /{}/{not}\n", delimited(pattern))
        }
        Constraint::Lark(grammar) => format!("{name}: %lark {{\n{grammar}\n}}\n"),
    }
}

/// A regular expression that may stand between slashes.
fn delimited(pattern: &str) -> String {
    let mut text = String::new();
    let mut escaped = false;
    for c in pattern.chars() {
        match c {
            '/' if !escaped => text.push_str("\\/"),
            '\n' if escaped => text.push('n'),
            '\n' => text.push_str("\\n"),
            _ => text.push(c),
        }
        escaped = c == '\\' && !escaped;
    }
    text
}
