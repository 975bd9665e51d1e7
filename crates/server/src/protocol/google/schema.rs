//! Schemas in Google's subset of OpenAPI as JSON schemas.

use serde_json::{Map, Value as Json, json};

use crate::error::{ApiError, Result};
use crate::fields::json::whole;
use crate::fields::reader::expected;

/// The types, of which Google writes the names in upper case.
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

/// Counts, which Google may write as texts.
const COUNTS: [&str; 6] =
    ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"];

/// The JSON schema of `schema`, which stands at `path`. What the subset does not have stays as it
/// is.
///
/// # Errors
/// A type is none, or a part has the wrong type; it is named by its path.
pub fn json_schema(path: &str, schema: Json) -> Result<Json> {
    let Json::Object(given) = schema else {
        return Err(expected(path, "a schema", &schema));
    };
    let mut given = super::names::in_camel_case(path, given)?;
    let nullable = given.shift_remove("nullable") == Some(Json::Bool(true));
    let order = given.shift_remove("propertyOrdering");
    let mut made = Map::new();
    for (name, value) in given {
        if value.is_null() {
            continue;
        }
        let at = format!("{path}.{name}");
        let name = match name.as_str() {
            "ref" => "$ref".to_owned(),
            "defs" => "$defs".to_owned(),
            _ => name,
        };
        let value = match name.as_str() {
            "type" => match kind(&at, value)? {
                Some(kind) => kind,
                None => continue,
            },
            // An annotation of `enum`, which no draft knows.
            "format" if value == "enum" => continue,
            "items" => json_schema(&at, value)?,
            "anyOf" => alternatives(&at, value)?,
            "additionalProperties" if value.is_object() => json_schema(&at, value)?,
            "properties" => properties(&at, value, order.as_ref())?,
            "$defs" => properties(&at, value, None)?,
            name if COUNTS.contains(&name) => count(&at, value)?,
            // It is a note, as `examples` is.
            "example" => {
                made.insert("examples".to_owned(), json!([value]));
                continue;
            }
            _ => value,
        };
        made.insert(name, value);
    }
    if nullable {
        allow_null(&mut made);
    }
    Ok(Json::Object(made))
}

/// The name or names of types; `None` for that which says nothing.
fn kind(path: &str, value: Json) -> Result<Option<Json>> {
    let one = |name: &str| {
        let lower = name.to_ascii_lowercase();
        match TYPES.contains(&lower.as_str()) {
            true => Ok(Json::from(lower)),
            false => {
                let reason = format!("`{name}` is not one of {}", TYPES.join(", "));
                Err(ApiError::value(path, reason))
            }
        }
    };
    match &value {
        Json::String(name) if name == "TYPE_UNSPECIFIED" => Ok(None),
        Json::String(name) => one(name).map(Some),
        Json::Array(names) => {
            let name = |name: &Json| match name.as_str() {
                Some(name) => one(name),
                None => Err(expected(path, "names of types", name)),
            };
            names.iter().map(name).collect::<Result<Vec<_>>>().map(|names| Some(names.into()))
        }
        other => Err(expected(path, "the name of a type", other)),
    }
}

fn alternatives(path: &str, value: Json) -> Result<Json> {
    let Json::Array(items) = value else {
        return Err(expected(path, "an array of schemas", &value));
    };
    let one = |(index, item)| json_schema(&format!("{path}[{index}]"), item);
    items.into_iter().enumerate().map(one).collect::<Result<Vec<_>>>().map(Json::Array)
}

/// The schemas of properties, first those that `order` names.
fn properties(path: &str, value: Json, order: Option<&Json>) -> Result<Json> {
    let Json::Object(mut given) = value else {
        return Err(expected(path, "an object", &value));
    };
    let names = order.and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    let mut ordered: Vec<(String, Json)> = Vec::new();
    for name in names {
        ordered.extend(given.shift_remove(name).map(|schema| (name.to_owned(), schema)));
    }
    ordered.extend(given);
    let one = |(name, schema)| {
        let schema = json_schema(&format!("{path}.{name}"), schema)?;
        Ok((name, schema))
    };
    ordered.into_iter().map(one).collect::<Result<Map<_, _>>>().map(Json::Object)
}

fn count(path: &str, value: Json) -> Result<Json> {
    let number = match &value {
        Json::String(text) => text.parse().ok(),
        value => whole(value),
    };
    match number.filter(|count: &i64| *count >= 0) {
        Some(count) => Ok(count.into()),
        None => Err(expected(path, "a whole number from 0 on", &value)),
    }
}

fn allow_null(schema: &mut Map<String, Json>) {
    if let Some(kinds) = schema.get_mut("type") {
        match kinds {
            Json::Array(kinds) if kinds.iter().any(|kind| kind == "null") => {}
            Json::Array(kinds) => kinds.push("null".into()),
            one => *one = json!([one, "null"]),
        }
    }
    if let Some(Json::Array(values)) = schema.get_mut("enum") {
        values.push(Json::Null);
    }
    if let Some(Json::Array(schemas)) = schema.get_mut("anyOf") {
        schemas.push(json!({"type": "null"}));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::json_schema;

    #[test]
    fn types_counts_and_orders_become_those_of_json_schema() {
        let given = json!({"type": "OBJECT", "property_ordering": ["b", "a"], "properties": {
            "a": {"type": "ARRAY", "items": {"type": "STRING", "nullable": true}, "minItems": "2"},
            "b": {"type": "STRING", "format": "enum", "enum": ["x"], "nullable": true},
            "c": {"anyOf": [{"type": "INTEGER"}], "nullable": true, "example": 1},
            "d": {"type": "TYPE_UNSPECIFIED", "title": null},
            "e": {"ref": "#/$defs/f", "defs": {"f": {"type": "NULL"}}},
        }});
        let made = json_schema("s", given).unwrap();
        let expected = json!({"type": "object", "properties": {
            "b": {"type": ["string", "null"], "enum": ["x", null]},
            "a": {"type": "array", "items": {"type": ["string", "null"]}, "minItems": 2},
            "c": {"anyOf": [{"type": "integer"}, {"type": "null"}], "examples": [1]},
            "d": {},
            "e": {"$ref": "#/$defs/f", "$defs": {"f": {"type": "null"}}},
        }});
        assert_eq!(made.to_string(), expected.to_string());
    }

    #[test]
    fn what_is_no_schema_is_named_by_its_place() {
        let param = |schema| json_schema("s", schema).unwrap_err().param.unwrap();
        assert_eq!(param(json!({"properties": {"a": {"type": "TEXT"}}})), "s.properties.a.type");
        assert_eq!(param(json!({"anyOf": [{"items": 1}]})), "s.anyOf[0].items");
        assert_eq!(param(json!({"maxItems": "-1"})), "s.maxItems");
        assert_eq!(param(json!([])), "s");
    }
}
