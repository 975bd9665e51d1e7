//! `thinking` and `output_config`: how much to think, and what an answer holds to.

use inference_core::{Constraint, Value};
use inference_text::Effort;
use inference_text::json::to_value;
use serde_json::Value as Json;

use crate::config::Limits;
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::pool::loaded::Loaded;
use crate::protocol::conversation::{Conversation, bounded};
use crate::protocol::thinking::{self, Thinking};

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
enum Asked {
    /// The template's default.
    Own,
    /// With so many tokens at most.
    On(usize),
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
    loaded: &Loaded,
    conversation: &mut Conversation,
) -> Result<Output> {
    let effort = loaded.effort;
    let (asked, thoughts) = asked(reader)?;
    let thinking = match asked {
        Asked::Own => Thinking::default(),
        Asked::Off => thinking::switched(effort, false, "thinking.type")?,
        Asked::On(_) => thinking::switched(effort, true, "thinking.type")?,
    };
    conversation.think(thinking, ("thinking.type", "output_config"), loaded)?;
    if let Asked::On(budget) = asked {
        let bound = Thinking { budget: Some(budget), ..Thinking::default() };
        conversation.think(bound, ("thinking.budget_tokens", "output_config"), loaded)?;
    }
    let mut constraint = None;
    if let Some(config) = reader.take("output_config") {
        let mut config = Reader::new("output_config", config)?;
        if let Some(level) = config.text("effort")? {
            let variables = of_level(&level, effort, asked)?;
            conversation.set_variables(variables, "output_config", "thinking")?;
        }
        if let Some(format) = config.take("format") {
            constraint = Some(schema(Reader::new("output_config.format", format)?, limits)?);
        }
        config.finish()?;
    }
    Ok(Output { thoughts, constraint })
}

fn asked(reader: &mut Reader) -> Result<(Asked, Thoughts)> {
    let Some(asked) = reader.take("thinking") else { return Ok((Asked::Own, Thoughts::Told)) };
    let mut asked = Reader::new("thinking", asked)?;
    let kind = asked.text("type")?;
    let mode = match asked.need("type", kind)?.as_str() {
        "adaptive" => Asked::Own,
        "disabled" => Asked::Off,
        "enabled" => {
            let budget = asked.count("budget_tokens")?;
            let budget = asked.need("budget_tokens", budget)?;
            if budget < LEAST_BUDGET {
                let reason = format!("expected at least {LEAST_BUDGET}");
                return Err(ApiError::value("thinking.budget_tokens", reason));
            }
            Asked::On(budget)
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
    Ok((mode, thoughts))
}

/// The template's variables for the effort `level`.
fn of_level(level: &str, effort: Effort, asked: Asked) -> Result<Vec<(String, Value)>> {
    if !["low", "medium", "high", "xhigh", "max"].contains(&level) {
        let reason = format!("`{level}` is not one of low, medium, high, xhigh, max");
        return Err(ApiError::value("output_config.effort", reason));
    }
    // `high` is what leaving it out means.
    if level == "high" && effort == Effort::Unknown {
        return Ok(Vec::new());
    }
    let mut variables = thinking::level(effort, level, "output_config.effort")?.variables;
    // Whether to think at all is `thinking`'s to say.
    if asked != Asked::Own {
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
