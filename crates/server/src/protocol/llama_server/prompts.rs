//! Prompts as llama.cpp's requests have them: text, token ids, both in turn, an object with a text,
//! or an array of these.

use inference_core::{Prompt, PromptPart, TextModel};
use serde_json::Value as Json;

use crate::error::{ApiError, Result};
use crate::fields::reader::{Reader, expected, ids};
use crate::protocol::tokens::bare;

/// The prompts of the field `name`, of which there may be `most`.
///
/// # Errors
/// A prompt has none of the forms; there are none, or too many.
pub fn prompts(name: &str, value: Json, most: usize) -> Result<Vec<Prompt>> {
    let items = match value {
        Json::Array(items) if !items.iter().any(Json::is_number) => items,
        one => return Ok(vec![prompt(name, one)?]),
    };
    if items.is_empty() {
        return Err(ApiError::value(name, "is empty"));
    }
    if items.len() > most {
        let reason = format!("has {} entries, at most {most} are allowed", items.len());
        return Err(ApiError::value(name, reason));
    }
    let one = |(index, item)| prompt(&format!("{name}[{index}]"), item);
    items.into_iter().enumerate().map(one).collect()
}

/// The one prompt of the field at `path`.
fn prompt(path: &str, value: Json) -> Result<Prompt> {
    match value {
        Json::String(text) => Ok(Prompt::Text(text)),
        Json::Array(items) if items.is_empty() => Err(ApiError::value(path, "is empty")),
        Json::Array(items) if items.iter().any(Json::is_string) => mixed(path, items),
        Json::Array(items) => Ok(Prompt::Ids(ids(path, &items)?)),
        Json::Object(fields) => Ok(Prompt::Text(text(Reader::new(path, Json::Object(fields))?)?)),
        other => Err(expected(path, "text, token ids, or an object with text", &other)),
    }
}

/// Texts and ids in turn.
fn mixed(path: &str, items: Vec<Json>) -> Result<Prompt> {
    let part = |(index, item)| match item {
        Json::String(text) => Ok(PromptPart::Text(text)),
        item => Ok(PromptPart::Ids(ids(&format!("{path}[{index}]"), &[item])?)),
    };
    Ok(Prompt::Parts(items.into_iter().enumerate().map(part).collect::<Result<_>>()?))
}

/// The text of an object: its `prompt_string`, or the texts of its `content`.
fn text(mut object: Reader) -> Result<String> {
    if object.list("multimodal_data")?.is_some_and(|data| !data.is_empty()) {
        let path = object.path("multimodal_data");
        return Err(ApiError::unsupported(path, "pictures and sounds belong to conversations"));
    }
    let (whole, content) = (object.text("prompt_string")?, object.list("content")?);
    let text = match (whole, content) {
        (Some(text), None) => text,
        (None, Some(parts)) => {
            let path = object.path("content");
            let one = |(index, part)| of_part(Reader::new(format!("{path}[{index}]"), part)?);
            parts.into_iter().enumerate().map(one).collect::<Result<_>>()?
        }
        _ => {
            let reason = "expected either `prompt_string` or `content`";
            return Err(ApiError::value(object.own_path(), reason));
        }
    };
    object.finish()?;
    Ok(text)
}

fn of_part(mut part: Reader) -> Result<String> {
    let kind = part.text("type")?;
    if kind.as_deref() != Some("text") {
        return Err(ApiError::unsupported(part.path("type"), "parts are texts"));
    }
    let text = part.text("text")?;
    let text = part.need("text", text)?;
    part.finish()?;
    Ok(text)
}

/// The ids of `prompt`, and its text.
///
/// # Errors
/// The tokenizer fails.
pub fn encoded(model: &dyn TextModel, prompt: Prompt) -> Result<(Vec<u32>, String)> {
    let ids = match prompt {
        Prompt::Text(text) => return Ok((model.encode(&text)?, text)),
        Prompt::Ids(ids) => ids,
        Prompt::Parts(parts) => {
            let mut ids = Vec::new();
            for (index, part) in parts.into_iter().enumerate() {
                match part {
                    PromptPart::Ids(more) => ids.extend(more),
                    PromptPart::Text(text) if index == 0 => ids.extend(model.encode(&text)?),
                    PromptPart::Text(text) => ids.extend(bare(model, &text)?),
                    PromptPart::Picture(_) | PromptPart::Sound(_) => {
                        return Err(ApiError::value("prompt", "expected texts and token ids"));
                    }
                }
            }
            ids
        }
    };
    let text = model.decode_with_special(&ids)?;
    Ok((ids, text))
}

#[cfg(test)]
mod tests {
    use inference_core::{Prompt, PromptPart};
    use serde_json::{Value as Json, json};

    use super::prompts;

    #[test]
    fn each_form_is_read() {
        let read = |value| prompts("prompt", value, 3).unwrap();
        assert_eq!(read(json!("a")), [Prompt::from("a")]);
        assert_eq!(read(json!([1, 2])), [Prompt::Ids(vec![1, 2])]);
        assert_eq!(read(json!([[1], "b"])), [Prompt::Ids(vec![1]), Prompt::from("b")]);
        let parts = vec![
            PromptPart::Ids(vec![1]),
            PromptPart::Text("a".to_owned()),
            PromptPart::Ids(vec![2]),
        ];
        assert_eq!(read(json!([1, "a", 2])), [Prompt::Parts(parts.clone())]);
        assert_eq!(read(json!(["b", [1, "a", 2]])), [Prompt::from("b"), Prompt::Parts(parts)]);
        let text = json!({"type": "text", "text": "a"});
        let objects = json!([{"prompt_string": "a"}, {"content": [text, text]}]);
        assert_eq!(read(objects), [Prompt::from("a"), Prompt::from("aa")]);
    }

    #[test]
    fn what_is_no_prompt_is_named_with_its_place() {
        let param =
            |value: Json| prompts("prompt", value, 2).unwrap_err().param.unwrap_or_default();
        for (value, place) in [
            (json!(1), "prompt"),
            (json!([]), "prompt"),
            (json!([[]]), "prompt[0]"),
            (json!([1, -1]), "prompt[1]"),
            (json!(["a", {}]), "prompt[1]"),
            (json!([1, true]), "prompt[1]"),
            (json!({"prompt_string": "a", "content": []}), "prompt"),
            (json!({"prompt_string": "a", "x": 1}), "prompt.x"),
            (json!({"prompt_string": "a", "multimodal_data": ["A"]}), "prompt.multimodal_data"),
            (json!({"content": [{"type": "image_url"}]}), "prompt.content[0].type"),
            (json!(["a", "b", "c"]), "prompt"),
        ] {
            assert_eq!(param(value.clone()), place, "{value}");
        }
    }
}
