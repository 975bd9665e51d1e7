//! Keywords of a schema that ask for nothing, which the library would refuse.

use serde_json::{Map, Value as Json};

/// Formats that OpenAPI has as hints: none of them asks a text or a number for a form.
const HINTS: [&str; 7] = ["password", "byte", "binary", "int32", "int64", "float", "double"];

/// Keywords that annotate.
const ANNOTATIONS: [&str; 4] =
    ["contentEncoding", "contentMediaType", "contentSchema", "$recursiveAnchor"];

/// Keywords that say nothing of what a text may be.
const LABELS: [&str; 8] = [
    "$comment",
    "default",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
];

/// Keywords that ask arrays alone for something.
const OF_ARRAYS: [&str; 5] =
    ["contains", "maxContains", "minContains", "unevaluatedItems", "uniqueItems"];

/// Keywords that ask objects alone for something.
const OF_OBJECTS: [&str; 5] = [
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "propertyNames",
    "unevaluatedProperties",
];

/// Keywords whose value is a schema, or a list of schemas.
const SCHEMAS: [&str; 16] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];

/// Keywords whose value has schemas by names.
const NAMED: [&str; 5] =
    ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];

/// Takes out of a schema and of those in it what asks for nothing. The schema does not nest deep.
pub(super) fn take_out(schema: &mut Map<String, Json>) {
    let counts_contained = !names_old_draft(schema);
    take_out_of(schema, counts_contained);
}

/// Returns true when a schema names a draft up to 7.
pub(super) fn names_old_draft(schema: &Map<String, Json>) -> bool {
    let draft = schema.get("$schema").and_then(Json::as_str);
    draft.is_some_and(|draft| draft.contains("json-schema.org/draft-0"))
}

fn take_out_of(schema: &mut Map<String, Json>, counts_contained: bool) {
    for (key, value) in schema.iter_mut() {
        match value {
            Json::Object(fields) if NAMED.contains(&key.as_str()) => {
                let fields = fields.values_mut().filter_map(Json::as_object_mut);
                fields.for_each(|schema| take_out_of(schema, counts_contained));
            }
            Json::Object(fields) if SCHEMAS.contains(&key.as_str()) => {
                take_out_of(fields, counts_contained);
            }
            Json::Array(items) if SCHEMAS.contains(&key.as_str()) => {
                let items = items.iter_mut().filter_map(Json::as_object_mut);
                items.for_each(|schema| take_out_of(schema, counts_contained));
            }
            _ => {}
        }
    }
    // Without `$dynamicRef`, which is refused, it is an anchor like any other.
    if let Some(name) = schema.remove("$dynamicAnchor") {
        schema.entry("$anchor").or_insert(name);
    }
    let facts = Facts::of(schema, counts_contained);
    schema.retain(|key, value| facts.asks(key, value));
}

/// The facts by which keywords of a schema ask for anything.
struct Facts {
    arrays: bool,
    objects: bool,
    contained: bool,
    condition: bool,
}

impl Facts {
    fn of(schema: &Map<String, Json>, counts_contained: bool) -> Facts {
        let may_be = |kind: &str| match schema.get("type") {
            Some(Json::String(only)) => only == kind,
            Some(Json::Array(kinds)) => kinds.iter().any(|one| one == kind),
            _ => true,
        };
        let may_be_none = schema.get("minContains").and_then(Json::as_f64) == Some(0.0)
            && !schema.contains_key("maxContains");
        let asks = |branch: &str| schema.get(branch).is_some_and(|branch| !is_any(branch));
        Facts {
            arrays: may_be("array"),
            objects: may_be("object"),
            contained: schema.contains_key("contains") && !(counts_contained && may_be_none),
            condition: schema.contains_key("if") && (asks("then") || asks("else")),
        }
    }

    /// Returns true when a keyword asks for anything.
    fn asks(&self, key: &str, value: &Json) -> bool {
        match key {
            key if OF_ARRAYS.contains(&key) && !self.arrays => false,
            key if OF_OBJECTS.contains(&key) && !self.objects => false,
            "contains" | "maxContains" | "minContains" => self.contained,
            "else" | "if" | "then" => self.condition,
            "format" => !value.as_str().is_some_and(|format| HINTS.contains(&format)),
            "not" => !is_none(value),
            "propertyNames" => !is_any_name(value),
            "unevaluatedItems" | "unevaluatedProperties" => !is_any(value),
            "uniqueItems" => *value != Json::Bool(false),
            "dependencies" | "dependentRequired" | "dependentSchemas" => {
                let is_empty = |one: &Json| one.as_array().is_some_and(Vec::is_empty);
                let demands = |one: &Json| !is_empty(one) && !is_any(one);
                value.as_object().is_none_or(|all| all.values().any(demands))
            }
            key => !ANNOTATIONS.contains(&key),
        }
    }
}

