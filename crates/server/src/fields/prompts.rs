//! Prompts as OpenAI's requests have them: text, token ids, or an array of either.

use inference_core::Prompt;
use serde_json::Value as Json;

use super::reader::{expected, ids};
use crate::error::{ApiError, Result};

/// The prompts of the field `name`, of which there may be `most`.
///
/// # Errors
/// A prompt is neither text nor ids; there are none, or too many.
pub fn prompts(name: &str, value: Json, most: usize) -> Result<Vec<Prompt>> {
    let items = match value {
        Json::Array(items) if !items.first().is_some_and(Json::is_number) => items,
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
///
/// # Errors
/// It is neither text nor ids.
pub fn prompt(path: &str, value: Json) -> Result<Prompt> {
    match value {
        Json::String(text) => Ok(Prompt::Text(text)),
        Json::Array(items) => Ok(Prompt::Ids(ids(path, &items)?)),
        other => Err(expected(path, "text or token ids", &other)),
    }
}

#[cfg(test)]
mod tests {
    use inference_core::Prompt;
    use serde_json::{Value as Json, json};

    use super::prompts;

    #[test]
    fn all_four_forms_are_read() {
        let read = |value| prompts("prompt", value, 2).unwrap();
        assert_eq!(read(json!("a")), [Prompt::from("a")]);
        assert_eq!(read(json!(["a", "b"])), [Prompt::from("a"), Prompt::from("b")]);
        assert_eq!(read(json!([1, 2, 3])), [Prompt::Ids(vec![1, 2, 3])]);
        assert_eq!(read(json!([[1], "b"])), [Prompt::Ids(vec![1]), Prompt::from("b")]);
    }

    #[test]
    fn what_is_no_prompt_is_named_with_its_place() {
        let param =
            |value: Json| prompts("prompt", value, 2).unwrap_err().param.unwrap_or_default();
        assert_eq!(param(json!(1)), "prompt");
        assert_eq!(param(json!([])), "prompt");
        assert_eq!(param(json!(["a", {}])), "prompt[1]");
        assert_eq!(param(json!([1, -1])), "prompt[1]");
        assert_eq!(param(json!(["a", "b", "c"])), "prompt");
    }
}
