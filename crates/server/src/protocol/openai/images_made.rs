//! Pictures that were asked for, made one after the other: all in one answer, or each in events.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use inference_core::{Error, GeneratedImage, ImageEvent, ImageModel, ImageRequest, Picture};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use super::told;
use crate::error::{ApiError, Names, Result};
use crate::http::response::json_response;
use crate::pool::lease::Lease;
use crate::protocol::own::inspect::CancelOnDrop;
use crate::protocol::wire::Frame;
use crate::run::state::{State, blocking, cut_off, now};

/// Pictures that are asked for.
pub struct Order {
    /// The prefix of its events' names: `image_generation` or `image_edit`.
    pub kind: &'static str,
    /// The model that makes them.
    pub model: Lease<Arc<dyn ImageModel>>,
    /// The first one, but for its seed.
    pub request: ImageRequest,
    /// How many.
    pub count: usize,
    /// The seed of the first one; the others' follow.
    pub seed: u64,
}

/// A finished picture, and its PNG in base64.
type Made = (GeneratedImage, String);

impl Order {
    /// Makes picture `index`, and tells of each that is on the way.
    fn make(&self, index: usize, mut tell: impl FnMut(usize, &Picture, String)) -> Result<Made> {
        let seed = Some(self.seed.wrapping_add(index as u64));
        let request = ImageRequest { seed, ..self.request.clone() };
        let mut made = || -> inference_core::Result<Made> {
            for event in self.model.generate(&request)? {
                match event? {
                    ImageEvent::Done(image) => {
                        let file = encoded(&image.picture)?;
                        return Ok((*image, file));
                    }
                    ImageEvent::Partial { index, picture } => {
                        tell(index, &picture, encoded(&picture)?);
                    }
                    _ => {}
                }
            }
            Err(Error::Closed)
        };
        let names = Names::new(&[("width", "size"), ("height", "size"), ("images", "image")]);
        made().map_err(|error| ApiError::from(error).named(&names))
    }

    /// Sends the events of all pictures, as long as somebody takes them.
    fn tell(&self, events: &mpsc::Sender<Result<Frame>>) {
        for index in 0..self.count {
            let made = self.make(index, |number, picture, file| {
                let mut event = self.event("partial_image", picture, file);
                event["partial_image_index"] = json!(number);
                // Where nobody listens, the work was cancelled.
                let _ = events.blocking_send(Ok(self.frame("partial_image", event)));
            });
            let sent = match made {
                Ok((image, file)) => {
                    let mut event = self.event("completed", &image.picture, file);
                    event["seed"] = json!(image.facts.seed);
                    event["usage"] = usage(&[&image]);
                    events.blocking_send(Ok(self.frame("completed", event)))
                }
                Err(error) => {
                    let _ = events.blocking_send(Err(error));
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
    }

    fn event(&self, what: &str, picture: &Picture, file: String) -> Json {
        let mut event = described(Some(picture));
        event["type"] = json!(format!("{}.{what}", self.kind));
        event["created_at"] = json!(now());
        event["b64_json"] = json!(file);
        event
    }

    fn frame(&self, what: &str, event: Json) -> Frame {
        let name = match (self.kind, what) {
            ("image_edit", "completed") => "image_edit.completed",
            ("image_edit", _) => "image_edit.partial_image",
            (_, "completed") => "image_generation.completed",
            _ => "image_generation.partial_image",
        };
        Frame::Event(name, event)
    }
}

/// All pictures in one answer.
///
/// # Errors
/// The first failure, which ends the others.
pub async fn whole(state: &State, order: Order) -> Result<Response> {
    let work = move || (0..order.count).map(|index| order.make(index, |_, _, _| {})).collect();
    let made: Vec<Made> = cut_off(state, blocking(work)).await?;
    let images: Vec<_> = made.iter().map(|(image, _)| image).collect();
    let mut answer = described(images.first().map(|image| &image.picture));
    answer["created"] = json!(now());
    answer["usage"] = usage(&images);
    let data = |(image, file): &Made| json!({"b64_json": file, "seed": image.facts.seed});
    answer["data"] = made.iter().map(data).collect();
    Ok(json_response(StatusCode::OK, &answer))
}

/// The pictures in events, as [`told`](super::told::streamed) has it.
///
/// # Errors
/// A failure before the first event.
pub async fn streamed(state: &State, order: Order, guard: CancelOnDrop) -> Result<Response> {
    told::streamed(state, move |events| order.tell(events), guard).await
}

/// A PNG in base64.
fn encoded(picture: &Picture) -> inference_core::Result<String> {
    let sides = (picture.width as u32, picture.height as u32);
    let failed = |error: &dyn std::fmt::Display| Error::Engine(error.to_string());
    let picture = pictures::Picture::new(sides.0, sides.1, picture.rgb.clone());
    let file = picture.map_err(|error| failed(&error))?.to_png(&[]);
    Ok(STANDARD.encode(file.map_err(|error| failed(&error))?))
}

/// The fields of a picture that every answer and every event has.
fn described(picture: Option<&Picture>) -> Json {
    let size = picture.map(|picture| format!("{}x{}", picture.width, picture.height));
    json!({"background": "opaque", "output_format": "png", "quality": "auto", "size": size})
}

fn usage(images: &[&GeneratedImage]) -> Json {
    let sum =
        |of: fn(&GeneratedImage) -> usize| images.iter().map(|image| of(image)).sum::<usize>();
    let input = sum(|image| image.facts.prompt_tokens);
    let seen = sum(|image| image.facts.prompt_image_tokens);
    let output = sum(|image| image.facts.image_tokens);
    json!({
        "input_tokens": input,
        "input_tokens_details": {"image_tokens": seen, "text_tokens": input.saturating_sub(seen)},
        "output_tokens": output,
        "total_tokens": input + output,
    })
}
