//! One tool call, and the JSON that families write it in.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::json_scan::MAX_DEPTH;
use super::marks::is_space;

/// The fields of a JSON object, as they are written.
type Fields<'a> = BTreeMap<String, &'a RawValue>;

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

    /// The call that these arguments are for, where they tell: there is one tool, or one that they
    /// fit.
    pub fn fitting(&self, arguments: &str) -> Option<Call> {
        let object: Fields = serde_json::from_str(arguments).ok()?;
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

/// Returns true when `object` has the keys that `schema` requires, and only keys that it names.
fn takes(schema: &Value, object: &Fields) -> bool {
    let known = schema["properties"].as_object();
    let mut required = schema["required"].as_array().into_iter().flatten();
    object.keys().all(|key| known.is_some_and(|known| known.contains_key(key)))
        && required.all(|key| key.as_str().is_some_and(|key| object.contains_key(key)))
}

/// The need for arguments in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    Required,
    Optional,
}

/// The calls of `{"name": …, "arguments": {…}}`, with `tool_name` for `name` and `parameters` for
/// `arguments` too, or of an array of such objects; all of them or none.
pub fn json_calls(text: &str, tools: &Tools, arguments: Arguments) -> Option<Vec<Call>> {
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
/// it is empty: `null`, `""`, `[]`.
fn object_text(text: &str) -> Option<String> {
    let none = || Some("{}".to_owned());
    match json_kind(text)? {
        "object" => Some(text.trim().to_owned()),
        "string" => {
            let inner: String = serde_json::from_str(text).ok()?;
            let inner = inner.trim();
            match json_kind(inner) {
                Some("object") => Some(inner.to_owned()),
                Some("null") => none(),
                _ if inner.is_empty() => none(),
                _ => None,
            }
        }
        "array" if serde_json::from_str::<Vec<&RawValue>>(text).is_ok_and(|all| all.is_empty()) => {
            none()
        }
        "null" => none(),
        _ => None,
    }
}

/// The type of the JSON value that `text` is, in JSON Schema's words. JSON has numbers that no
/// float holds.
pub fn json_kind(text: &str) -> Option<&'static str> {
    kind_within(text, MAX_DEPTH)
}

fn kind_within(text: &str, depth: usize) -> Option<&'static str> {
    let text = text.trim_matches(is_space);
    let depth = depth.checked_sub(1)?;
    let known = |value: &RawValue| kind_within(value.get(), depth).is_some();
    match text.bytes().next()? {
        b'{' => {
            let fields: Fields = serde_json::from_str(text).ok()?;
            fields.into_values().all(known).then_some("object")
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            items.into_iter().all(known).then_some("array")
        }
        b'"' => serde_json::from_str::<String>(text).ok().map(|_| "string"),
        first => {
            serde_json::from_str::<&RawValue>(text).ok()?;
            Some(match first {
                b't' | b'f' => "boolean",
                b'n' => "null",
                _ if text.contains(['.', 'e', 'E']) => "number",
                _ => "integer",
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Tools, json_kind};

    #[test]
    fn numbers_that_no_float_holds_are_numbers() {
        let digits = "9".repeat(400);
        for (text, kind) in [
            (r#"{"a": [-6e885875127775]}"#, Some("object")),
            ("1e999", Some("number")),
            (digits.as_str(), Some("integer")),
            ("1e", None),
            (r#"{"a": "\ud800"}"#, None),
            ("[1,]", None),
        ] {
            assert_eq!(json_kind(text), kind, "{text}");
        }
        assert_eq!(json_kind(&("[".repeat(200) + &"]".repeat(200))), None);
        let tools = Tools::new([("time".to_owned(), None)].into_iter());
        let text = r#"{"share": 6e885875127775}"#;
        let call = tools.call("time", text).expect("it is an object");
        assert_eq!(call.arguments, text);
        assert_eq!(tools.fitting(text), Some(call));
    }
}
