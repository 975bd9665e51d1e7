//! Parts that the tools of all protocols share: names, arguments of calls, and refused options.

use serde_json::{Map, Value as Json};

use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;

/// The `name` of a tool, of at most `longest` bytes.
///
/// # Errors
/// It is missing, too long, or has other characters than those of names.
pub fn tool_name(tool: &mut Reader, longest: usize) -> Result<String> {
    let name = tool.text("name")?;
    let name = tool.need("name", name)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > longest || !name.chars().all(fits) {
        let reason = format!("expected up to {longest} letters, digits, `_`, `-` and `.`");
        return Err(ApiError::value(tool.path("name"), reason));
    }
    Ok(name)
}

/// Takes from a tool how it would be told and who would call it.
///
/// # Errors
/// It is told later than others, or code calls it.
pub fn check_callers(tool: &mut Reader) -> Result<()> {
    if tool.bool("defer_loading")? == Some(true) {
        let reason = "the model is told of all tools at once";
        return Err(ApiError::unsupported(tool.path("defer_loading"), reason));
    }
    if tool.texts("allowed_callers")?.is_some_and(|callers| callers != ["direct"]) {
        let reason = "the server runs no code that could call tools";
        return Err(ApiError::unsupported(tool.path("allowed_callers"), reason));
    }
    Ok(())
}

/// The arguments of a call, JSON in a string, as an object. Some clients send an empty string where
/// there are none. Where it is no object that can be read, as one with a number beyond those of 64
/// bits, it stays text.
pub fn arguments(text: String) -> Json {
    if text.trim().is_empty() {
        return Json::Object(Map::new());
    }
    match serde_json::from_str(&text) {
        Ok(Json::Object(arguments)) => Json::Object(arguments),
        _ => Json::String(text),
    }
}
