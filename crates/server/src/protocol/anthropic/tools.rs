//! Anthropic's tools and the choice of them.

use inference_core::Value;
use inference_text::answer::{Tool, ToolChoice};
use inference_text::json::to_value;
use serde_json::{Value as Json, json};

use super::client_tools;
use super::tables::CACHE;
use crate::error::{ApiError, Result};
use crate::fields::bounds::check_tools;
use crate::fields::reader::Reader;
use crate::fields::table::take_object;
use crate::protocol::conversation::{Calls, ToolFields, arguments_schema};
use crate::protocol::hosted::leave_out;
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
        let Some((definition, tool)) = tool(Reader::new(format!("tools[{index}]"), item)?)? else {
            continue;
        };
        if tools.iter().any(|earlier| earlier.name == tool.name) {
            let reason = format!("`{}` is the name of an earlier tool", tool.name);
            return Err(ApiError::value(format!("tools[{index}].name"), reason));
        }
        definitions.push(to_value(definition));
        tools.push(tool);
    }
    Ok((definitions, tools))
}

/// A tool with its definition; `None` for one that Anthropic's servers run.
fn tool(mut tool: Reader) -> Result<Option<(Json, Tool)>> {
    let kind = tool.text("type")?.unwrap_or_else(|| "custom".to_owned());
    let own = client_tools::known(&kind);
    if own.is_none() && kind != "custom" {
        if leave_out(&tool, &kind)? {
            return Ok(None);
        }
        let reason = "it is no kind of tool that is known; give tools by name and `input_schema`";
        return Err(ApiError::unsupported(tool.path("type"), reason));
    }
    let name = tool_name(&mut tool, 128)?;
    let (description, schema) = match own {
        Some((about, schema)) => {
            tool.hints(&["max_characters"], "the client runs the tool")?;
            (Some(about.to_owned()), schema)
        }
        None => {
            let schema = tool.object("input_schema")?;
            (tool.text("description")?, tool.need("input_schema", schema)?)
        }
    };
    let strict = tool.bool("strict")?.unwrap_or(false);
    // Hints: what is cached is found by its tokens, and a call is sent as soon as it is complete.
    take_object(&mut tool, "cache_control", CACHE)?;
    tool.bool("eager_input_streaming")?;
    check_callers(&mut tool)?;
    let examples = tool.list("input_examples")?.filter(|examples| !examples.is_empty());
    tool.finish()?;
    // Templates have no other place for them.
    let examples = examples.map(|examples| {
        let lines: Vec<_> = examples.iter().map(Json::to_string).collect();
        format!("Examples of its input:\n{}", lines.join("\n"))
    });
    let about: Vec<_> = description.into_iter().chain(examples).collect();
    let mut function = json!({"name": name});
    if !about.is_empty() {
        function["description"] = json!(about.join("\n\n"));
    }
    function["parameters"] = Json::Object(schema.clone());
    let definition = json!({"type": "function", "function": function});
    Ok(Some((definition, Tool { name, parameters: arguments_schema(schema), strict })))
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
