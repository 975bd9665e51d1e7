//! JSON and the contract's values.

use std::borrow::Cow;

use inference_core::{Error, Message, Result, Value};
use serde_json::{Map, Number, Value as Json};

/// `text` with what Python writes as numbers and JSON does not have, `Infinity`, `-Infinity` and
/// `NaN` outside of strings, as transformers writes them: `{"__float__": "Infinity"}`.
pub fn standard_json(text: &str) -> Cow<'_, str> {
    const NAMES: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
    if !NAMES.iter().any(|name| text.contains(name)) {
        return Cow::Borrowed(text);
    }
    let mut standard = String::with_capacity(text.len() + 64);
    let (mut rest, mut in_string) = (text, false);
    while let Some(next) = rest.chars().next() {
        let name = NAMES.iter().find(|name| !in_string && rest.starts_with(**name));
        let taken = match name {
            Some(name) => {
                standard.push_str(&format!("{{\"__float__\": \"{name}\"}}"));
                name.len()
            }
            None => {
                // A character behind a backslash ends no string.
                let escaped = if in_string && next == '\\' { rest.chars().nth(1) } else { None };
                let length = next.len_utf8() + escaped.map_or(0, char::len_utf8);
                standard.push_str(&rest[..length]);
                in_string ^= next == '"';
                length
            }
        };
        rest = &rest[taken..];
    }
    Cow::Owned(standard)
}

/// `json` as the contract's value. A number beyond `i64` becomes a float.
pub fn to_value(json: Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(flag),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::Int(integer),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::String(text),
        Json::Array(items) => Value::Array(items.into_iter().map(to_value).collect()),
        Json::Object(fields) => {
            Value::Object(fields.into_iter().map(|(key, value)| (key, to_value(value))).collect())
        }
    }
}

/// `value` as JSON. What JSON cannot write, a float, a picture or a sound, becomes `null`.
pub fn from_value(value: &Value) -> Json {
    match value {
        Value::Null | Value::Picture(_) | Value::Sound(_) => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Int(number) => Json::from(*number),
        Value::Float(number) => Json::from(*number),
        Value::String(text) => Json::String(text.clone()),
        Value::Array(items) => items.iter().map(from_value).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), from_value(value))).collect()
        }
    }
}

/// `value` as JSON.
///
/// # Errors
/// [`Error::Prompt`] with a float that JSON cannot write, a picture or a sound.
pub fn try_from_value(value: &Value) -> Result<Json> {
    Ok(match value {
        Value::Float(number) => Number::from_f64(*number)
            .map(Json::Number)
            .ok_or_else(|| Error::Prompt(format!("{number} is not a number of JSON")))?,
        Value::Array(items) => {
            Json::Array(items.iter().map(try_from_value).collect::<Result<_>>()?)
        }
        Value::Object(object) => Json::Object(fields(object)?),
        Value::Picture(picture) => {
            let reason = "stands where a template takes none: a picture is the `image` of a \
                          message's content part of type `image`";
            return Err(picture.error(reason));
        }
        Value::Sound(sound) => {
            let reason = "stands where a template takes none: a sound is the `audio` of a \
                          message's content part of type `audio`";
            return Err(sound.error(reason));
        }
        plain => from_value(plain),
    })
}

/// Named values as a JSON object.
///
/// # Errors
/// [`Error::Prompt`] with a float that JSON cannot write.
pub fn fields(fields: &[(String, Value)]) -> Result<Map<String, Json>> {
    fields.iter().map(|(key, value)| Ok((key.clone(), try_from_value(value)?))).collect()
}

/// A message as chat templates take it: its role, its content, then its other fields.
///
/// # Errors
/// [`Error::Prompt`] with a float that JSON cannot write.
pub fn message(message: &Message) -> Result<Json> {
    let mut object = Map::new();
    object.insert("role".into(), message.role.as_str().into());
    object.insert("content".into(), try_from_value(&message.content)?);
    object.extend(fields(&message.fields)?);
    Ok(Json::Object(object))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use inference_core::Value;

    use super::{from_value, standard_json, to_value, try_from_value};

    #[test]
    fn numbers_that_only_python_writes_become_objects() {
        let text = r#"{"limit": [0.0, Infinity], "low": -Infinity, "text": "NaN \" Infinity"}"#;
        let parsed: serde_json::Value =
            serde_json::from_str(&standard_json(text)).expect("it is JSON now");
        assert_eq!(parsed["limit"][1]["__float__"], "Infinity");
        assert_eq!(parsed["low"]["__float__"], "-Infinity");
        assert_eq!(parsed["text"], "NaN \" Infinity");
        assert!(matches!(standard_json("{\"a\": 1}"), Cow::Borrowed(_)));
    }

    #[test]
    fn values_survive_the_way_there_and_back() {
        let text = r#"{"b":1,"a":[null,true,-2.5,"x",{"z":0,"y":1.0}],"big":1e300}"#;
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(from_value(&to_value(json.clone())), json);
        assert_eq!(try_from_value(&to_value(json.clone())).unwrap(), json);
        assert_eq!(
            serde_json::to_string(&from_value(&to_value(json))).unwrap(),
            text.replace("1e300", "1e+300")
        );
    }

    #[test]
    fn what_json_cannot_write_is_null_or_refused() {
        let value = Value::Array(vec![Value::Float(f64::INFINITY)]);
        assert_eq!(from_value(&value).to_string(), "[null]");
        let error = try_from_value(&value).unwrap_err();
        assert!(error.to_string().contains("inf is not a number of JSON"), "{error}");
    }

    #[test]
    fn whole_numbers_stay_whole_and_too_large_ones_become_floats() {
        let value = |text| to_value(serde_json::from_str(text).unwrap());
        assert_eq!(value("3"), Value::Int(3));
        assert_eq!(value("3.0"), Value::Float(3.0));
        assert_eq!(value("18446744073709551615"), Value::Float(18446744073709551615.0));
    }

    #[test]
    fn order_and_whole_numbers_are_kept() {
        let value = to_value(serde_json::from_str(r#"{"b":1,"a":[1.0,null]}"#).unwrap());
        let list = Value::Array(vec![Value::Float(1.0), Value::Null]);
        let expected = vec![("b".to_owned(), Value::Int(1)), ("a".to_owned(), list)];
        assert_eq!(value, Value::Object(expected));
    }
}
