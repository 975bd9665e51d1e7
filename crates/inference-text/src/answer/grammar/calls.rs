//! Grammars of calls, in each family's own format.

use inference_core::Constraint;

use super::arguments::{self, Style};
use super::{MarkIds, SPACE, ToolChoice, quoted, regex};
use crate::answer::family::Family;
use crate::answer::format::{Kind, calls_without_mark, openings};
use crate::answer::piece::Tool;
use crate::answer::tags::{ATEM, CODER, GLM, INVOKE, SEED, Tags};

/// A grammar that makes an answer a call of one of `tools`, of several where `parallel` and where
/// the family's answers hold several, whose arguments follow the tool's schema. Under
/// [`ToolChoice::Auto`] there is one where a tool is strict: text goes before and instead of calls.
///
/// Calls are in the family's own format. Arguments that are no list of properties in the schema's
/// words (`anyOf` at its root, for example) are written as JSON between the family's marks, where
/// the format has properties.
///
/// It says nothing of reasoning, which [`answer_constraint`](super::answer_constraint) lets come
/// before it. Marks are written as text, in Harmony and Muse as special tokens;
/// [`tool_constraint_with`] has it from the tokenizer.
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

/// The grammar of [`tool_constraint`]. `ids` tells which marks are tokens: such a mark is taken as
/// that token, whether the tokenizer calls it special or not.
///
/// # Errors
/// Those of [`tool_constraint`].
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
    match family {
        Family::Plain => return Err("the model's chat template knows no tool calls".to_owned()),
        Family::Gemma if free => {
            return Err(
                "the model's format cannot hold a call to a strict schema unless a call is \
                 required: set `tool_choice` to `required`, or leave `strict` out"
                    .to_owned(),
            );
        }
        _ => {}
    }
    let writer = Writer { family, tools: &tools, ids, free };
    let start = writer.start();
    let calls = writer.calls(parallel);
    Ok(Some(Constraint::Lark(format!("{start}{calls}{}", writer.arguments()))))
}

/// Writes the calls of some tools.
struct Writer<'a> {
    family: Family,
    tools: &'a [&'a Tool],
    ids: MarkIds<'a>,
    /// Text may come before and instead of calls.
    free: bool,
}

