//! Objects that list their properties have no others, where the schema does not speak of them.
//!
//! By JSON Schema they may have any. Small models go on with keys of their own then, and never
//! close the object; whoever lists properties hardly ever wants further ones.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

/// Keywords of an object by which a schema speaks of properties that it does not list, or is met by
/// other schemas whose properties it has not got.
const SPEAKS_OF_OTHERS: [&str; 9] = [
    "additionalProperties",
    "patternProperties",
    "unevaluatedProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
    "if",
    "dependentSchemas",
];
/// Keywords whose schemas are for values inside of the value.
const INSIDE: [&str; 4] = ["items", "additionalItems", "additionalProperties", "unevaluatedItems"];
/// Keywords whose schemas are choices of the same value.
const CHOICES: [&str; 2] = ["anyOf", "oneOf"];
/// Keywords that demand something of a value beside a choice.
const DEMANDS: [&str; 6] = ["properties", "patternProperties", "allOf", "$ref", "required", "if"];

/// Closes the objects of a schema. It does not nest deep.
pub(super) fn close(schema: &mut Map<String, Json>) {
    let mut shared = BTreeSet::new();
    let mut document = Json::Object(std::mem::take(schema));
    Walk { shared: &mut shared, closes: false }.schema(&mut document, "#", Meets::Nothing);
    // Where it cannot be told which schema a reference means, none is closed.
    if shared.iter().all(|reference| *reference == "#" || reference.starts_with("#/")) {
        Walk { shared: &mut shared, closes: true }.schema(&mut document, "#", Meets::Nothing);
    }
    if let Json::Object(closed) = document {
        *schema = closed;
    }
}

/// The other schemas that hold for a schema's value.
#[derive(Clone, Copy, PartialEq)]
enum Meets {
    Nothing,
    Others,
}

struct Walk<'a> {
    /// References to schemas whose values meet others.
    shared: &'a mut BTreeSet<String>,
    /// Objects are closed; else the references are gathered.
    closes: bool,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &mut Json, path: &str, meets: Meets) {
        let Json::Object(fields) = schema else { return };
        let is_only_all = !fields.keys().any(|key| key != "allOf" && demands_more(key));
        let demands = DEMANDS.iter().any(|key| fields.contains_key(*key));
        let is_shared = meets == Meets::Others || self.closes && self.shared.contains(path);
        if let Some(reference) = fields.get("$ref").and_then(Json::as_str)
            && (is_shared || fields.keys().any(|key| key != "$ref" && demands_more(key)))
        {
            self.shared.insert(reference.to_owned());
        }
        for (key, value) in fields.iter_mut() {
            let path = format!("{path}/{}", escaped(key));
            match (key.as_str(), value) {
                (
                    "properties" | "patternProperties" | "$defs" | "definitions",
                    Json::Object(named),
                ) => {
                    for (name, schema) in named.iter_mut() {
                        self.schema(schema, &format!("{path}/{}", escaped(name)), Meets::Nothing);
                    }
                }
                ("prefixItems" | "items", Json::Array(schemas)) => {
                    self.each(schemas, &path, Meets::Nothing);
                }
                ("allOf", Json::Array(schemas)) => {
                    let is_alone = schemas.len() == 1 && !is_shared && is_only_all;
                    let meets = if is_alone { meets } else { Meets::Others };
                    self.each(schemas, &path, meets);
                }
                (key, Json::Array(schemas)) if CHOICES.contains(&key) => {
                    let meets = if demands || is_shared { Meets::Others } else { Meets::Nothing };
                    self.each(schemas, &path, meets);
                }
                (key, schema) if INSIDE.contains(&key) => {
                    self.schema(schema, &path, Meets::Nothing);
                }
                _ => {}
            }
        }
        if self.closes && !is_shared && lists_all(fields) {
            fields.insert("additionalProperties".to_owned(), Json::Bool(false));
        }
    }

    fn each(&mut self, schemas: &mut [Json], path: &str, meets: Meets) {
        for (index, schema) in schemas.iter_mut().enumerate() {
            self.schema(schema, &format!("{path}/{index}"), meets);
        }
    }
}

