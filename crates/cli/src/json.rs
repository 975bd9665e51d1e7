//! JSON text to and from the contract's values and messages.

use inference_core::{Message, Role, Value};
use serde_json::Value as Json;

use crate::failure::{Failure, Result};

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

/// `value` as JSON. A float that JSON cannot write becomes `null`.
pub fn from_value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
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

/// The value that `text` holds; `name` is the file it came from.
///
/// # Errors
/// What is wrong and where, with the file's name.
pub fn parse(text: &str, name: &str) -> Result<Value> {
    let json =
        serde_json::from_str(text).map_err(|e| Failure::Other(format!("{name}: not JSON: {e}")))?;
    Ok(to_value(json))
}

/// The messages of a JSON array as chat APIs take it: `[{"role": "user", "content": "…"}, …]`.
///
/// # Errors
/// What is wrong with which message, with the file's name.
pub fn parse_messages(text: &str, name: &str) -> Result<Vec<Message>> {
    let Value::Array(items) = parse(text, name)? else {
        return Err(Failure::Other(format!("{name}: expected a JSON array of messages")));
    };
    let one = |(index, item)| {
        message(item).map_err(|reason| Failure::Other(format!("{name}: message {index}: {reason}")))
    };
    items.into_iter().enumerate().map(one).collect()
}

fn message(item: Value) -> Result<Message, String> {
    let Value::Object(fields) = item else { return Err("expected an object".into()) };
    let mut role = None;
    let mut content = None;
    let mut rest = Vec::new();
    for (key, value) in fields {
        match key.as_str() {
            "role" => role = Some(value),
            "content" => content = Some(value),
            _ => rest.push((key, value)),
        }
    }
    let role = match role {
        Some(Value::String(name)) if !name.is_empty() => Role::from(name.as_str()),
        Some(_) => return Err("`role` is not a name".into()),
        None => return Err("`role` is missing".into()),
    };
    let content = match content {
        Some(value @ (Value::String(_) | Value::Array(_))) => value,
        // An assistant that only calls tools says nothing.
        Some(Value::Null) | None if role == Role::Assistant => Value::Null,
        Some(_) => return Err("`content` is neither text nor a list of parts".into()),
        None => return Err("`content` is missing".into()),
    };
    Ok(Message { role, content, fields: rest })
}

/// `messages` as [`parse_messages`] reads them, indented for people.
pub fn messages_text<'a>(messages: impl IntoIterator<Item = &'a Message>) -> String {
    let one = |message: &Message| -> Json {
        let head = [
            ("role".to_owned(), Json::from(message.role.as_str())),
            ("content".to_owned(), from_value(&message.content)),
        ];
        let rest = message.fields.iter().map(|(key, value)| (key.clone(), from_value(value)));
        Json::Object(head.into_iter().chain(rest).collect())
    };
    let array: Json = messages.into_iter().map(one).collect();
    format!("{array:#}\n")
}

#[cfg(test)]
mod tests {
    use inference_core::{Message, Role, Value};

    use super::{from_value, messages_text, parse_messages, to_value};

    #[test]
    fn values_survive_the_way_there_and_back() {
        let text = r#"{"b":1,"a":[null,true,-2.5,"x",{"z":0,"y":1.0}],"big":1e300}"#;
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(from_value(&to_value(json.clone())), json);
        assert_eq!(
            serde_json::to_string(&from_value(&to_value(json))).unwrap(),
            text.replace("1e300", "1e+300")
        );
    }

    #[test]
    fn whole_numbers_stay_whole_and_too_large_ones_become_floats() {
        let value = |text| to_value(serde_json::from_str(text).unwrap());
        assert_eq!(value("3"), Value::Int(3));
        assert_eq!(value("3.0"), Value::Float(3.0));
        assert_eq!(value("18446744073709551615"), Value::Float(18446744073709551615.0));
    }

    #[test]
    fn messages_keep_their_other_fields_in_order() {
        let text = r#"[{"role":"system","content":"Be brief."},
            {"content":null,"tool_calls":[{"id":"1"}],"role":"assistant","name":"m"},
            {"role":"tool","tool_call_id":"1","content":"4"},
            {"role":"user","content":[{"type":"text","text":"hi"}]}]"#;
        let messages = parse_messages(text, "chat.json").unwrap();
        assert_eq!(messages[0], Message::system("Be brief."));
        assert_eq!(messages[1].content, Value::Null);
        let keys: Vec<_> = messages[1].fields.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["tool_calls", "name"]);
        assert_eq!(messages[2].role, Role::Tool);
        assert!(matches!(messages[3].content, Value::Array(_)));
        assert_eq!(parse_messages(&messages_text(&messages), "again").unwrap(), messages);
    }

    #[test]
    fn a_bad_message_is_named_by_file_and_number() {
        let error = |text: &str| parse_messages(text, "chat.json").unwrap_err().to_string();
        assert_eq!(error(r#"{"role":"user"}"#), "chat.json: expected a JSON array of messages");
        assert_eq!(error("[1]"), "chat.json: message 0: expected an object");
        assert_eq!(
            error(r#"[{"role":"user","content":"a"},{"content":"b"}]"#),
            "chat.json: message 1: `role` is missing"
        );
        assert_eq!(error(r#"[{"role":"user"}]"#), "chat.json: message 0: `content` is missing");
        assert_eq!(
            error(r#"[{"role":"user","content":3}]"#),
            "chat.json: message 0: `content` is neither text nor a list of parts"
        );
        assert!(error("[{").starts_with("chat.json: not JSON: "));
    }
}
