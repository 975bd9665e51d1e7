//! One tool call, and the JSON that families write it in.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A complete call of a known tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    /// A JSON object.
    pub arguments: String,
}

/// The tools that may be called.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// Each with the schema of its arguments, where it is known.
    tools: BTreeMap<String, Option<Value>>,
}

impl Tools {
    pub fn new(tools: impl Iterator<Item = (String, Option<Value>)>) -> Tools {
        Tools { tools: tools.collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    pub fn has(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// The tool that `name` means, which may stand behind a namespace and a dot.
    pub fn resolve<'a>(&self, name: &'a str) -> Option<&'a str> {
        let bare = name.rsplit_once('.').map(|(_, bare)| bare);
        [Some(name), bare].into_iter().flatten().find(|name| self.has(name))
    }

    /// The schema of a tool's arguments, where it is known.
    pub fn schema(&self, name: &str) -> Option<&Value> {
        self.tools.get(name)?.as_ref()
    }

    /// A call of this name, if there is a tool of it, with these arguments, if they are an object.
    pub fn call(&self, name: &str, arguments: &str) -> Option<Call> {
        if !self.has(name) {
            return None;
        }
        Some(Call { name: name.to_owned(), arguments: object_text(arguments)? })
    }

    /// The call that these arguments are for, where they tell: there is one tool, or one that they fit.
    pub fn fitting(&self, arguments: &str) -> Option<Call> {
        let object: Map<String, Value> = serde_json::from_str(arguments).ok()?;
        let mut tools = self.tools.iter().filter(|(_, schema)| {
            let fits = || schema.as_ref().is_some_and(|schema| takes(schema, &object));
            self.tools.len() == 1 || fits()
        });
        let (name, _) = tools.next()?;
        match tools.next() {
            Some(_) => None,
            None => self.call(name, arguments),
        }
    }
}

/// Whether the object that `schema` describes may have these keys, and no others.
fn takes(schema: &Value, object: &Map<String, Value>) -> bool {
    let known = schema["properties"].as_object();
    let mut required = schema["required"].as_array().into_iter().flatten();
    object.keys().all(|key| known.is_some_and(|known| known.contains_key(key)))
        && required.all(|key| key.as_str().is_some_and(|key| object.contains_key(key)))
}

/// Whether a call may leave its arguments out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    Required,
    Optional,
}

/// The calls of `{"name": …, "arguments": {…}}`, with `tool_name` for `name` and `parameters` for
/// `arguments` too, or of an array of such objects; all of them or none.
pub fn json_calls(text: &str, tools: &Tools, arguments: Arguments) -> Option<Vec<Call>> {
    type Fields<'a> = BTreeMap<String, &'a RawValue>;
    let objects: Vec<Fields> = match text.trim_start().starts_with('[') {
        true => serde_json::from_str(text).ok()?,
        false => vec![serde_json::from_str(text).ok()?],
    };
    if objects.is_empty() {
        return None;
    }
    let call = |fields: &Fields| {
        let name = fields.get("name").or_else(|| fields.get("tool_name"))?;
        let name: String = serde_json::from_str(name.get()).ok()?;
        match fields.get("arguments").or_else(|| fields.get("parameters")) {
            Some(value) => tools.call(&name, value.get()),
            None if arguments == Arguments::Optional => tools.call(&name, "{}"),
            None => None,
        }
    };
    objects.iter().map(call).collect()
}

/// `text` where it is a JSON object; what it says where it is a string that holds one; `{}` where
/// it is `null`.
fn object_text(text: &str) -> Option<String> {
    match serde_json::from_str(text).ok()? {
        Value::Object(_) => Some(text.trim().to_owned()),
        Value::String(inner) => {
            let object: Value = serde_json::from_str(&inner).ok()?;
            object.is_object().then(|| inner.trim().to_owned())
        }
        Value::Null => Some("{}".to_owned()),
        _ => None,
    }
}
