//! The texts of messages and outputs, which come as they are or in parts.

use serde_json::Value as Json;

use crate::error::{ApiError, Result};
use crate::fields::reader::{Reader, expected};

/// The text of `content`, whose parts follow each other without anything between.
///
/// # Errors
/// What is no text, by its path.
pub fn text(path: &str, content: Json) -> Result<String> {
    match content {
        Json::String(text) => Ok(text),
        Json::Array(parts) => {
            let one = |(index, part)| part_text(Reader::new(format!("{path}[{index}]"), part)?);
            parts.into_iter().enumerate().map(one).collect()
        }
        other => Err(expected(path, "a string or an array of parts", &other)),
    }
}

fn part_text(mut part: Reader) -> Result<String> {
    let kind = part.text("type")?;
    let name = match part.need("type", kind)?.as_str() {
        "input_text" => {
            // A hint: what is cached is found by its tokens.
            part.object("prompt_cache_breakpoint")?;
            "text"
        }
        "output_text" => {
            if part.list("annotations")?.is_some_and(|notes| !notes.is_empty()) {
                let reason = "there are no documents to cite";
                return Err(ApiError::unsupported(part.path("annotations"), reason));
            }
            // They were told to the client, and say nothing to the model.
            part.list("logprobs")?;
            "text"
        }
        "refusal" => "refusal",
        "input_image" | "input_file" | "input_audio" => {
            let reason = "this model reads text alone";
            return Err(ApiError::unsupported(part.path("type"), reason));
        }
        other => {
            let reason = format!("`{other}` is no kind of part that is known");
            return Err(ApiError::value(part.path("type"), reason));
        }
    };
    let text = part.text(name)?;
    let text = part.need(name, text)?;
    part.finish()?;
    Ok(text)
}

/// The texts of `items`, which are all of one of `kinds`, joined by blank lines.
///
/// # Errors
/// What is of another kind, by its path.
pub fn texts_of(path: &str, items: Vec<Json>, kinds: &[&str]) -> Result<String> {
    let one = |(index, item)| {
        let mut item = Reader::new(format!("{path}[{index}]"), item)?;
        let kind = item.text("type")?;
        let kind = item.need("type", kind)?;
        if !kinds.contains(&kind.as_str()) {
            let reason = format!("`{kind}` is not {}", kinds.join(" or "));
            return Err(ApiError::value(item.path("type"), reason));
        }
        let text = item.text("text")?;
        let text = item.need("text", text)?;
        item.finish()?;
        Ok(text)
    };
    let texts = items.into_iter().enumerate().map(one).collect::<Result<Vec<String>>>()?;
    Ok(texts.join("\n\n"))
}