/// Returns true when a keyword beside a reference demands more of the value.
fn demands_more(key: &str) -> bool {
    CHOICES.contains(&key) || DEMANDS.contains(&key)
}

/// Returns true when a schema lists all properties that it speaks of, and more are not needed.
fn lists_all(fields: &Map<String, Json>) -> bool {
    let Some(properties) = fields.get("properties").and_then(Json::as_object) else { return false };
    let is_listed = |name: &Json| name.as_str().is_some_and(|name| properties.contains_key(name));
    let required = fields.get("required").and_then(Json::as_array);
    let least = fields.get("minProperties").and_then(Json::as_f64).unwrap_or(0.0);
    !SPEAKS_OF_OTHERS.iter().any(|key| fields.contains_key(*key))
        && required.is_none_or(|names| names.iter().all(is_listed))
        && least <= properties.len() as f64
}

/// A key as JSON pointers write it.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::close;

    fn closed(schema: Json) -> Json {
        let Json::Object(mut fields) = schema else { panic!("an object") };
        close(&mut fields);
        Json::Object(fields)
    }

    fn is_closed(schema: &Json) -> bool {
        schema["additionalProperties"] == false
    }

    #[test]
    fn objects_that_list_properties_are_closed_at_each_level() {
        let inner = json!({"type": "object", "properties": {"b": {}}, "required": ["b"]});
        let schema = closed(json!({
            "properties": {"a": inner, "c": {"type": "array", "items": inner}, "d": {"anyOf": [inner]}},
            "$defs": {"e": inner},
        }));
        assert!(is_closed(&schema));
        for path in ["/properties/a", "/properties/c/items", "/properties/d/anyOf/0", "/$defs/e"] {
            assert!(is_closed(schema.pointer(path).unwrap()), "{path}");
        }
        assert!(is_closed(&closed(json!({"type": "object", "properties": {}}))));
    }

    #[test]
    fn a_schema_that_speaks_of_other_properties_stays() {
        for schema in [
            json!({"type": "object"}),
            json!({"properties": {"a": {}}, "additionalProperties": true}),
            json!({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}),
            json!({"properties": {"a": {}}, "patternProperties": {"b": {}}}),
            json!({"properties": {"a": {}}, "unevaluatedProperties": false}),
            json!({"properties": {"a": {}}, "required": ["a", "b"]}),
            json!({"properties": {"a": {}}, "minProperties": 2}),
            json!({"required": ["a"]}),
        ] {
            assert_eq!(closed(schema.clone()), schema);
        }
    }

    #[test]
    fn schemas_that_meet_others_stay_open() {
        let a = json!({"properties": {"a": {}}});
        let b = json!({"properties": {"b": {"properties": {"c": {}}}}});
        for schema in [
            json!({"allOf": [a, b]}),
            json!({"anyOf": [b], "properties": {"a": {}}}),
            json!({"allOf": [{"$ref": "#/$defs/b"}, a], "$defs": {"b": b}}),
            json!({"$ref": "#/$defs/b", "properties": {"a": {}}, "$defs": {"b": b}}),
            json!({"properties": {"x": {"allOf": [{"anyOf": [{"$ref": "#/properties/y"}]}, a]}, "y": b},
                "additionalProperties": true}),
        ] {
            let closed = closed(schema);
            let text = closed.to_string();
            // The object inside of one is nobody else's.
            let inner = text.matches(r#""additionalProperties":false"#).count();
            assert_eq!(inner, 1, "{text}");
            assert!(text.contains(r#"{"c":{}},"additionalProperties":false"#), "{text}");
        }
        // A single one meets none.
        let one = closed(json!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": a}}));
        assert!(is_closed(&one["$defs"]["a"]));
        let beside = json!({"allOf": [{"$ref": "other"}], "properties": {"a": {}}});
        assert_eq!(closed(beside.clone()), beside);
        let unknown = json!({"allOf": [{"$ref": "#a"}, a], "$defs": {"b": b}});
        assert_eq!(closed(unknown.clone()), unknown);
    }
}
