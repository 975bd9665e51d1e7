//! Google's tools and the choice among them.

use inference_core::Value;
use inference_text::answer::{Tool, ToolChoice};
use inference_text::json::to_value;
use serde_json::{Value as Json, json};

use super::names::{one_or_many, reader as object};
use super::schema::json_schema;
use crate::error::{ApiError, Result};
use crate::fields::bounds::check_tools;
use crate::fields::reader::Reader;
use crate::protocol::conversation::{Calls, ToolFields, arguments_schema};
use crate::protocol::hosted::leave_out_at;
use crate::protocol::tools::tool_name;

/// The field that says whether functions are called.
const MODE: &str = "toolConfig.functionCallingConfig.mode";

/// The fields that errors about tools name.
const FIELDS: ToolFields = ToolFields { tools: "tools", choice: MODE, schema: "parameters" };

/// Tools that Google's servers run themselves.
const HOSTED: [&str; 12] = [
    "googleSearch",
    "googleSearchRetrieval",
    "codeExecution",
    "urlContext",
    "googleMaps",
    "enterpriseWebSearch",
    "fileSearch",
    "computerUse",
    "exaAiSearch",
    "parallelAiSearch",
    "retrieval",
    "mcpServers",
];

/// Functions, with their definitions as templates take them.
#[derive(Debug, Default)]
pub struct Tools {
    /// The definitions.
    pub definitions: Vec<Value>,
    /// The functions, in the same order.
    pub callable: Vec<Tool>,
}

impl Tools {
    /// Keeps those of these names.
    fn retain(&mut self, names: &[String]) {
        let kept: Vec<bool> = self.callable.iter().map(|tool| names.contains(&tool.name)).collect();
        let mut keeps = kept.iter();
        self.definitions.retain(|_| keeps.next() == Some(&true));
        let mut keeps = kept.iter();
        self.callable.retain(|_| keeps.next() == Some(&true));
    }
}

/// The functions of the field `tools`.
///
/// # Errors
/// A malformed tool, named by its path.
pub fn tools(reader: &mut Reader) -> Result<Tools> {
    let mut tools = Tools::default();
    let path = reader.path("tools");
    let Some(items) = reader.take("tools") else { return Ok(tools) };
    for (index, item) in one_or_many(&path, items)?.into_iter().enumerate() {
        let mut tool = object(format!("{path}[{index}]"), item)?;
        for kind in HOSTED {
            if tool.take(kind).is_some() {
                leave_out_at(&tool.path(kind), kind)?;
            }
        }
        let path = tool.path("functionDeclarations");
        let functions = tool.take("functionDeclarations");
        let functions = functions.map(|functions| one_or_many(&path, functions)).transpose()?;
        tool.finish()?;
        let functions = functions.unwrap_or_default();
        check_tools(&path, tools.callable.len().saturating_add(functions.len()))?;
        for (at, function) in functions.into_iter().enumerate() {
            let function = object(format!("{path}[{at}]"), function)?;
            let name = function.path("name");
            let (definition, tool) = declared(function)?;
            if tools.callable.iter().any(|earlier| earlier.name == tool.name) {
                let reason = format!("`{}` is the name of an earlier function", tool.name);
                return Err(ApiError::value(name, reason));
            }
            tools.definitions.push(to_value(definition));
            tools.callable.push(tool);
        }
    }
    Ok(tools)
}

fn declared(mut function: Reader) -> Result<(Json, Tool)> {
    let name = tool_name(&mut function, 128)?;
    let description = function.text("description")?;
    let path = function.path("parameters");
    let of_google = function.take("parameters");
    let plain = function.object("parametersJsonSchema")?.map(Json::Object);
    let schema = match (of_google, plain) {
        (Some(_), Some(_)) => {
            let reason = "cannot be combined with `parametersJsonSchema`";
            return Err(ApiError::value(path, reason));
        }
        (Some(schema), None) => Some(json_schema(&path, schema)?),
        (None, schema) => schema,
    };
    // A function without parameters has an empty object of them.
    let schema = schema.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    if function.text("behavior")?.is_some_and(|behavior| behavior == "NON_BLOCKING") {
        let reason = "an answer waits for what its calls bring";
        return Err(ApiError::unsupported(function.path("behavior"), reason));
    }
    let reason = "a result is taken as it is";
    function.hints(&["response", "responseJsonSchema"], reason)?;
    function.finish()?;
    let mut told = json!({"name": name});
    if let Some(description) = description.filter(|description| !description.is_empty()) {
        told["description"] = json!(description);
    }
    told["parameters"] = schema.clone();
    let parameters = match schema {
        Json::Object(schema) => arguments_schema(schema),
        other => other,
    };
    let definition = json!({"type": "function", "function": told});
    Ok((definition, Tool { name, parameters, strict: false }))
}

/// The calls that the field `toolConfig` allows; those of `tools` that are not allowed are taken
/// out.
///
/// # Errors
/// It means nothing.
pub fn calls(reader: &mut Reader, tools: &mut Tools) -> Result<Calls> {
    let mut calls = Calls { choice: ToolChoice::Auto, most: usize::MAX, fields: FIELDS };
    let path = reader.path("toolConfig");
    let Some(config) = reader.take("toolConfig") else { return Ok(calls) };
    let mut config = object(path, config)?;
    let reason = "the server looks nothing up";
    config.hints(&["retrievalConfig", "includeServerSideToolInvocations"], reason)?;
    let path = config.path("functionCallingConfig");
    let calling = config.take("functionCallingConfig");
    config.finish()?;
    let Some(calling) = calling else { return Ok(calls) };
    let mut calling = object(path, calling)?;
    let mode = calling.text("mode")?.unwrap_or_else(|| "AUTO".to_owned());
    let names = calling.texts("allowedFunctionNames")?.unwrap_or_default();
    let at = calling.path("allowedFunctionNames");
    calling.hints(&["streamFunctionCallArguments"], "a call is told as a whole")?;
    calls.choice = match mode.to_ascii_uppercase().as_str() {
        "AUTO" | "MODE_UNSPECIFIED" => ToolChoice::Auto,
        "ANY" => ToolChoice::Required,
        "NONE" => ToolChoice::None,
        "VALIDATED" => {
            tools.callable.iter_mut().for_each(|tool| tool.strict = true);
            ToolChoice::Auto
        }
        _ => {
            let reason = format!("`{mode}` is not one of AUTO, ANY, NONE, VALIDATED");
            return Err(ApiError::value(calling.path("mode"), reason));
        }
    };
    calling.finish()?;
    if names.is_empty() {
        return Ok(calls);
    }
    if !["ANY", "VALIDATED"].contains(&mode.to_ascii_uppercase().as_str()) {
        return Err(ApiError::value(at, "belongs to the modes ANY and VALIDATED"));
    }
    for (index, name) in names.iter().enumerate() {
        if !tools.callable.iter().any(|tool| tool.name == *name) {
            let reason = format!("there is no function `{name}`");
            return Err(ApiError::value(format!("{at}[{index}]"), reason));
        }
    }
    tools.retain(&names);
    Ok(calls)
}
