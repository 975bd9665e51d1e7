//! `tool_choice`: whether an answer may or must call tools.

use inference_text::answer::ToolChoice;
use serde_json::Value as Json;

use crate::error::{ApiError, Result};
use crate::fields::reader::{Reader, expected};

/// The choice that the field `tool_choice` asks for.
///
/// # Errors
/// It means nothing.
pub fn choice(reader: &mut Reader) -> Result<ToolChoice> {
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
    Ok(choice)
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
