//! `POST /v1/images/generations` and `/v1/images/edits`: what is asked for.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::response::Response;
use inference_core::{CancelToken, EncodedPicture, ImageRequest};
use serde_json::{Map, Value as Json};

use super::images_made::{Order, streamed, whole};
use super::tables;
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::fields::table::check;
use crate::http::body;
use crate::http::form::{self, Part};
use crate::pool::models::Makes;
use crate::protocol::own::inspect::CancelOnDrop;
use crate::protocol::pictures::of_data_url;
use crate::run::state::State;
use crate::run::tally::Tally;

/// The prefix of the names of an edit's events.
const EDIT: &str = "image_edit";

/// Pictures from words.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn generate(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    state.pool.check_kind(Makes::Pictures).await?;
    let (object, _) = body::object(&state, request).await?;
    let reader = check(&[tables::IMAGES], &state.config.limits, object)?;
    create(&state, reader, Vec::new(), "image_generation").await
}

/// Pictures from pictures and words.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn edit(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    state.pool.check_kind(Makes::Pictures).await?;
    let tables = [tables::IMAGES, tables::IMAGE_EDITS];
    if let Some(boundary) = form::boundary(request.headers()) {
        let (object, images) = taken(form::parts(&state, request, boundary).await?)?;
        let reader = check(&tables, &state.config.limits, object)?;
        return create(&state, reader, images, EDIT).await;
    }
    let (object, _) = body::object(&state, request).await?;
    let mut reader = check(&tables, &state.config.limits, object)?;
    let images = images(&mut reader)?;
    create(&state, reader, images, EDIT).await
}

/// The fields of a form as JSON has them, and its pictures.
fn taken(parts: Vec<Part>) -> Result<(Map<String, Json>, Vec<EncodedPicture>)> {
    let mut fields = Map::new();
    let mut images = Vec::new();
    for Part { name, is_file, bytes } in parts {
        if matches!(name.as_str(), "image" | "image[]") && is_file {
            images.push(EncodedPicture::new(bytes, format!("image[{}]", images.len())));
            continue;
        }
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| ApiError::value(&name, "is not text in UTF-8"))?;
        let value = match name.as_str() {
            "n"
            | "steps"
            | "seed"
            | "guidance"
            | "guidance_normalization"
            | "guidance_truncation"
            | "stream"
            | "partial_images"
            | "output_compression" => {
                serde_json::from_str(&text).unwrap_or_else(|_| Json::from(text))
            }
            _ => Json::from(text),
        };
        if fields.insert(name.clone(), value).is_some() {
            return Err(ApiError::value(name, "is given twice"));
        }
    }
    match images.is_empty() {
        true => Err(ApiError::value("image", "is missing: send a file")),
        false => Ok((fields, images)),
    }
}

/// The pictures of an edit: data URLs, one or several, or objects that have them as `image_url`.
fn images(reader: &mut Reader) -> Result<Vec<EncodedPicture>> {
    let given = match (reader.take("image"), reader.take("images")) {
        (Some(_), Some(_)) => {
            return Err(ApiError::value("images", "give `image` or `images`, not both"));
        }
        (Some(one), None) => ("image", one),
        (None, Some(several)) => ("images", several),
        (None, None) => return Err(ApiError::value("image", "is missing")),
    };
    let (name, given) = given;
    let items = match given {
        Json::Array(items) => items,
        one => vec![one],
    };
    let one = |(index, item): (usize, Json)| {
        let field = format!("{name}[{index}]");
        let url = match &item {
            Json::String(url) => url.as_str(),
            Json::Object(fields) if fields.len() == 1 => {
                fields.get("image_url").and_then(Json::as_str).unwrap_or_default()
            }
            _ => "",
        };
        if url.is_empty() {
            let reason = "expected a data URL, or an object with one as `image_url`";
            return Err(ApiError::value(field, reason));
        }
        of_data_url(&field, url)
    };
    items.into_iter().enumerate().map(one).collect()
}

/// The width and the height of `WIDTHxHEIGHT`; none for `auto`.
fn size(reader: &mut Reader) -> Result<[Option<usize>; 2]> {
    let Some(text) = reader.text("size")? else { return Ok([None; 2]) };
    if text == "auto" {
        return Ok([None; 2]);
    }
    let sides = text.split_once('x');
    let sides = sides.and_then(|(width, height)| Some([width.parse().ok()?, height.parse().ok()?]));
    let reason = || format!("`{text}` is not auto or WIDTHxHEIGHT, such as 1024x768");
    sides.map(|sides| sides.map(Some)).ok_or_else(|| ApiError::value("size", reason()))
}

/// Makes the pictures that `reader` asks for, one after the other.
async fn create(
    state: &Arc<State>,
    mut reader: Reader,
    images: Vec<EncodedPicture>,
    kind: &'static str,
) -> Result<Response> {
    let asked = reader.text("model")?;
    state.pool.find(asked.as_deref(), Makes::Pictures).await?;
    let prompt = reader.text("prompt")?;
    let [width, height] = size(&mut reader)?;
    let count = reader.count("n")?.unwrap_or(1);
    let seed = reader.count("seed")?.map(|seed| seed as u64).unwrap_or_else(drawn);
    let streams = reader.bool("stream")?.unwrap_or(false);
    let partial_images = reader.count("partial_images")?.unwrap_or(0);
    if partial_images > 0 && !streams {
        return Err(ApiError::value("partial_images", "says nothing without `stream`"));
    }
    // When the client leaves, what holds this is dropped, and the work ends between two steps.
    let guard = CancelOnDrop(CancelToken::new());
    let request = ImageRequest {
        prompt: reader.need("prompt", prompt)?,
        negative_prompt: reader.text("negative_prompt")?,
        width,
        height,
        steps: reader.count("steps")?,
        guidance: reader.number("guidance")?,
        guidance_normalization: reader.number("guidance_normalization")?,
        guidance_truncation: reader.number("guidance_truncation")?,
        images,
        partial_images,
        cancel: guard.0.clone(),
        ..ImageRequest::default()
    };
    for name in ["response_format", "output_format"] {
        // Its table has one value alone.
        reader.text(name)?;
    }
    reader.finish()?;
    Tally::current().asks_for(asked.as_deref());
    let model = state.pool.image(asked.as_deref()).await?;
    Tally::current().answered_by(model.name());
    let order = Order { kind, model, request, count, seed };
    match streams {
        true => streamed(state, order, guard).await,
        false => {
            let made = whole(state, order).await;
            drop(guard);
            made
        }
    }
}

/// A seed that nobody chose.
fn drawn() -> u64 {
    RandomState::new().build_hasher().finish() % (1 << 32)
}
