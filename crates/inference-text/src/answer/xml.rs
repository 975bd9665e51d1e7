//! Calls as `<function=NAME><parameter=KEY>VALUE</parameter></function>` (Qwen3-Coder).

use serde_json::Value;

use super::call::{Call, Tools};
use super::marks::is_space;

/// The call that `text` is.
pub fn call(text: &str, tools: &Tools) -> Option<Call> {
    let (name, mut rest) = text.strip_prefix("<function=")?.split_once('>')?;
    let schema = tools.schema(name);
    let mut fields = Vec::new();
    loop {
        rest = rest.trim_start_matches(is_space);
        if let Some(after) = rest.strip_prefix("</function>") {
            let complete = after.chars().all(is_space);
            return complete.then(|| tools.call(name, &format!("{{{}}}", fields.join(", "))))?;
        }
        let (key, after) = rest.strip_prefix("<parameter=")?.split_once('>')?;
        let (value, after) = after.split_once("</parameter>")?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        let known = schema.map(|schema| kind(schema, key));
        fields.push(format!("{}: {}", Value::from(key), typed(value, known)));
        rest = after;
    }
}

/// The `type` of a property; no text where the schema says none.
fn kind<'a>(schema: &'a Value, key: &str) -> &'a str {
    let kind = &schema["properties"][key]["type"];
    let first = |kinds: &'a Vec<Value>| kinds.iter().find_map(|kind| kind.as_str());
    kind.as_str().or_else(|| kind.as_array().and_then(first)).unwrap_or("")
}

/// The JSON of a value that is written without quotes; `kind` is `None` where no schema is known.
fn typed(value: &str, kind: Option<&str>) -> String {
    let string = || Value::from(value).to_string();
    if value.eq_ignore_ascii_case("null") {
        return "null".to_owned();
    }
    let json: Option<Value> = serde_json::from_str(value).ok();
    let written = || value.trim().to_owned();
    match (kind, json) {
        (Some("string"), _) => string(),
        (Some("boolean"), _) => value.trim().eq_ignore_ascii_case("true").to_string(),
        (Some("integer"), Some(Value::Number(number))) => match number.as_f64() {
            // 5.0 is an integer that is written as none.
            Some(float) if !number.is_i64() && !number.is_u64() && float.abs() < 1e15 => {
                if float.fract() == 0.0 { format!("{float:.0}") } else { written() }
            }
            _ => written(),
        },
        (Some("number"), Some(Value::Number(_))) => written(),
        (Some("object" | "array" | ""), Some(Value::Object(_) | Value::Array(_))) => written(),
        (Some(_), _) => string(),
        (None, Some(Value::String(_)) | None) => string(),
        (None, Some(_)) => written(),
    }
}
