//! Values that are written without quotes, read by the schema of their property.

use std::collections::BTreeSet;

use serde_json::Value;

use super::call::json_kind;
use super::python;

/// References within references that are followed.
const MAX_REFERENCES: usize = 16;

/// The types that a schema allows, in JSON Schema's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds(BTreeSet<&'static str>);

const KINDS: [&str; 7] = ["string", "integer", "number", "boolean", "object", "array", "null"];

impl Kinds {
    /// The types of a property of the object that `schema` describes; `None` where it says nothing.
    pub fn of_property(schema: &Value, key: &str) -> Option<Kinds> {
        let property = schema.get("properties")?.get(key)?;
        Kinds::of(schema, property)
    }

    /// The types that `schema`, a part of `root`, allows; `None` where it says nothing of them.
    pub fn of(root: &Value, schema: &Value) -> Option<Kinds> {
        let mut kinds = Kinds::default();
        kinds.add(root, schema, 0);
        (!kinds.0.is_empty()).then_some(kinds)
    }

    fn add(&mut self, root: &Value, schema: &Value, depth: usize) {
        if depth > MAX_REFERENCES {
            return;
        }
        let word = |name: &Value| KINDS.into_iter().find(|kind| name.as_str() == Some(kind));
        match &schema["type"] {
            Value::Array(names) => self.0.extend(names.iter().filter_map(word)),
            name => self.0.extend(word(name)),
        }
        if !self.0.is_empty() {
            return;
        }
        let values = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
        self.0.extend(values.map(kind));
        for list in ["anyOf", "oneOf", "allOf"] {
            for part in schema[list].as_array().into_iter().flatten() {
                let mut kinds = Kinds::default();
                kinds.add(root, part, depth + 1);
                self.0.extend(kinds.0);
            }
        }
        if let Some(target) = target(root, schema) {
            self.add(root, target, depth + 1);
        }
    }

    /// Returns true when a value of this type is allowed.
    pub fn has(&self, kind: &str) -> bool {
        self.0.contains(kind) || kind == "integer" && self.0.contains("number")
    }

    /// Returns true when no other type is allowed.
    pub fn is_only(&self, kind: &str) -> bool {
        self.0.len() == 1 && self.0.contains(kind)
    }
}

/// The schema that `schema`, a part of `root`, refers to.
fn target<'a>(root: &'a Value, schema: &Value) -> Option<&'a Value> {
    let path = schema["$ref"].as_str()?.strip_prefix('#')?;
    root.pointer(path)
}

/// `schema`, a part of `root`, or the one that it stands for.
pub fn referred<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut last = schema;
    for _ in 0..MAX_REFERENCES {
        match target(root, last) {
            Some(target) => last = target,
            None => break,
        }
    }
    last
}

/// The type of a value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::Bool(_) => "boolean",
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::Null => "null",
    }
}

/// The JSON of a value that is written as it is. Where `kinds` allows it, it is the JSON or the
/// Python that was written, otherwise a string; `None` allows everything but JSON's strings.
pub fn typed(written: &str, kinds: Option<Kinds>) -> String {
    let string = || Value::from(written).to_string();
    let bare = written.trim();
    let json = json_kind(bare);
    let Some(kinds) = kinds else {
        return match json {
            Some("string") | None => string(),
            Some(_) => bare.to_owned(),
        };
    };
    match json {
        Some("string") | None => {}
        Some(kind) if kinds.has(kind) => return bare.to_owned(),
        // 5.0 is an integer that is written as none.
        Some("number") if kinds.has("integer") => {
            if let Ok(float) = bare.parse::<f64>()
                && float.fract() == 0.0
                && float.abs() < 1e15
            {
                return format!("{float:.0}");
            }
        }
        _ => {}
    }
    if kinds.has("boolean") && ["true", "false"].iter().any(|word| bare.eq_ignore_ascii_case(word))
    {
        return bare.to_ascii_lowercase();
    }
    if kinds.has("null") && ["null", "none"].iter().any(|word| bare.eq_ignore_ascii_case(word)) {
        return "null".to_owned();
    }
    let nested = kinds.has("object") && bare.starts_with('{')
        || kinds.has("array") && bare.starts_with(['[', '(']);
    match python::value(bare) {
        Some(json) if nested => json,
        _ => string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Kinds, typed};

    fn read(written: &str, schema: Value) -> Value {
        let root = json!({"properties": {"a": schema}, "$defs": {"text": {"type": "string"}}});
        let text = typed(written, Kinds::of_property(&root, "a"));
        serde_json::from_str(&text).expect("a typed value is JSON")
    }

    #[test]
    fn a_string_stays_a_string() {
        let string = json!({"type": "string"});
        for text in ["12", "1.0", "true", "null", "{}", "[1]", "\"a\"", " a\n", "", "1e999"] {
            assert_eq!(read(text, string.clone()), json!(text));
            assert_eq!(read(text, json!({"$ref": "#/$defs/text"})), json!(text));
        }
        assert_eq!(read("12", json!({"enum": ["12", "13"]})), json!("12"));
    }

    #[test]
    fn other_types_are_read() {
        assert_eq!(read("5.0", json!({"type": "integer"})), json!(5));
        assert_eq!(read("5", json!({"type": "number"})), json!(5));
        let numbers =
            typed("12345678901234567890123", Kinds::of(&json!({}), &json!({"type": "integer"})));
        assert_eq!(numbers, "12345678901234567890123");
        let list = typed("[1e999]", Kinds::of(&json!({}), &json!({"type": "array"})));
        assert_eq!(list, "[1e999]");
        assert_eq!(typed("1e999", Kinds::of(&json!({}), &json!({"type": "number"}))), "1e999");
        assert_eq!(read("five", json!({"type": "integer"})), json!("five"));
        assert_eq!(read("False", json!({"type": "boolean"})), json!(false));
        assert_eq!(read("yes", json!({"type": "boolean"})), json!("yes"));
        assert_eq!(read("{'a': True}", json!({"type": "object"})), json!({"a": true}));
        assert_eq!(read("[1, None]", json!({"type": "array"})), json!([1, null]));
        assert_eq!(read("\n[1,\n2]\n", json!({"type": "array"})), json!([1, 2]));
    }

    #[test]
    fn one_of_several_types_is_the_one_that_fits() {
        let optional = json!({"anyOf": [{"$ref": "#/$defs/text"}, {"type": "null"}]});
        assert_eq!(read("null", optional.clone()), Value::Null);
        assert_eq!(read("12", optional), json!("12"));
        let either = json!({"type": ["string", "integer"]});
        assert_eq!(read("12", either.clone()), json!(12));
        assert_eq!(read("12 a", either), json!("12 a"));
    }

    #[test]
    fn without_a_schema_json_is_json() {
        assert_eq!(read("12", json!({})), json!(12));
        assert_eq!(read("a", json!({})), json!("a"));
        assert_eq!(typed("[1]", None), "[1]");
        assert_eq!(typed("\"a\"", None), "\"\\\"a\\\"\"");
    }
}
