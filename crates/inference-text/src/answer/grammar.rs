//! Grammars that make an answer a call, and that let reasoning come before a constrained answer.

use inference_core::{Constraint, TextModel};

use super::family::Family;
use super::piece::Tool;
use super::tagged::{open_reasoning, reasoning_marks};
use crate::json::from_value;

/// Which tools an answer calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// Those that the model wants to.
    #[default]
    Auto,
    /// None.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// Tells the id of a mark that is one token of the model's tokenizer.
pub type MarkIds<'a> = &'a dyn Fn(&str) -> Option<u32>;

/// The id of `mark` where the model's tokenizer has it as one token.
pub fn mark_id(model: &dyn TextModel, mark: &str) -> Option<u32> {
    let ids = model.encode(mark).ok()?;
    // A tokenizer may put a beginning-of-sequence token before any text.
    let before = model.encode("").unwrap_or_default();
    match ids.strip_prefix(before.as_slice()).unwrap_or(&ids) {
        [id] => Some(*id),
        _ => None,
    }
}

/// A grammar that makes an answer a call of one of `tools`, of several where `parallel` and where
/// the family's answers hold several, whose arguments follow the tool's schema. Under
/// [`ToolChoice::Auto`] there is one where a tool is strict: text goes before and instead of calls.
///
/// It says nothing of reasoning, which [`answer_constraint`] lets come before it. Marks are written
/// as text, in Harmony as special tokens; [`tool_constraint_with`] has it from the tokenizer.
///
/// # Errors
/// A choice that no tool, or no format of the family, can meet.
pub fn tool_constraint(
    family: Family,
    tools: &[Tool],
    choice: &ToolChoice,
    parallel: bool,
) -> Result<Option<Constraint>, String> {
    tool_constraint_with(family, tools, choice, parallel, &|_| None)
}

/// The grammar of [`tool_constraint`]. `ids` tells which marks are tokens: such a mark is taken as that token,
/// whether the tokenizer calls it special or not.
///
/// # Errors
/// What [`tool_constraint`] refuses.
pub fn tool_constraint_with(
    family: Family,
    tools: &[Tool],
    choice: &ToolChoice,
    parallel: bool,
    ids: MarkIds,
) -> Result<Option<Constraint>, String> {
    let named = |name: &String| tools.iter().filter(move |tool| tool.name == *name).collect();
    let tools: Vec<&Tool> = match choice {
        ToolChoice::None => return Ok(None),
        ToolChoice::Auto if !tools.iter().any(|tool| tool.strict) => return Ok(None),
        ToolChoice::Named(name) => named(name),
        ToolChoice::Auto | ToolChoice::Required => tools.iter().collect(),
    };
    if tools.is_empty() {
        return Err(match choice {
            ToolChoice::Named(name) => {
                format!("the tool `{name}` that is to be called is not given")
            }
            _ => "a tool is to be called, but none is given".to_owned(),
        });
    }
    let free = *choice == ToolChoice::Auto;
    let mark = |mark: &str| match ids(mark) {
        Some(id) => format!("<[{id}]>"),
        None => quoted(mark),
    };
    let calls = match family {
        Family::Plain => return Err("the model's chat template knows no tool calls".to_owned()),
        Family::Gemma if free => {
            return Err(
                "the model's format cannot hold a call to a strict schema unless a call is \
                 required: set `tool_choice` to `required`, or leave `strict` out"
                    .to_owned(),
            );
        }
        Family::Hermes => {
            let (open, close) = (mark("<tool_call>"), mark("</tool_call>"));
            let before = format!("{open} \"\\n\"");
            let after = format!("\"\\n\" {close}");
            let call = alternatives(&tools, |tool| object(tool, "arguments"));
            let calls = format!("call{}\n", if parallel { " (\"\\n\" call)*" } else { "" });
            format!("calls: {calls}call: {before} ({call}) {after}\n")
        }
        Family::Llama3 | Family::Gemma => {
            let call = alternatives(&tools, |tool| object(tool, "parameters"));
            let several = parallel && family == Family::Llama3;
            let calls = format!("call{}\n", if several { " (\"; \" call)*" } else { "" });
            format!("calls: {calls}call: {call}\n")
        }
        Family::Mistral => {
            let (open, args) = (mark("[TOOL_CALLS]"), mark("[ARGS]"));
            let call = alternatives(&tools, |tool| object(tool, "arguments"));
            let named = alternatives(&tools, |(index, tool)| {
                format!("{} {args} args_{index}", quoted(&tool.name))
            });
            let more = |rest: &str| if parallel { format!(" ({rest})*") } else { String::new() };
            format!(
                "calls: {open} (\"[\" call{} \"]\" | named{})\ncall: {call}\nnamed: {named}\n",
                more("\", \" call"),
                more(&format!("{open} named")),
            )
        }
        Family::Harmony => {
            let call = alternatives(&tools, |(index, tool)| {
                let to = quoted(&format!("commentary to=functions.{} ", tool.name));
                format!("<|channel|> {to} <|constrain|> \"json\" <|message|> args_{index}")
            });
            format!("calls: {call}\n")
        }
    };
    let mut grammar = match (family, free) {
        (Family::Harmony, _) => {
            let last = if free { " | <|channel|> channel <|message|> TEXT?" } else { "" };
            let channel =
                if free { "\"analysis\" | \"commentary\" | \"final\"" } else { "\"analysis\"" };
            format!(
                "start: message* (calls{last})\n\
                 message: <|channel|> channel <|message|> TEXT? <|end|> <|start|> \"assistant\"\n\
                 channel: {channel}\nTEXT: /(?s:.+)/\n"
            )
        }
        (_, false) => "start: calls\n".to_owned(),
        // What begins as a call is one.
        (Family::Llama3, true) => "start: calls | TEXT?\nTEXT: /[^{\\[](?s:.*)/\n".to_owned(),
        (_, true) => {
            let open = if family == Family::Mistral { "[TOOL_CALLS]" } else { "<tool_call>" };
            let not = format!("~/(?s:.*){}(?s:.*)/", regex(open));
            format!("start: TEXT? calls? SPACE?\nTEXT: /(?s:.+)/ & {not}\nSPACE: /\\s{{1,4}}/\n")
        }
    };
    grammar += &calls;
    for (index, tool) in tools.iter().enumerate() {
        grammar += &format!("args_{index}: %json {}\n", schema(tool));
    }
    Ok(Some(Constraint::Lark(grammar)))
}

