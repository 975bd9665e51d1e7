//! JSON text to and from the contract's values and messages.

use std::path::Path;

use inference_core::{EncodedPicture, EncodedSound, Message, Role, Value};
use inference_text::json::{from_value, to_value};
use serde_json::{Value as Json, json};

use crate::failure::{Failure, Result};
use crate::pictures;

/// The value that `text` holds; `name` is the file it came from.
///
/// # Errors
/// The mistake and where it is, with the file's name.
pub fn parse(text: &str, name: &str) -> Result<Value> {
    let json =
        serde_json::from_str(text).map_err(|e| Failure::Other(format!("{name}: not JSON: {e}")))?;
    Ok(to_value(json))
}

/// The messages of a JSON array as chat APIs take it: `[{"role": "user", "content": "…"}, …]`.
///
/// # Errors
/// The mistake and its message's number, with the file's name.
pub fn parse_messages(text: &str, name: &str) -> Result<Vec<Message>> {
    messages(parse(text, name)?, name)
}

/// The messages of a value as [`parse_messages`] takes it; `name` says where it stands.
///
/// # Errors
/// The mistake and its message's number.
pub fn messages(value: Value, name: &str) -> Result<Vec<Message>> {
    let Value::Array(items) = value else {
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
    let content = with_files(content)?;
    Ok(Message { role, content, fields: rest })
}

/// `content` with the pictures and sounds of its parts `{"type": "image", "path": FILE}` and
/// `{"type": "audio", "path": FILE}` read.
fn with_files(content: Value) -> Result<Value, String> {
    let Value::Array(parts) = content else { return Ok(content) };
    let one = |(index, part): (usize, Value)| -> Result<Value, String> {
        let kind = match part.get("type").and_then(Value::as_str) {
            Some("image") => "picture",
            Some("audio") => "sound",
            _ => return Ok(part),
        };
        let Value::Object(fields) = &part else { return Ok(part) };
        let Some((_, path)) = fields.iter().find(|(name, _)| name == "path") else {
            return Ok(part);
        };
        let wrong = |reason: String| format!("part {index}: {reason}");
        if let Some((name, _)) = fields.iter().find(|(name, _)| name != "type" && name != "path") {
            return Err(wrong(format!("`{name}` says nothing of a {kind} by its path")));
        }
        let path = path.as_str().ok_or_else(|| wrong("`path` is no text".into()))?;
        let part = match kind {
            "picture" => pictures::read(Path::new(path)).map(EncodedPicture::into_part),
            _ => pictures::read_sound(Path::new(path)).map(EncodedSound::into_part),
        };
        part.map_err(|error| wrong(error.to_string()))
    };
    parts.into_iter().enumerate().map(one).collect::<Result<_, _>>().map(Value::Array)
}

/// `content` as [`with_files`] reads it: pictures and sounds by the paths that they came from.
fn with_paths(content: &Value) -> Json {
    let Value::Array(parts) = content else { return from_value(content) };
    let one = |part: &Value| match (EncodedPicture::of_part(part), EncodedSound::of_part(part)) {
        (Some(picture), _) => json!({"type": "image", "path": &*picture.name}),
        (_, Some(sound)) => json!({"type": "audio", "path": &*sound.name}),
        _ => from_value(part),
    };
    Json::Array(parts.iter().map(one).collect())
}

/// The arguments of a call: an object, or the text itself where the model wrote none.
pub fn arguments(text: &str) -> Value {
    match serde_json::from_str::<Json>(text) {
        Ok(json @ Json::Object(_)) => to_value(json),
        _ => Value::from(text),
    }
}

/// `messages` as [`parse_messages`] reads them, indented for people.
pub fn messages_text<'a>(messages: impl IntoIterator<Item = &'a Message>) -> String {
    let one = |message: &Message| -> Json {
        let head = [
            ("role".to_owned(), Json::from(message.role.as_str())),
            ("content".to_owned(), with_paths(&message.content)),
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

    use super::{messages_text, parse_messages};

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
    fn pictures_are_read_by_their_paths_and_written_by_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fox.png");
        let bytes = pictures::Picture::new(1, 1, vec![7; 3]).unwrap().to_png(&[]).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        let text = |path: &str| {
            let part = serde_json::json!({"type": "image", "path": path});
            serde_json::json!([{"role": "user", "content": [part]}]).to_string()
        };
        let messages = parse_messages(&text(path.to_str().unwrap()), "chat.json").unwrap();
        let shown: Vec<_> = messages[0].pictures().collect();
        assert_eq!((shown.len(), &*shown[0].bytes), (1, &*bytes));
        assert_eq!(parse_messages(&messages_text(&messages), "again").unwrap(), messages);

        let talk = folder.path().join("talk.wav");
        std::fs::write(&talk, "RIFF").unwrap();
        let part = serde_json::json!({"type": "audio", "path": talk});
        let heard = serde_json::json!([{"role": "user", "content": [part]}]).to_string();
        let messages = parse_messages(&heard, "chat.json").unwrap();
        assert_eq!(messages[0].sounds().map(|sound| sound.bytes.len()).sum::<usize>(), 4);
        assert_eq!(parse_messages(&messages_text(&messages), "again").unwrap(), messages);

        std::fs::write(&path, "a fox").unwrap();
        let error = parse_messages(&text(path.to_str().unwrap()), "chat.json").unwrap_err();
        let told = format!("chat.json: message 0: part 0: {}: the picture is of", path.display());
        assert!(error.to_string().starts_with(&told), "{error}");
        let error = parse_messages(&text("absent.png"), "chat.json").unwrap_err();
        assert!(error.to_string().contains("part 0: absent.png"), "{error}");
        let more = r#"[{"role":"user","content":[{"type":"image","path":"a","x":1}]}]"#;
        let error = parse_messages(more, "chat.json").unwrap_err().to_string();
        assert!(error.contains("part 0: `x` says nothing"), "{error}");
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
