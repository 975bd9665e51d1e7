//! `POST /v1/audio/speech`: text as sound, sent piece by piece as it is said.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream;
use inference_core::{
    CancelToken, Error, SpeakOptions, SpeechEvent, SpeechMetrics, SpeechModel, SpeechText,
};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::{tables, told};
use crate::error::{ApiError, Names, Result};
use crate::fields::table::check;
use crate::http::body;
use crate::http::response::text_response;
use crate::pool::lease::Lease;
use crate::pool::models::Makes;
use crate::protocol::own::inspect::CancelOnDrop;
use crate::protocol::wire::Frame;
use crate::run::state::State;
use crate::run::tally::Tally;

/// The form of the sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A WAV file. Its header tells no length, which is not known when it is sent.
    Wav,
    /// Samples of 16 bits alone, low byte first.
    Pcm,
}

/// Text that is to be said.
struct Order {
    model: Lease<Arc<dyn SpeechModel>>,
    text: SpeechText,
    options: SpeakOptions,
    form: Form,
}

/// Says a text.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn speak(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    state.pool.check_kind(Makes::Speech).await?;
    let (object, _) = body::object(&state, request).await?;
    let mut reader = check(&[tables::SPEAKING], &state.config.limits, object)?;
    let asked = reader.text("model")?;
    state.pool.find(asked.as_deref(), Makes::Speech).await?;
    // When the client leaves, what holds this is dropped, and the work ends soon.
    let guard = CancelOnDrop(CancelToken::new());
    let input = reader.text("input")?.unwrap_or_default();
    let text = match reader.bool("phonemes")?.unwrap_or(false) {
        true => SpeechText::Phonemes(input),
        false => SpeechText::Plain(input),
    };
    let form = match reader.text("response_format")?.as_deref() {
        Some("pcm") => Form::Pcm,
        _ => Form::Wav,
    };
    let by_events = reader.text("stream_format")?.as_deref() == Some("sse");
    let options = SpeakOptions {
        voice: reader.text("voice")?,
        speed: reader.number("speed")?,
        seed: reader.count("seed")?.map(|seed| seed as u64),
        cancel: guard.0.clone(),
    };
    reader.finish()?;
    options.validate().map_err(named)?;
    Tally::current().asks_for(asked.as_deref());
    let model = state.pool.speech(asked.as_deref()).await?;
    Tally::current().answered_by(model.name());
    let order = Order { model, text, options, form };
    match by_events {
        true => told::streamed(&state, move |events| order.tell(events), guard).await,
        false => sent(&state, order, guard).await,
    }
}

/// An error with the names of fields.
fn named(error: Error) -> ApiError {
    ApiError::from(error).named(&Names::new(&[("text", "input")]))
}

impl Order {
    /// Says the text, and gives the bytes of each piece to `give`, which says whether to go on.
    fn make(self, mut give: impl FnMut(Vec<u8>) -> bool) -> Result<SpeechMetrics> {
        let Order { model, text, options, form } = self;
        let mut is_first = form == Form::Wav;
        let mut said = || -> inference_core::Result<SpeechMetrics> {
            for event in model.speak(&text, &options)? {
                match event? {
                    SpeechEvent::Done(metrics) => return Ok(metrics),
                    SpeechEvent::Piece(piece) => {
                        let begins = std::mem::take(&mut is_first);
                        let mut bytes = if begins { header(piece.sound.rate) } else { Vec::new() };
                        bytes.extend(piece.sound.values.iter().flat_map(|value| level(*value)));
                        if !give(bytes) {
                            return Err(Error::Cancelled);
                        }
                    }
                    _ => {}
                }
            }
            Err(Error::Closed)
        };
        said().map_err(named)
    }

    /// Sends the sound in events, as long as somebody takes them.
    fn tell(self, events: &mpsc::Sender<Result<Frame>>) {
        let made = self.make(|bytes| {
            let audio = STANDARD.encode(bytes);
            let delta = json!({"type": "speech.audio.delta", "audio": audio});
            events.blocking_send(Ok(Frame::Event("speech.audio.delta", delta))).is_ok()
        });
        let last = made.map(|metrics| {
            let usage = json!({
                "input_tokens": metrics.phonemes,
                "output_tokens": 0,
                "total_tokens": metrics.phonemes,
            });
            let done = json!({"type": "speech.audio.done", "usage": usage});
            Frame::Event("speech.audio.done", done)
        });
        let _ = events.blocking_send(last);
    }
}

/// Sound on its way to a client.
struct Sounds {
    pieces: mpsc::Receiver<Result<Vec<u8>>>,
    worker: Option<JoinHandle<()>>,
    cuts: watch::Receiver<bool>,
    tally: Tally,
    _guard: CancelOnDrop,
}

impl Sounds {
    async fn next(&mut self) -> Option<Result<Vec<u8>>> {
        let next = tokio::select! {
            next = self.pieces.recv() => next,
            _ = self.cuts.wait_for(|is_cut| *is_cut) => Some(Err(Error::Cancelled.into())),
        };
        match next {
            // All was told, or the work panicked.
            None => self.worker.take()?.await.err().map(|_| Err(ApiError::panicked())),
            next => next,
        }
    }
}

/// The sound as a body. A failure before the first piece is a response of its own; a later one
/// breaks the body off.
async fn sent(state: &State, order: Order, guard: CancelOnDrop) -> Result<Response> {
    let (sender, pieces) = mpsc::channel(1);
    let media_type = match order.form {
        Form::Wav => "audio/wav",
        Form::Pcm => "audio/pcm",
    };
    let worker = tokio::task::spawn_blocking(move || {
        let made = order.make(|bytes| sender.blocking_send(Ok(bytes)).is_ok());
        if let Err(error) = made {
            let _ = sender.blocking_send(Err(error));
        }
    });
    let tally = Tally::current();
    let mut sounds =
        Sounds { pieces, worker: Some(worker), cuts: state.cuts(), tally, _guard: guard };
    let first = sounds.next().await.transpose()?.unwrap_or_default();
    let body = stream::unfold((Some(first), sounds), |(first, mut sounds)| async move {
        let next = match first {
            Some(first) => Ok(first),
            None => sounds.next().await?,
        };
        let next = next.map_err(|error| {
            sounds.tally.failed(&error);
            io::Error::other("the speech failed")
        });
        Some((next, (None, sounds)))
    });
    Ok(text_response(StatusCode::OK, media_type, Body::from_stream(body)))
}

/// A sample of 16 bits.
fn level(value: f32) -> [u8; 2] {
    let level = (f64::from(value) * 32768.0).round().clamp(-32768.0, 32767.0);
    (level as i16).to_le_bytes()
}

/// The header of a WAV file of one channel, as long as can be.
fn header(rate: u32) -> Vec<u8> {
    let mut header = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    header.extend(rate.to_le_bytes());
    header.extend(rate.saturating_mul(2).to_le_bytes());
    header.extend(b"\x02\0\x10\0data\xff\xff\xff\xff");
    header
}
