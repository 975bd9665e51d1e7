//! Checks of a constraint before it is compiled, which refuse what would cost too much.

use inference_core::{Error, Result, Value};
use serde_json::{Map, Value as Json};

use super::annotations;
use super::closing;
use super::error::invalid;
use super::measure::check_regex;
use crate::json::try_from_value;

/// Bytes of a schema, as JSON.
const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Bytes of a regular expression or a grammar; the time of some grows with the square.
const MAX_SOURCE_BYTES: usize = 64 << 10;
/// Patterns of properties in a schema: each pair of them is compared.
const MAX_PATTERNS: usize = 32;
/// Properties of one object: the time of optional ones grows with the square.
const MAX_PROPERTIES: usize = 1000;
/// The most properties of an object whose number is bounded: which of them were there is known by
/// their number squared.
const MAX_COUNTED: usize = 200;
/// The least common multiple of all `multipleOf`, without their zeros: states of an automaton.
const MAX_MULTIPLE: u64 = 10_000;
/// Bytes of a schema times its choices, where these meet other demands: each choice gets a copy.
const MAX_COPIED: usize = 16 << 20;
/// Keywords with which the choices beside them meet.
const MEETING: [&str; 8] = [
    "$ref",
    "additionalProperties",
    "allOf",
    "enum",
    "items",
    "patternProperties",
    "prefixItems",
    "properties",
];
/// Bounds of numbers, within 64 bits.
const MAX_BOUND: f64 = 9.2e18;
/// Levels that brackets, or the values of a schema, may nest.
const MAX_DEPTH: usize = 100;
/// The keywords that may stand beside `$ref` in drafts that ignore them there: they hold nothing.
const BESIDE_REF: [&str; 12] = [
    "$ref",
    "$schema",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "readOnly",
    "writeOnly",
    "deprecated",
];
/// The key under which the library takes options from a schema.
const OPTIONS: &str = "x-guidance";
/// Between two tokens of JSON: nothing, a space, or a line break with an indentation. Without a
/// bound, a model that has nothing to say would say blanks for ever.
const WHITESPACE: &str = r" |\n[ \t]{0,40}";

/// A schema as the library takes it, with the whitespace that texts may have.
pub(super) fn schema_json(schema: &Value) -> Result<Json> {
    if nests_deeper(schema, MAX_DEPTH) {
        return Err(too_deep("the schema"));
    }
    let fields = match try_from_value(schema).map_err(|error| invalid(error.to_string()))? {
        Json::Object(fields) => fields,
        // Every value, written as a schema that can hold options.
        Json::Bool(true) => Map::new(),
        Json::Bool(false) => return Err(invalid("the schema `false` allows no text")),
        other => return Err(invalid(format!("a schema is an object or a boolean, not {other}"))),
    };
    let schema = with_whitespace(fields)?;
    check_schema_size(schema.to_string().len())?;
    Ok(schema)
}

/// A checked schema without what asks for nothing and with its objects closed, with the whitespace
/// that texts may have.
pub(super) fn with_whitespace(mut fields: Map<String, Json>) -> Result<Json> {
    annotations::take_out(&mut fields);
    check_schema(&fields)?;
    closing::close(&mut fields);
    fields.insert(OPTIONS.to_owned(), serde_json::json!({"whitespace_pattern": WHITESPACE}));
    Ok(Json::Object(fields))
}

/// Checks the bytes of a schema, or of all schemas of a grammar.
pub(super) fn check_schema_size(size: usize) -> Result<()> {
    check_size("the schema", size, MAX_SCHEMA_BYTES)
}

/// Refuses options of the library, and what takes too long.
fn check_schema(fields: &Map<String, Json>) -> Result<()> {
    if fields.contains_key(OPTIONS) {
        return Err(invalid(format!("`{OPTIONS}` in a schema is not honoured")));
    }
    // Those drafts ignore what stands beside `$ref`.
    let ignores_siblings = annotations::names_old_draft(fields);
    if ignores_siblings {
        check_ref(fields)?;
    }
    let mut open: Vec<(&str, &Json, usize)> = entries(fields, 1).collect();
    let (mut patterns, mut multiple) = (0, 1);
    let (mut choices, mut meet) = (0, meets(fields));
    while let Some((key, value, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            return Err(too_deep("the schema"));
        }
        match (key, value) {
            ("multipleOf", Json::Number(number)) => {
                multiple = least_common_multiple(multiple, digits(&number.to_string()));
                if multiple > MAX_MULTIPLE {
                    return Err(invalid(format!(
                        "`multipleOf` {number}: the digits of all such numbers may have a common multiple of at most {MAX_MULTIPLE}"
                    )));
                }
            }
            (
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum",
                Json::Number(number),
            ) if number.as_f64().is_none_or(|bound| bound.abs() > MAX_BOUND) => {
                return Err(invalid(format!("`{key}` {number} exceeds 64 bits; leave it out")));
            }
            ("anyOf" | "oneOf", Json::Array(items)) => choices = choices.max(items.len()),
            ("required", Json::Array(items)) => check_properties(items.len())?,
            ("properties", Json::Object(fields)) => check_properties(fields.len())?,
            ("pattern", Json::String(regex)) => check_regex("`pattern`", regex)?,
            ("patternProperties", Json::Object(fields)) => {
                patterns += fields.len();
                fields
                    .keys()
                    .try_for_each(|regex| check_regex("a pattern of properties", regex))?;
            }
            _ => {}
        }
        match value {
            Json::Array(items) => open.extend(items.iter().map(|item| ("", item, depth + 1))),
            Json::Object(fields) => {
                meet |= meets(fields);
                check_counted(fields)?;
                if ignores_siblings {
                    check_ref(fields)?;
                }
                open.extend(entries(fields, depth + 1));
            }
            _ => {}
        }
    }
    check_counted(fields)?;
    if meet {
        check_copies(choices, fields)?;
    }
    if patterns > MAX_PATTERNS {
        return Err(invalid(format!(
            "{patterns} patterns in `patternProperties`, at most {MAX_PATTERNS} are taken"
        )));
    }
    Ok(())
}