/// Returns true when a schema allows each value.
fn is_any(schema: &Json) -> bool {
    match schema {
        Json::Object(fields) => fields.keys().all(|key| LABELS.contains(&key.as_str())),
        other => *other == Json::Bool(true),
    }
}

/// Returns true when a schema allows no value.
fn is_none(schema: &Json) -> bool {
    match schema {
        Json::Object(fields) => fields.get("not").is_some_and(is_any),
        other => *other == Json::Bool(false),
    }
}

/// Returns true when a schema of names allows each name: all of them are strings.
fn is_any_name(schema: &Json) -> bool {
    match schema {
        Json::Object(fields) => {
            let is_type = |key: &str, value: &Json| key == "type" && value == "string";
            let is_label = |key: &str| LABELS.contains(&key);
            fields.iter().all(|(key, value)| is_type(key, value) || is_label(key))
        }
        other => *other == Json::Bool(true),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::take_out;

    fn taken_out(mut schema: Json) -> Json {
        take_out(schema.as_object_mut().expect("an object"));
        schema
    }

    #[test]
    fn what_asks_for_nothing_is_taken_out_of_schemas_alone() {
        let schema = json!({
            "propertyNames": {"type": "string"},
            "properties": {
                "format": {"type": "string", "format": "password"},
                "propertyNames": {"type": "string", "contentEncoding": "base64"},
                "a": {"items": [{"anyOf": [{"type": "integer", "format": "int64"}]}]},
            },
            "default": {"format": "byte", "propertyNames": true},
            "enum": [{"format": "byte"}],
        });
        let expected = json!({
            "properties": {
                "format": {"type": "string"},
                "propertyNames": {"type": "string"},
                "a": {"items": [{"anyOf": [{"type": "integer"}]}]},
            },
            "default": {"format": "byte", "propertyNames": true},
            "enum": [{"format": "byte"}],
        });
        assert_eq!(taken_out(schema), expected);
        for kept in [
            json!({"propertyNames": {"type": "string", "maxLength": 3}}),
            json!({"propertyNames": {"pattern": "^a"}}),
            json!({"propertyNames": false}),
            json!({"format": "date"}),
        ] {
            assert_eq!(taken_out(kept.clone()), kept);
        }
    }

    #[test]
    fn keywords_that_hold_no_text_back_are_taken_out() {
        for nothing in [
            json!({"uniqueItems": false}),
            json!({"not": false}),
            json!({"not": {"not": {"title": "anything"}}}),
            json!({"minContains": 2, "maxContains": 3}),
            json!({"contains": {"type": "integer"}, "minContains": 0}),
            json!({"if": {"type": "integer"}}),
            json!({"if": {"type": "integer"}, "then": true, "else": {"$comment": "any"}}),
            json!({"then": {"type": "integer"}, "else": false}),
            json!({"dependentRequired": {}, "dependentSchemas": {}, "dependencies": {}}),
            json!({"dependentRequired": {"a": []}, "dependencies": {"a": [], "b": true}}),
            json!({"dependentSchemas": {"a": {"contentEncoding": "base64"}}}),
            json!({"unevaluatedItems": true, "unevaluatedProperties": {}}),
            json!({"propertyNames": {"type": "string", "description": "a name"}}),
            json!({"$recursiveAnchor": true}),
        ] {
            assert_eq!(taken_out(nothing.clone()), json!({}), "{nothing}");
        }
        for kind in [json!("string"), json!(["integer", "null"])] {
            let nothing = json!({
                "type": kind, "uniqueItems": true, "contains": {}, "propertyNames": false,
                "unevaluatedItems": false, "dependentRequired": {"a": ["b"]},
            });
            assert_eq!(taken_out(nothing), json!({"type": kind}));
        }
        let anchored = json!({"$dynamicAnchor": "node", "type": "null"});
        assert_eq!(taken_out(anchored), json!({"type": "null", "$anchor": "node"}));
    }

    #[test]
    fn keywords_that_hold_a_text_back_are_left() {
        for kept in [
            json!({"uniqueItems": true, "type": ["array", "null"]}),
            json!({"not": {}}),
            json!({"not": {"type": "integer"}}),
            json!({"contains": {"type": "integer"}, "minContains": 0, "maxContains": 1}),
            json!({"contains": {"type": "integer"}, "minContains": 1}),
            json!({
                "$schema": "http://json-schema.org/draft-07/schema#",
                "contains": {"type": "integer"}, "minContains": 0,
            }),
            json!({"if": {"type": "integer"}, "else": false}),
            json!({"dependentRequired": {"a": [], "b": ["c"]}}),
            json!({"dependencies": {"a": {"type": "object"}}}),
            json!({"unevaluatedProperties": {"type": "integer"}}),
        ] {
            assert_eq!(taken_out(kept.clone()), kept);
        }
    }
}