impl Writer<'_> {
    /// The rule `start`: calls, or text too where the model is free.
    fn start(&self) -> String {
        match (self.family, self.free) {
            (Family::Harmony, _) => {
                let last = if self.free { " | <|channel|> channel <|message|> TEXT?" } else { "" };
                let channel = if self.free {
                    "\"analysis\" | \"commentary\" | \"final\""
                } else {
                    "\"analysis\""
                };
                format!(
                    "start: message* (calls{last})\n\
                     message: <|channel|> channel <|message|> TEXT? <|end|> <|start|> \"assistant\"\n\
                     channel: {channel}\nTEXT: /(?s:.+)/\n"
                )
            }
            (Family::Muse, _) => {
                let (others, last) = match self.free {
                    true => (" | \"user\" | \"commentary\"", " | \" to=user\" <|message|> TEXT?"),
                    false => ("", ""),
                };
                format!(
                    "start: message* (calls{last})\n\
                     message: \" to=\" reader <|message|> TEXT? <|eom|> <|start|> \"assistant\"\n\
                     reader: \"self\"{others}\nTEXT: /(?s:.+)/\n"
                )
            }
            (_, false) => "start: calls\n".to_owned(),
            // What begins as a call is one.
            (_, true) if calls_without_mark(self.family) => {
                "start: calls | TEXT?\nTEXT: /[^{\\[](?s:.*)/\n".to_owned()
            }
            (_, true) => {
                let open = self.opening();
                let not = format!("~/(?s:.*){}(?s:.*)/", regex(open));
                match (self.ids)(open) {
                    Some(_) => {
                        format!("start: TEXT? calls? SPACE?\nTEXT: /(?s:.+)/ & {not}\n{SPACE}")
                    }
                    // As text, the mark's end is the first place where calls can begin.
                    None => format!(
                        "start: TEXT? | calls SPACE?\nTEXT: /(?s:.+)/ & {not}\n\
                         lead[lazy]: /(?s:.*){}/\n{SPACE}",
                        regex(open)
                    ),
                }
            }
        }
    }

    /// The mark that the model writes before calls.
    fn opening(&self) -> &'static str {
        openings(self.family).first().map_or("", |opening| opening.mark)
    }

    /// The rules of `calls`.
    fn calls(&self, parallel: bool) -> String {
        let more = |rest: &str| if parallel { format!(" ({rest})*") } else { String::new() };
        let open = match (self.ids)(self.opening()) {
            None if self.free => "lead".to_owned(),
            _ => self.mark(self.opening()),
        };
        let close = openings(self.family).first().map_or("", |opening| opening.close);
        let close = if close.is_empty() { String::new() } else { format!(" {}", self.mark(close)) };
        let json = |name: &str, arguments: &str| {
            self.alternatives(|index, tool| object(index, tool, name, arguments))
        };
        let lines = |call: &str, between: &str| {
            format!(
                "calls: call{}\ncall: {open} \"\\n\" ({call}) \"\\n\"{close}\n",
                more(&format!("{between} call"))
            )
        };
        match self.family {
            Family::Plain => String::new(),
            Family::Hermes | Family::Ernie => lines(&json("name", "arguments"), "\"\\n\""),
            Family::Coder => lines(&self.elements(&CODER), "\"\\n\""),
            Family::Seed => lines(&self.elements(&SEED), "\"\\n\""),
            Family::Glm => {
                let call = self.alternatives(|index, tool| match self.own(index, tool).is_some() {
                    true => format!("{} args_{index}{close}", quoted(&format!("{}\n", tool.name))),
                    false => format!("{}{close}", object(index, tool, "name", "arguments")),
                });
                format!("calls: call{}\ncall: {open} ({call})\n", more("\"\\n\" call"))
            }
            Family::MiniMax => format!(
                "calls: {open} \"\\n\" call{} \"\\n\"{close}\ncall: {}\n",
                more("\"\\n\" call"),
                self.elements(&INVOKE)
            ),
            Family::Kimi | Family::DeepSeek | Family::DeepSeek31 => {
                let call = self.alternatives(|index, tool| self.named(index, tool));
                format!("calls: {open} call{}{close}\ncall: {call}\n", more("call"))
            }
            Family::Granite
            | Family::Nemotron
            | Family::Hunyuan
            | Family::Apriel
            | Family::Cohere => {
                let call = match self.family {
                    Family::Cohere => json("tool_name", "parameters"),
                    _ => json("name", "arguments"),
                };
                // Granite writes no closing mark.
                let close = if self.family == Family::Granite { "" } else { &close };
                format!(
                    "calls: {open} \"[\" call{} \"]\"{close}\ncall: {call}\n",
                    more("\", \" call")
                )
            }
            Family::Lfm | Family::Olmo => {
                let call = self.alternatives(|index, tool| match self.own(index, tool).is_some() {
                    true => format!("{} args_{index} \")\"", quoted(&format!("{}(", tool.name))),
                    false => format!("\"[\" {} \"]\"", object(index, tool, "name", "arguments")),
                });
                match self.family {
                    Family::Lfm if self.all_own() => format!(
                        "calls: {open} \"[\" call{} \"]\"{close}\ncall: {call}\n",
                        more("\", \" call")
                    ),
                    Family::Lfm => format!("calls: {open} call{close}\ncall: {call}\n"),
                    _ => format!(
                        "calls: {open} call{}{close}\ncall: {call}\n",
                        if self.all_own() { more("\"\\n\" call") } else { String::new() }
                    ),
                }
            }
            Family::Llama3 | Family::Gemma => {
                let several = self.family == Family::Llama3;
                let more = if several { more("\"; \" call") } else { String::new() };
                format!("calls: call{more}\ncall: {}\n", json("name", "parameters"))
            }
            Family::FunctionGemma | Family::Gemma4 => {
                let call = self.alternatives(|index, tool| match self.own(index, tool).is_some() {
                    true => {
                        format!("{} args_{index} \"}}\"", quoted(&format!("call:{}{{", tool.name)))
                    }
                    false => object(index, tool, "name", "arguments"),
                });
                format!("calls: call{}\ncall: {open} ({call}){close}\n", more("call"))
            }
            Family::Mistral => {
                let args = self.mark("[ARGS]");
                let named = self.alternatives(|index, tool| {
                    format!("{} {args} args_{index}", quoted(&tool.name))
                });
                format!(
                    "calls: {open} (\"[\" call{} \"]\" | named{})\ncall: {}\nnamed: {named}\n",
                    more("\", \" call"),
                    more(&format!("{open} named")),
                    json("name", "arguments")
                )
            }
            Family::Harmony => {
                let call = self.alternatives(|index, tool| {
                    let to = quoted(&format!("commentary to=functions.{} ", tool.name));
                    format!("<|channel|> {to} <|constrain|> \"json\" <|message|> args_{index}")
                });
                format!("calls: {call}\n")
            }
            Family::Muse => {
                let call = self.alternatives(|index, tool| {
                    let to = quoted(&format!(" to={}", tool.name));
                    let call = self.element(index, tool, &ATEM);
                    format!(
                        "{to} <|message|> \"<atem:function_calls>\\n\" {call} \
                         \"\\n</atem:function_calls>\""
                    )
                });
                format!("calls: {call}\n")
            }
        }
    }

    /// The rules of all tools' arguments.
    fn arguments(&self) -> String {
        let rules = self.tools.iter().enumerate().map(|(index, tool)| {
            self.own(index, tool)
                .unwrap_or_else(|| format!("args_{index}: %json {}\n", schema(tool)))
        });
        rules.collect()
    }

    /// The rules of a tool's arguments in the format's own words, where it has some and they
    /// suffice.
    fn own(&self, index: usize, tool: &Tool) -> Option<String> {
        let style = match self.family {
            Family::Coder => Style::Elements(&CODER),
            Family::Seed => Style::Elements(&SEED),
            Family::MiniMax => Style::Elements(&INVOKE),
            Family::Glm => Style::Elements(&GLM),
            Family::Muse => Style::Elements(&ATEM),
            Family::Lfm | Family::Olmo => Style::Python,
            Family::FunctionGemma | Family::Gemma4 => match openings(self.family).first()?.kind {
                Kind::Gemma(quote) => Style::Gemma(quote),
                _ => return None,
            },
            _ => return None,
        };
        arguments::rules(style, index, &schema(tool), self.ids)
    }

    fn all_own(&self) -> bool {
        self.tools.iter().enumerate().all(|(index, tool)| self.own(index, tool).is_some())
    }

    fn elements(&self, tags: &Tags) -> String {
        self.alternatives(|index, tool| self.element(index, tool, tags))
    }

    fn element(&self, index: usize, tool: &Tool, tags: &Tags) -> String {
        if self.own(index, tool).is_none() {
            return object(index, tool, "name", "arguments");
        }
        let head = quoted(&format!("{}{}{}\n", tags.open, tool.name, tags.named));
        format!("{head} args_{index} {}", quoted(tags.end))
    }

    /// A call of [`Kind::Named`].
    fn named(&self, index: usize, tool: &Tool) -> String {
        let mark = |mark: &str| self.mark(mark);
        match self.family {
            Family::Kimi => format!(
                "{} {} /[0-9]{{1,3}}/ {} args_{index} {}",
                mark("<|tool_call_begin|>"),
                quoted(&format!("functions.{}:", tool.name)),
                mark("<|tool_call_argument_begin|>"),
                mark("<|tool_call_end|>")
            ),
            Family::DeepSeek => format!(
                "{} \"function\" {} {} args_{index} \"\\n```\" {}",
                mark("<｜tool▁call▁begin｜>"),
                mark("<｜tool▁sep｜>"),
                quoted(&format!("{}\n```json\n", tool.name)),
                mark("<｜tool▁call▁end｜>")
            ),
            _ => format!(
                "{} {} {} args_{index} {}",
                mark("<｜tool▁call▁begin｜>"),
                quoted(&tool.name),
                mark("<｜tool▁sep｜>"),
                mark("<｜tool▁call▁end｜>")
            ),
        }
    }

    /// A mark, as its token where it is one.
    fn mark(&self, mark: &str) -> String {
        match (self.ids)(mark) {
            Some(id) => format!("<[{id}]>"),
            None => quoted(mark),
        }
    }

    fn alternatives(&self, write: impl Fn(usize, &Tool) -> String) -> String {
        let written: Vec<String> =
            self.tools.iter().enumerate().map(|(index, tool)| write(index, tool)).collect();
        written.join(" | ")
    }
}

/// `{NAME_KEY: NAME, KEY: ARGUMENTS}`, as chat templates write it. The schema stays a grammar of
/// its own, whose references begin at its own root.
fn object(index: usize, tool: &Tool, name_key: &str, key: &str) -> String {
    let head = format!("{{\"{name_key}\": {}, \"{key}\": ", quoted(&tool.name));
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
