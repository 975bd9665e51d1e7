//! The content of messages and outputs, which comes as a text or in parts.

use inference_core::EncodedPicture;
use serde_json::Value as Json;

use crate::error::{ApiError, Result};
use crate::fields::reader::{Reader, expected};
use crate::fields::table::{Field, Kind, nothing, take_object};
use crate::protocol::content::Content;
use crate::protocol::pictures::Pictures;

/// The texts, pictures and sounds of `content`. Nothing separates texts that follow each other.
///
/// # Errors
/// A part that is none of these, by its path.
pub fn content(path: &str, content: Json, pictures: &Pictures<'_>) -> Result<Content> {
    let mut whole = Content::new("");
    match content {
        Json::String(text) => whole.text(&text),
        Json::Array(parts) => {
            for (index, part) in parts.into_iter().enumerate() {
                part_of(Reader::new(format!("{path}[{index}]"), part)?, pictures, &mut whole)?;
            }
        }
        other => return Err(expected(path, "a string or an array of parts", &other)),
    }
    Ok(whole)
}

fn part_of(mut part: Reader, pictures: &Pictures<'_>, whole: &mut Content) -> Result<()> {
    let kind = part.text("type")?;
    let name = match part.need("type", kind)?.as_str() {
        "input_text" => {
            hint(&mut part)?;
            "text"
        }
        "output_text" => {
            if part.list("annotations")?.is_some_and(|notes| !notes.is_empty()) {
                let reason = "there are no documents to cite";
                return Err(ApiError::unsupported(part.path("annotations"), reason));
            }
            // They were told to the client, and say nothing to the model.
            logprobs(&mut part)?;
            "text"
        }
        "refusal" => "refusal",
        "input_image" => {
            whole.picture(image(&mut part, pictures)?);
            hint(&mut part)?;
            return part.finish();
        }
        "input_audio" => {
            whole.sound(pictures.sounds().of_openai(&mut part)?);
            hint(&mut part)?;
            return part.finish();
        }
        "input_file" => {
            let reason =
                "this server takes text, pictures (`input_image`) and sounds (`input_audio`)";
            return Err(ApiError::unsupported(part.path("type"), reason));
        }
        other => {
            let reason = format!("`{other}` is no kind of part that is known");
            return Err(ApiError::value(part.path("type"), reason));
        }
    };
    let text = part.text(name)?;
    whole.text(&part.need(name, text)?);
    part.finish()
}

/// Takes tokens and how likely they were, with what could have been in their places.
fn logprobs(part: &mut Reader) -> Result<()> {
    for mut one in objects(part, "logprobs")? {
        logprob(&mut one)?;
        for mut other in objects(&mut one, "top_logprobs")? {
            logprob(&mut other)?;
            other.finish()?;
        }
        one.finish()?;
    }
    Ok(())
}

fn logprob(one: &mut Reader) -> Result<()> {
    one.text("token")?;
    one.number("logprob")?;
    one.list("bytes").map(drop)
}

/// The objects of the list `name`.
fn objects(reader: &mut Reader, name: &str) -> Result<Vec<Reader>> {
    let path = reader.path(name);
    let items = reader.list(name)?.into_iter().flatten().enumerate();
    items.map(|(index, item)| Reader::new(format!("{path}[{index}]"), item)).collect()
}

/// The fields of a hint at the end of a prefix to cache.
const BREAKPOINT: &[Field] = &[
    nothing("mode", Kind::OneOf(&["explicit"]), "Who says so."),
    nothing("ttl", Kind::OneOf(&["30m", "12h"]), "How long to keep it."),
];

/// Takes a hint: what is cached is found by its tokens.
fn hint(part: &mut Reader) -> Result<()> {
    take_object(part, "prompt_cache_breakpoint", BREAKPOINT)
}

/// The picture of a part, by its URL.
fn image(part: &mut Reader, pictures: &Pictures<'_>) -> Result<EncodedPicture> {
    pictures.check_sees(part.own_path())?;
    if part.text("file_id")?.is_some() {
        let reason = "the server stores no files; send the picture as `image_url`";
        return Err(ApiError::unsupported(part.path("file_id"), reason));
    }
    pictures.check_detail(&part.path("detail"), part.text("detail")?.as_deref())?;
    let url = part.text("image_url")?;
    let url = part.need("image_url", url)?;
    pictures.of_url(part.own_path(), &part.path("image_url"), &url)
}

/// The texts of `items`, which are all of one of `kinds`, joined by blank lines.
///
/// # Errors
/// An item of another kind, by its path.
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
