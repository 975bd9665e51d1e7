//! `thinking` and `output_config`: how much to think, and what an answer holds to.

use inference_core::Constraint;
use inference_text::Effort;
use inference_text::json::to_value;
use serde_json::Value as Json;

use crate::config::Limits;
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::protocol::conversation::{Conversation, bounded};
use crate::protocol::thinking::{self, Variables};

/// The least `budget_tokens`.
const LEAST_BUDGET: usize = 1024;

/// How thoughts are written in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoughts {
    /// They are told.
    Told,
    /// Their blocks are there, and empty.
    Omitted,
}

/// The form of the answer, from `thinking` and `output_config`.
#[derive(Debug)]
pub struct Output {
    /// How thoughts are written in the answer.
    pub thoughts: Thoughts,
    /// The constraint that the answer holds to.
    pub constraint: Option<Constraint>,
}

/// The mode that `thinking` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thinking {
    /// The template's default.
    Own,
    On,
    Off,
}

/// Takes `thinking` and `output_config`, and tells the template of `conversation` how much to
/// think.
///
/// # Errors
/// A value means nothing, or the template does not know it.
pub fn output(
    reader: &mut Reader,
    limits: &Limits,
    effort: Effort,
    conversation: &mut Conversation,
) -> Result<Output> {
    let (asked, thoughts) = asked(reader)?;
    let mut variables = match asked {
        Thinking::Own => Vec::new(),
        Thinking::Off => thinking::switched(effort, false, "thinking.type")?,
        Thinking::On => thinking::switched(effort, true, "thinking.type")?,
    };
    let mut constraint = None;
    if let Some(config) = reader.take("output_config") {
        let mut config = Reader::new("output_config", config)?;
        if let Some(level) = config.text("effort")? {
            variables.extend(of_level(&level, effort, asked)?);
        }
        if let Some(format) = config.take("format") {
            constraint = Some(schema(Reader::new("output_config.format", format)?, limits)?);
        }
        config.finish()?;
    }
    conversation.set_variables(variables, "output_config", "thinking")?;
    Ok(Output { thoughts, constraint })
}

fn asked(reader: &mut Reader) -> Result<(Thinking, Thoughts)> {
    let Some(asked) = reader.take("thinking") else { return Ok((Thinking::Own, Thoughts::Told)) };
    let mut asked = Reader::new("thinking", asked)?;
    let kind = asked.text("type")?;
    let thinking = match asked.need("type", kind)?.as_str() {
        "adaptive" => Thinking::Own,
        "disabled" => Thinking::Off,
        "enabled" => {
            let budget = asked.count("budget_tokens")?;
            if asked.need("budget_tokens", budget)? < LEAST_BUDGET {
                let reason = format!("expected at least {LEAST_BUDGET}");
                return Err(ApiError::value("thinking.budget_tokens", reason));
            }
            Thinking::On
        }
        other => {
            let reason = format!("`{other}` is not one of enabled, adaptive, disabled");
            return Err(ApiError::unsupported("thinking.type", reason));
        }
    };
    let thoughts = match asked.text("display")?.as_deref() {
        None | Some("summarized") => Thoughts::Told,
        Some("omitted") => Thoughts::Omitted,
        Some(other) => {
            let reason = format!("`{other}` is not one of summarized, omitted");
            return Err(ApiError::value("thinking.display", reason));
        }
    };
    asked.finish()?;
    Ok((thinking, thoughts))
}

/// The template's variables for the effort `level`.
fn of_level(level: &str, effort: Effort, asked: Thinking) -> Result<Variables> {
    if !["low", "medium", "high", "xhigh", "max"].contains(&level) {
        let reason = format!("`{level}` is not one of low, medium, high, xhigh, max");
        return Err(ApiError::value("output_config.effort", reason));
    }
    // `high` is what leaving it out means.
    if level == "high" && effort == Effort::Unknown {
        return Ok(Vec::new());
    }
    let mut variables = thinking::level(effort, level, "output_config.effort")?;
    // Whether to think at all is `thinking`'s to say.
    if asked != Thinking::Own {
        variables.retain(|(name, _)| name != "enable_thinking");
    }
    Ok(variables)
}

fn schema(mut format: Reader, limits: &Limits) -> Result<Constraint> {
    let kind = format.text("type")?;
    if format.need("type", kind)? != "json_schema" {
        return Err(ApiError::value(format.path("type"), "expected `json_schema`"));
    }
    let schema = format.object("schema")?;
    let schema = Json::Object(format.need("schema", schema)?);
    let path = format.path("schema");
    format.finish()?;
    bounded(&path, schema.to_string().len(), limits)?;
    Ok(Constraint::JsonSchema(to_value(schema)))
}
