//! How a conversation is rendered, and options that are refused by name.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use inference_core::{ChatOptions, TextModel, Value};
use inference_text::Effort;

use super::values::TemplateKwargs;
use crate::failure::{Failure, Result};
use crate::{files, json};

/// How a conversation is rendered.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Prompt")]
pub struct TemplateArgs {
    /// Instructions that stand over the conversation
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Tools that the model may call: a JSON array of definitions
    #[arg(long, value_name = "FILE")]
    pub tools: Option<PathBuf>,
    /// Further variables of the chat template, such as '{"enable_thinking": false}'
    #[arg(long, value_name = "JSON")]
    pub chat_template_kwargs: Option<TemplateKwargs>,
    /// How much to think; refused where the chat template knows nothing of it
    #[arg(long, value_name = "LEVEL")]
    pub reasoning_effort: Option<ReasoningEffort>,
}

/// How much a model thinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum ReasoningEffort {
    /// Not at all.
    None,
    /// As little as it can.
    Minimal,
    /// A little.
    Low,
    /// As usual.
    Medium,
    /// Much.
    High,
    /// More.
    XHigh,
    /// As much as it can.
    Max,
}

impl TemplateArgs {
    /// The contract's options.
    ///
    /// # Errors
    /// A tools file that cannot be read or is no array of objects.
    pub fn options(&self) -> Result<ChatOptions> {
        let tools = match &self.tools {
            None => Vec::new(),
            Some(path) => {
                let name = path.display().to_string();
                let value = json::parse(&files::read(path)?, &name)?;
                match value {
                    Value::Array(tools)
                        if tools.iter().all(|tool| matches!(tool, Value::Object(_))) =>
                    {
                        tools
                    }
                    _ => {
                        return Err(Failure::Other(format!(
                            "{name}: expected a JSON array of tool definitions"
                        )));
                    }
                }
            }
        };
        let template_kwargs = self.chat_template_kwargs.clone().map_or_else(Vec::new, |k| k.0);
        Ok(ChatOptions { tools, template_kwargs, ..Default::default() })
    }

    /// `chat` with the variables that tell the template of `model` how much to think.
    ///
    /// # Errors
    /// The template does not know of it, or another option contradicts it.
    pub fn with_effort(&self, mut chat: ChatOptions, model: &dyn TextModel) -> Result<ChatOptions> {
        let Some(effort) = self.reasoning_effort else { return Ok(chat) };
        let level = effort.to_possible_value().map(|value| value.get_name().to_owned());
        let level = level.unwrap_or_default();
        let refused =
            |reason: &str| Failure::Usage(format!("--reasoning-effort {level}: {reason}"));
        for (name, value) in Effort::probe(model).variables(&level).map_err(refused)? {
            let given = chat.template_kwargs.iter().find(|(other, _)| *other == name);
            match given {
                None => chat.template_kwargs.push((name, value)),
                Some((_, other)) if *other == value => {}
                Some(_) => {
                    let reason = format!("--chat-template-kwargs has another `{name}`");
                    return Err(refused(&reason));
                }
            }
        }
        Ok(chat)
    }
}
