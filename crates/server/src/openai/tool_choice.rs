//! `tool_choice`: whether an answer may or must call tools.

use serde_json::Value as Json;

use super::messages::Tools;
use crate::answer::ToolChoice;
use crate::error::{ApiError, Result};
use crate::reader::{Reader, expected};

/// What the field `tool_choice` asks for, with `tools` to choose from.
///
/// # Errors
/// It names no tool, or there are none.
pub fn choice(reader: &mut Reader, tools: &Tools) -> Result<ToolChoice> {
    let choice = match reader.take("tool_choice") {
        None => return Ok(ToolChoice::Auto),
        Some(Json::String(name)) => match name.as_str() {
            "none" => ToolChoice::None,
            "auto" => ToolChoice::Auto,
            "required" => ToolChoice::Required,
            other => {
                let reason = format!("`{other}` is not one of none, auto, required");
                return Err(ApiError::value("tool_choice", reason));
            }
        },
        Some(choice @ Json::Object(_)) => named(Reader::new("tool_choice", choice)?)?,
        Some(other) => return Err(expected("tool_choice", "a string or an object", &other)),
    };
    match &choice {
        ToolChoice::Required | ToolChoice::Named(_) if tools.callable.is_empty() => {
            Err(ApiError::value("tool_choice", "there are no `tools` to choose from"))
        }
        ToolChoice::Named(name) if !tools.callable.iter().any(|tool| tool.name == *name) => {
            Err(ApiError::value("tool_choice", format!("there is no tool `{name}`")))
        }
        _ => Ok(choice),
    }
}

fn named(mut choice: Reader) -> Result<ToolChoice> {
    let kind = choice.text("type")?;
    if choice.need("type", kind)? != "function" {
        return Err(ApiError::unsupported("tool_choice.type", "tools are functions"));
    }
    let function = choice.take("function");
    let function = choice.need("function", function)?;
    choice.finish()?;
    let mut function = Reader::new("tool_choice.function", function)?;
    let name = function.text("name")?;
    let name = function.need("name", name)?;
    function.finish()?;
    Ok(ToolChoice::Named(name))
}
