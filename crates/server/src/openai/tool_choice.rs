//! `tool_choice`: whether an answer may or must call tools.

use serde_json::Value as Json;

use super::messages::Tools;
use crate::answer::{Tool, ToolChoice};
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

/// Whether the schema of each tool that the answer is held to can be that of a call's arguments, which
/// are an object.
///
/// # Errors
/// The first tool whose schema is that of something else.
pub fn check_schemas(tools: &[Tool], choice: &ToolChoice) -> Result<()> {
    let held = |tool: &Tool| match choice {
        ToolChoice::None => false,
        // One strict tool makes a grammar of all of them.
        ToolChoice::Auto => tools.iter().any(|tool| tool.strict),
        ToolChoice::Required => true,
        ToolChoice::Named(name) => tool.name == *name,
    };
    let kind = |tool: &Tool| tool.parameters.get("type").filter(|kind| *kind != "object").cloned();
    let wrong = tools.iter().enumerate().filter(|(_, tool)| held(tool));
    match wrong.map(|(index, tool)| (index, kind(tool))).find_map(|(i, k)| Some((i, k?))) {
        Some((index, kind)) => {
            let reason = format!(
                "expected the schema of an object, since the answer is held to it; found the type \
                 {kind}"
            );
            Err(ApiError::value(format!("tools[{index}].function.parameters"), reason))
        }
        None => Ok(()),
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
