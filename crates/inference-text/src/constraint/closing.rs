//! Objects that list their properties have no others, where the schema does not speak of them.
//!
//! By JSON Schema they may have any. Small models go on with keys of their own then, and never
//! close the object; whoever lists properties hardly ever wants further ones.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

/// Keywords of an object by which a schema speaks of properties that it does not list, or is met by
/// other schemas whose properties it has not got.
const SPEAKS_OF_OTHERS: [&str; 11] = [
    "additionalProperties",
    "patternProperties",
    "unevaluatedProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
    "if",
    "dependentSchemas",
    "enum",
    "const",
];
/// Keywords whose schemas are for values inside of the value.
const INSIDE: [&str; 4] = ["items", "additionalItems", "additionalProperties", "unevaluatedItems"];
/// Keywords whose schemas are choices of the same value.
const CHOICES: [&str; 2] = ["anyOf", "oneOf"];
/// Keywords that demand something of a value beside a choice.
const DEMANDS: [&str; 11] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "minProperties",
    "allOf",
    "$ref",
    "required",
    "if",
    "enum",
    "const",
];
/// Keywords by which other schemas hold for the same value.
const MEETING: [&str; 5] = ["allOf", "anyOf", "oneOf", "$ref", "if"];
/// The most times that a schema is walked to find what meets.
const MOST_WALKS: usize = 16;

/// Closes the objects of a schema. It does not nest deep.
pub(super) fn close(schema: &mut Map<String, Json>) {
    let mut shared = BTreeSet::new();
    let mut document = Json::Object(std::mem::take(schema));
    let mut is_known = false;
    for _ in 0..MOST_WALKS {
        let before = shared.len();
        Walk { shared: &mut shared, closes: false }.schema(&mut document, "#", Meets::Nothing);
        is_known = shared.len() == before;
        if is_known {
            break;
        }
    }
    // Where it cannot be told which schema a reference means, none is closed.
    let is_plain = |reference: &String| {
        (reference == "#" || reference.starts_with("#/")) && !reference.contains('%')
    };
    if is_known && shared.iter().all(is_plain) && !has_ids(&document, 0) {
        Walk { shared: &mut shared, closes: true }.schema(&mut document, "#", Meets::Nothing);
    }
    if let Json::Object(closed) = document {
        *schema = closed;
    }
}

/// Returns true when a schema below the first one has an address of its own, to which references
/// are relative.
fn has_ids(schema: &Json, depth: usize) -> bool {
    match schema {
        Json::Object(fields) => fields.iter().any(|(key, value)| {
            depth > 0 && key == "$id" && value.is_string() || has_ids(value, depth + 1)
        }),
        Json::Array(items) => items.iter().any(|item| has_ids(item, depth + 1)),
        _ => false,
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
        let demands = DEMANDS.iter().any(|key| fields.contains_key(*key))
            || CHOICES.iter().all(|key| fields.contains_key(*key));
        let is_shared = meets == Meets::Others || self.shared.contains(path);
        // What meets this value has schemas of what is inside of it, too.
        let is_met = is_shared || MEETING.iter().any(|key| fields.contains_key(*key));
        let inside = if is_met { Meets::Others } else { Meets::Nothing };
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
                    let is_inside = matches!(key.as_str(), "properties" | "patternProperties");
                    let meets = if is_inside { inside } else { Meets::Nothing };
                    for (name, schema) in named.iter_mut() {
                        self.schema(schema, &format!("{path}/{}", escaped(name)), meets);
                    }
                }
                ("prefixItems" | "items", Json::Array(schemas)) => {
                    self.each(schemas, &path, inside);
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
                    self.schema(schema, &path, inside);
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
            json!({"anyOf": [b], "properties": {"a": {"properties": {"c": {}}}}}),
            json!({"anyOf": [b], "oneOf": [a]}),
            json!({"allOf": [{"$ref": "#/$defs/b"}, a], "$defs": {"b": b}}),
            json!({"$ref": "#/$defs/b", "properties": {"a": {}}, "$defs": {"b": b}}),
            json!({"$ref": "#/$defs/b", "minProperties": 3, "$defs": {"b": b}}),
            json!({"properties": {"a": {}}, "enum": [{"a": 1, "b": 2}]}),
            // By way of others, in whichever order they come.
            json!({"$defs": {"b": b, "m": {"allOf": [{"$ref": "#/$defs/b"}]}},
                "allOf": [{"$ref": "#/$defs/m"}, a]}),
            json!({"$defs": {"m": {"$ref": "#/$defs/n"}, "n": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": b},
                "allOf": [{"$ref": "#/$defs/m"}, a]}),
            json!({"allOf": [{"$ref": "#/$defs/%62"}, a], "$defs": {"b": b}}),
            json!({"allOf": [{"$ref": "#a"}, a], "$defs": {"b": b}}),
            json!({"allOf": [{"$ref": "other"}], "properties": {"a": {}}}),
            json!({"properties": {"a": {"$id": "x", "properties": {}}}}),
        ] {
            assert_eq!(closed(schema.clone()), schema);
        }
        // One beside them meets none.
        let beside = json!({"properties": {"x": {"allOf": [a, b]}, "y": a}});
        let beside = closed(beside);
        assert!(is_closed(&beside) && is_closed(&beside["properties"]["y"]));
        assert!(!beside["properties"]["x"].to_string().contains("false"));
        // A single one meets none either.
        let one = closed(json!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": a}}));
        assert!(is_closed(&one["$defs"]["a"]));
    }
}
