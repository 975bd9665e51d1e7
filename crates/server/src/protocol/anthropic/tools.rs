//! Anthropic's tools and the choice of them.

use inference_core::Value;
use inference_text::answer::{Tool, ToolChoice};
use inference_text::json::to_value;
use serde_json::{Value as Json, json};

use super::tables::CACHE;
use crate::error::{ApiError, Result};
use crate::fields::bounds::check_tools;
use crate::fields::reader::Reader;
use crate::fields::table::take_hint;
use crate::protocol::conversation::{Calls, ToolFields, arguments_schema};
use crate::protocol::tools::{check_callers, tool_name};

/// The fields that errors about tools name.
const FIELDS: ToolFields =
    ToolFields { tools: "tools", choice: "tool_choice", schema: "input_schema" };

/// The tools of the field `tools`, with their definitions as templates take them.
///
/// # Errors
/// A malformed tool, named by its path.
pub fn tools(items: Vec<Json>) -> Result<(Vec<Value>, Vec<Tool>)> {
    check_tools("tools", items.len())?;
    let (mut definitions, mut tools) = (Vec::new(), Vec::<Tool>::new());
    for (index, item) in items.into_iter().enumerate() {
        let (definition, tool) = tool(Reader::new(format!("tools[{index}]"), item)?)?;
        if tools.iter().any(|earlier| earlier.name == tool.name) {
            let reason = format!("`{}` is the name of an earlier tool", tool.name);
            return Err(ApiError::value(format!("tools[{index}].name"), reason));
        }
        definitions.push(to_value(definition));
        tools.push(tool);
    }
    Ok((definitions, tools))
}

fn tool(mut tool: Reader) -> Result<(Json, Tool)> {
    if tool.text("type")?.is_some_and(|kind| kind != "custom") {
        let reason = "the server has no tools of its own; give tools by name and `input_schema`";
        return Err(ApiError::unsupported(tool.path("type"), reason));
    }
    let name = tool_name(&mut tool, 128)?;
    let schema = tool.object("input_schema")?;
    let schema = tool.need("input_schema", schema)?;
    let description = tool.text("description")?;
    let strict = tool.bool("strict")?.unwrap_or(false);
    // Hints: what is cached is found by its tokens, and a call is sent as soon as it is complete.
    take_hint(&mut tool, "cache_control", CACHE)?;
    tool.bool("eager_input_streaming")?;
    check_callers(&mut tool)?;
    if tool.list("input_examples")?.is_some_and(|examples| !examples.is_empty()) {
        let reason = "templates have no place for them; put them into the description";
        return Err(ApiError::unsupported(tool.path("input_examples"), reason));
    }
    tool.finish()?;
    let mut function = json!({"name": name});
    if let Some(description) = description {
        function["description"] = json!(description);
    }
    function["parameters"] = Json::Object(schema.clone());
    let definition = json!({"type": "function", "function": function});
    Ok((definition, Tool { name, parameters: arguments_schema(schema), strict }))
}

/// The calls that the field `tool_choice` allows.
///
/// # Errors
/// It means nothing.
pub fn calls(reader: &mut Reader) -> Result<Calls> {
    let mut calls = Calls { choice: ToolChoice::Auto, most: usize::MAX, fields: FIELDS };
    let Some(choice) = reader.take("tool_choice") else { return Ok(calls) };
    let mut choice = Reader::new("tool_choice", choice)?;
    let kind = choice.text("type")?;
    calls.choice = match choice.need("type", kind)?.as_str() {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => {
            let name = choice.text("name")?;
            ToolChoice::Named(choice.need("name", name)?)
        }
        other => {
            let reason = format!("`{other}` is not one of auto, any, tool, none");
            return Err(ApiError::value("tool_choice.type", reason));
        }
    };
    if choice.bool("disable_parallel_tool_use")? == Some(true) {
        calls.most = 1;
    }
    choice.finish()?;
    Ok(calls)
}