/// Refuses a keyword beside `$ref`: the library holds both, where the draft holds one.
fn check_ref(fields: &Map<String, Json>) -> Result<()> {
    if !fields.get("$ref").is_some_and(Json::is_string) {
        return Ok(());
    }
    match fields.keys().find(|key| !BESIDE_REF.contains(&key.as_str())) {
        Some(key) => Err(invalid(format!(
            "`$ref` beside `{key}`: drafts up to 7 ignore `{key}` there; leave it out, or name a later draft in `$schema`"
        ))),
        None => Ok(()),
    }
}

/// Returns true when choices in a schema meet what else it demands.
fn meets(fields: &Map<String, Json>) -> bool {
    let has_choices = fields.contains_key("anyOf") || fields.contains_key("oneOf");
    fields.contains_key("allOf")
        || has_choices && fields.keys().any(|key| MEETING.contains(&key.as_str()))
}

fn check_counted(fields: &Map<String, Json>) -> Result<()> {
    let count = fields.get("properties").and_then(Json::as_object).map_or(0, Map::len);
    let bounds = |key: &str| fields.get(key).and_then(Json::as_u64);
    let is_bounded = bounds("minProperties").is_some_and(|least| least > 0)
        || bounds("maxProperties").is_some_and(|most| most < count as u64);
    if is_bounded && count > MAX_COUNTED {
        return Err(invalid(format!(
            "an object with {count} properties and a bound on their number, at most {MAX_COUNTED} are counted: leave \
             `minProperties` and `maxProperties` out"
        )));
    }
    Ok(())
}

fn check_copies(choices: usize, fields: &Map<String, Json>) -> Result<()> {
    let bytes = serde_json::to_string(fields).map_or(usize::MAX, |text| text.len());
    if choices.saturating_mul(bytes) > MAX_COPIED {
        return Err(invalid(format!(
            "{choices} choices in a schema of {bytes} bytes meet other demands, of which each gets a \
             copy; at most {MAX_COPIED} bytes of copies are made"
        )));
    }
    Ok(())
}

fn entries(fields: &Map<String, Json>, depth: usize) -> impl Iterator<Item = (&str, &Json, usize)> {
    fields.iter().map(move |(key, field)| (key.as_str(), field, depth))
}

fn check_properties(count: usize) -> Result<()> {
    if count > MAX_PROPERTIES {
        return Err(invalid(format!(
            "an object with {count} properties, at most {MAX_PROPERTIES} are taken"
        )));
    }
    Ok(())
}

/// The digits of a decimal number without sign, point, exponent and zeros around them; at least 1.
fn digits(number: &str) -> u64 {
    let mantissa = number.split(['e', 'E']).next().unwrap_or(number);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_matches('0');
    if digits.is_empty() { 1 } else { digits.parse().unwrap_or(u64::MAX) }
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x).saturating_mul(b)
}

fn nests_deeper(value: &Value, limit: usize) -> bool {
    let mut open = vec![(value, 0)];
    while let Some((value, depth)) = open.pop() {
        if depth > limit {
            return true;
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(fields) => {
                open.extend(fields.iter().map(|(_, field)| (field, depth + 1)))
            }
            _ => {}
        }
    }
    false
}

/// Checks the size of a regular expression or a grammar and how deep its brackets nest.
pub(super) fn check_source(what: &str, source: &str) -> Result<()> {
    check_size(what, source.len(), MAX_SOURCE_BYTES)?;
    let mut depth = 0_usize;
    let mut escaped = false;
    for byte in source.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(too_deep(what));
        }
    }
    Ok(())
}

fn check_size(what: &str, size: usize, most: usize) -> Result<()> {
    if size > most {
        return Err(invalid(format!("{what} has {size} bytes, at most {most} are taken")));
    }
    Ok(())
}

fn too_deep(what: &str) -> Error {
    invalid(format!("{what} nests deeper than {MAX_DEPTH} levels"))
}
