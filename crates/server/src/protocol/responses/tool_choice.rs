//! `tool_choice`: whether an answer may or must call tools, and which.

use inference_text::answer::ToolChoice;
use serde_json::Value as Json;

use super::tools::{Tools, full_name};
use crate::error::{ApiError, Result};
use crate::fields::reader::{Reader, expected};
use crate::protocol::hosted::leave_out;

/// The choice that the field `tool_choice` asks for.
///
/// Tools that must not be called are taken out of `tools`.
///
/// # Errors
/// It means nothing.
pub fn choice(reader: &mut Reader, tools: &mut Tools) -> Result<ToolChoice> {
    match reader.take("tool_choice") {
        None => Ok(ToolChoice::Auto),
        Some(Json::String(name)) => match name.as_str() {
            "none" => Ok(ToolChoice::None),
            "auto" => Ok(ToolChoice::Auto),
            "required" => Ok(ToolChoice::Required),
            other => {
                let reason = format!("`{other}` is not one of none, auto, required");
                Err(ApiError::value("tool_choice", reason))
            }
        },
        Some(choice @ Json::Object(_)) => of_object(Reader::new("tool_choice", choice)?, tools),
        Some(other) => Err(expected("tool_choice", "a string or an object", &other)),
    }
}

fn of_object(mut choice: Reader, tools: &mut Tools) -> Result<ToolChoice> {
    let kind = choice.text("type")?;
    match choice.need("type", kind)?.as_str() {
        "function" | "custom" => named(choice).map(ToolChoice::Named),
        "allowed_tools" => {
            let mode = choice.text("mode")?;
            let mode = match choice.need("mode", mode)?.as_str() {
                "auto" => ToolChoice::Auto,
                "required" => ToolChoice::Required,
                other => {
                    let reason = format!("`{other}` is not one of auto, required");
                    return Err(ApiError::value(choice.path("mode"), reason));
                }
            };
            let items = choice.list("tools")?;
            let items = choice.need("tools", items)?;
            choice.finish()?;
            let mut names = Vec::new();
            for (index, item) in items.into_iter().enumerate() {
                let path = format!("tool_choice.tools[{index}]");
                let mut item = Reader::new(&path, item)?;
                let kind = item.text("type")?;
                let kind = item.need("type", kind)?;
                if leave_out(&item, &kind)? {
                    continue;
                }
                if !["function", "custom"].contains(&kind.as_str()) {
                    return Err(foreign(format!("{path}.type"), &kind));
                }
                let name = named(item)?;
                if !tools.known.contains_key(&name) {
                    let reason = format!("there is no tool `{name}`");
                    return Err(ApiError::value(path, reason));
                }
                names.push(name);
            }
            tools.retain(&names);
            Ok(mode)
        }
        other => Err(foreign("tool_choice.type".to_owned(), other)),
    }
}

fn foreign(path: String, kind: &str) -> ApiError {
    let reason = format!("the server has no `{kind}` of its own");
    ApiError::unsupported(path, reason)
}

/// The name that the model knows the chosen tool by.
fn named(mut tool: Reader) -> Result<String> {
    let name = tool.text("name")?;
    let name = tool.need("name", name)?;
    let namespace = tool.text("namespace")?;
    tool.finish()?;
    Ok(full_name(namespace.as_deref(), &name))
}
