//! `tools`: functions and custom tools, by themselves and in namespaces.

use std::collections::BTreeMap;

use inference_core::Value;
use inference_text::answer::Tool;
use inference_text::json::to_value;
use serde_json::{Value as Json, json};

use crate::error::{ApiError, Result};
use crate::fields::bounds::{check_repeated, check_tools};
use crate::fields::reader::Reader;
use crate::protocol::conversation::arguments_schema;
use crate::protocol::hosted::leave_out;
use crate::protocol::tools::{check_callers, tool_name};

/// The argument in which the model gives the input of a custom tool.
pub const INPUT: &str = "input";

/// The longest name of a tool.
const LONGEST: usize = 64;

/// The tools of a request.
#[derive(Debug, Default)]
pub struct Tools {
    /// Their definitions, as templates take them.
    pub definitions: Vec<Value>,
    /// The tools to which answers are held and with which they are read, in the same order.
    pub callable: Vec<Tool>,
    /// The client's names of them, by the names that the model knows.
    pub known: Known,
}

/// The client's names of tools, by the names that the model knows.
pub type Known = BTreeMap<String, Called>;

/// A tool as the client calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// The form of its input.
    pub takes: Takes,
    /// Its name.
    pub name: String,
    /// The namespace that it is in.
    pub namespace: Option<String>,
}

/// The form of a tool's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A JSON object.
    Arguments,
    /// Text.
    Input,
}

/// The name that the model knows a tool by.
pub fn full_name(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}__{name}"))
}

/// The tools of the field `tools`.
///
/// # Errors
/// A malformed tool, named by its path.
pub fn tools(items: Vec<Json>) -> Result<Tools> {
    let mut tools = Tools::default();
    for (index, item) in items.into_iter().enumerate() {
        let mut tool = Reader::new(format!("tools[{index}]"), item)?;
        let kind = tool.text("type")?;
        let kind = tool.need("type", kind)?;
        match kind.as_str() {
            "namespace" => tools.add_namespace(tool)?,
            kind if leave_out(&tool, kind)? => {}
            kind => tools.add(tool, kind, None, None)?,
        }
        check_tools("tools", tools.callable.len())?;
    }
    Ok(tools)
}

impl Tools {
    fn add_namespace(&mut self, mut space: Reader) -> Result<()> {
        let name = tool_name(&mut space, LONGEST)?;
        let about = space.text("description")?;
        let path = space.path("tools");
        let items = space.list("tools")?;
        let items = space.need("tools", items)?;
        space.finish()?;
        // It goes before the description of each.
        check_repeated(&path, about.as_deref().map_or(0, str::len), items.len())?;
        for (index, item) in items.into_iter().enumerate() {
            let mut tool = Reader::new(format!("{path}[{index}]"), item)?;
            let kind = tool.text("type")?;
            let kind = tool.need("type", kind)?;
            if !leave_out(&tool, &kind)? {
                self.add(tool, &kind, Some(&name), about.as_deref())?;
            }
            check_tools("tools", self.callable.len())?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        mut tool: Reader,
        kind: &str,
        namespace: Option<&str>,
        about: Option<&str>,
    ) -> Result<()> {
        let (takes, schema, strict) = match kind {
            "function" => {
                let (schema, strict) = function(&mut tool)?;
                (Takes::Arguments, schema, strict)
            }
            "custom" => {
                let (schema, strict) = custom(&mut tool)?;
                (Takes::Input, schema, strict)
            }
            other => {
                let reason = format!("`{other}` is no kind of tool that is known");
                return Err(ApiError::value(tool.path("type"), reason));
            }
        };
        let own_name = tool_name(&mut tool, LONGEST)?;
        let description = tool.text("description")?;
        common(&mut tool)?;
        let full = full_name(namespace, &own_name);
        let called = Called { takes, name: own_name, namespace: namespace.map(str::to_owned) };
        if self.known.insert(full.clone(), called).is_some() {
            let reason = format!("`{full}` is the name of an earlier tool");
            return Err(ApiError::value(tool.path("name"), reason));
        }
        tool.finish()?;
        let mut definition = json!({"name": full});
        let texts: Vec<&str> = [about, description.as_deref()].into_iter().flatten().collect();
        if !texts.is_empty() {
            definition["description"] = json!(texts.join("\n\n"));
        }
        if let Some(schema) = &schema {
            definition["parameters"] = schema.clone();
        }
        self.definitions.push(to_value(json!({"type": "function", "function": definition})));
        let parameters = match schema {
            Some(Json::Object(schema)) => arguments_schema(schema),
            _ => json!({"type": "object"}),
        };
        self.callable.push(Tool { name: full, parameters, strict });
        Ok(())
    }

    /// Leaves the tools alone that the model knows by `names`.
    pub fn retain(&mut self, names: &[String]) {
        let keep: Vec<bool> = self.callable.iter().map(|tool| names.contains(&tool.name)).collect();
        let mut kept = keep.iter();
        self.definitions.retain(|_| kept.next() == Some(&true));
        let mut kept = keep.iter();
        self.callable.retain(|_| kept.next() == Some(&true));
    }
}

/// A function's schema, and whether it is held to it.
fn function(tool: &mut Reader) -> Result<(Option<Json>, bool)> {
    let strict = tool.bool("strict")?.unwrap_or(false);
    // It tells what comes back, which is the client's to say.
    tool.object("output_schema")?;
    let Some(schema) = tool.object("parameters")? else { return Ok((None, strict)) };
    let kind = schema.get("type");
    let is_object = kind.is_none_or(|kind| {
        let kinds = kind.as_array().map_or(std::slice::from_ref(kind), Vec::as_slice);
        kinds.contains(&json!("object"))
    });
    if !is_object {
        let reason = "expected the schema of an object";
        return Err(ApiError::value(tool.path("parameters"), reason));
    }
    Ok((Some(Json::Object(schema)), strict))
}

/// The schema of a custom tool's input, and whether it is held to it.
fn custom(tool: &mut Reader) -> Result<(Option<Json>, bool)> {
    let mut input = json!({"type": "string"});
    let mut strict = false;
    if let Some(format) = tool.take("format") {
        let mut format = Reader::new(tool.path("format"), format)?;
        let kind = format.text("type")?;
        match format.need("type", kind)?.as_str() {
            "text" => {}
            "grammar" => {
                let syntax = format.text("syntax")?;
                let syntax = format.need("syntax", syntax)?;
                let definition = format.text("definition")?;
                let definition = format.need("definition", definition)?;
                if syntax != "regex" {
                    let reason = "inputs are written as JSON, whose strings are held to a `regex` \
                                  and to no other grammar; describe it in `description`";
                    return Err(ApiError::unsupported(format.path("syntax"), reason));
                }
                input["pattern"] = json!(format!("^(?:{definition})$"));
                strict = true;
            }
            other => {
                let reason = format!("`{other}` is not one of text, grammar");
                return Err(ApiError::value(format.path("type"), reason));
            }
        }
        format.finish()?;
    }
    let schema = json!({
        "type": "object",
        "properties": {INPUT: input},
        "required": [INPUT],
        "additionalProperties": false,
    });
    Ok((Some(schema), strict))
}

/// Takes what all kinds have, and what none can do.
fn common(tool: &mut Reader) -> Result<()> {
    check_callers(tool)?;
    if tool.bool("async")? == Some(true) {
        let reason = "an answer ends with its calls";
        return Err(ApiError::unsupported(tool.path("async"), reason));
    }
    Ok(())
}
