//! What a schema says without asking for anything, which the library would refuse.

use serde_json::{Map, Value as Json};

/// Formats that OpenAPI has as hints: none of them asks a text or a number for a form.
const HINTS: [&str; 7] = ["password", "byte", "binary", "int32", "int64", "float", "double"];

/// Keywords that annotate.
const ANNOTATIONS: [&str; 3] = ["contentEncoding", "contentMediaType", "contentSchema"];

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
    schema.retain(|key, value| match key.as_str() {
        "propertyNames" => !is_any_name(value),
        "format" => !value.as_str().is_some_and(|format| HINTS.contains(&format)),
        key => !ANNOTATIONS.contains(&key),
    });
    for (key, value) in schema {
        match value {
            Json::Object(fields) if NAMED.contains(&key.as_str()) => {
                fields.values_mut().filter_map(Json::as_object_mut).for_each(take_out);
            }
            Json::Object(fields) if SCHEMAS.contains(&key.as_str()) => take_out(fields),
            Json::Array(items) if SCHEMAS.contains(&key.as_str()) => {
                items.iter_mut().filter_map(Json::as_object_mut).for_each(take_out);
            }
            _ => {}
        }
    }
}

/// Whether a schema of names allows each name: all of them are strings.
fn is_any_name(schema: &Json) -> bool {
    match schema {
        Json::Object(fields) => {
            fields.iter().all(|(key, value)| key == "type" && value == "string")
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
}