/// Lets reasoning come before what `constraint` asks of the answer: the reasoning that the end of
/// `prompt_text` opens, or that the family may open itself. In Harmony the constraint holds for
/// the final channel; a Lark grammar that names channels itself is left as it is.
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
    let opened = open_reasoning(family, prompt_text);
    let pairs = reasoning_marks(family);
    let over = pairs.iter().any(|(_, close)| prompt_text.trim_end().ends_with(close));
    if opened.is_none() && (over || family == Family::Plain) {
        return constraint;
    }
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
    let optional = if opened.is_some() { "" } else { "?" };
    Constraint::Lark(format!(
        "start: (({}) SPACE?){optional} answer\n{rules}SPACE: /\\s{{1,4}}/\n{}",
        thoughts.join(" | "),
        answer_rule(&constraint)
    ))
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
        answer_rule(&constraint)
    ))
}

/// The rule `answer`.
fn answer_rule(constraint: &Constraint) -> String {
    match constraint {
        Constraint::JsonSchema(schema) => format!("answer: %json {}\n", from_value(schema)),
        Constraint::Regex(pattern) if pattern.is_empty() => "answer: \"\"\n".to_owned(),
        Constraint::Regex(pattern) => format!("answer: /{}/\n", delimited(pattern)),
        Constraint::Lark(grammar) => format!("answer: %lark {{\n{grammar}\n}}\n"),
    }
}

fn alternatives(tools: &[&Tool], write: impl Fn((usize, &Tool)) -> String) -> String {
    let written: Vec<String> =
        tools.iter().enumerate().map(|(index, tool)| write((index, tool))).collect();
    written.join(" | ")
}

/// `{"name": NAME, KEY: ARGUMENTS}`, as chat templates write it. The schema stays a grammar of its
/// own, whose references begin at its own root.
fn object((index, tool): (usize, &Tool), key: &str) -> String {
    let head = format!("{{\"name\": {}, \"{key}\": ", quoted(&tool.name));
    format!("{} args_{index} \"}}\"", quoted(&head))
}

/// The schema of a tool's arguments, which are an object whatever it says.
fn schema(tool: &Tool) -> serde_json::Value {
    match &tool.parameters {
        serde_json::Value::Object(fields) => {
            let mut fields = fields.clone();
            fields.entry("type").or_insert("object".into());
            fields.into()
        }
        _ => serde_json::json!({ "type": "object" }),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// `text` as a regular expression that may stand between slashes.
fn regex(text: &str) -> String {
    text.chars().fold(String::new(), |mut pattern, c| {
        if !c.is_alphanumeric() && !"<>_ ".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
        pattern
    })
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
