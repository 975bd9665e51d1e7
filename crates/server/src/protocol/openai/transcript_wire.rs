//! Transcriptions as OpenAI's clients read them: whole, or each segment as an event.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use inference_core::{
    Error, Samples, SpeechSegment, SpeechTask, TranscribeOptions, Transcript, TranscriptionEvent,
    TranscriptionModel,
};
use serde_json::{Value as Json, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::told;
use crate::error::{ApiError, Names, Result};
use crate::http::response::{json_response, text_response};
use crate::pool::lease::Lease;
use crate::protocol::own::inspect::CancelOnDrop;
use crate::protocol::wire::Frame;
use crate::run::state::{State, blocking, cut_off};

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// An object with the text.
    Json,
    /// The text alone.
    Text,
    /// Subtitles of SubRip.
    Srt,
    /// Subtitles of WebVTT.
    Vtt,
    /// An object with segments, words or both.
    Verbose { segments: bool, words: bool },
}

/// Sound that is to be transcribed.
pub struct Order {
    pub model: Lease<Arc<dyn TranscriptionModel>>,
    pub samples: Samples,
    /// Until the model has taken the samples.
    pub held: OwnedSemaphorePermit,
    pub options: TranscribeOptions,
    pub written: Written,
}

impl Order {
    /// Transcribes, and tells of each segment with the text before it, if there is any.
    fn make(self, tell: impl Fn(&SpeechSegment)) -> Result<Transcript> {
        let Order { model, samples, held, options, .. } = self;
        let made = || -> inference_core::Result<Transcript> {
            let events = model.transcribe(samples, &options);
            drop(held);
            for event in events? {
                match event? {
                    TranscriptionEvent::Done(transcript) => return Ok(*transcript),
                    TranscriptionEvent::Segment(segment) => tell(&segment),
                    _ => {}
                }
            }
            Err(Error::Closed)
        };
        made().map_err(|error| ApiError::from(error).named(&names()))
    }

    /// Sends the events of the text, as long as somebody takes them.
    fn tell(self, events: &mpsc::Sender<Result<Frame>>) {
        let made = self.make(|segment| {
            let delta = json!({"type": "transcript.text.delta", "delta": segment.text});
            // Where nobody listens, the work was cancelled.
            let _ = events.blocking_send(Ok(Frame::Event("transcript.text.delta", delta)));
        });
        let last = made.map(|transcript| {
            let mut done = object(&transcript);
            done["type"] = json!("transcript.text.done");
            Frame::Event("transcript.text.done", done)
        });
        let _ = events.blocking_send(last);
    }
}

/// The names of fields whose options have others.
pub fn names() -> Names {
    Names::new(&[
        ("fallback", "temperature_fallback"),
        ("condition_on_previous", "condition_on_previous_text"),
        ("timestamps", "timestamp_granularities"),
        ("sound", "file"),
    ])
}

/// The text in one answer.
///
/// # Errors
/// Why there is none.
pub async fn whole(state: &State, order: Order) -> Result<Response> {
    let (written, task) = (order.written, order.options.task);
    let transcript = cut_off(state, blocking(move || order.make(|_| {}))).await?;
    const PLAIN: &str = "text/plain; charset=utf-8";
    let (status, text) = (StatusCode::OK, || format!("{}\n", transcript.text.trim()));
    Ok(match written {
        Written::Json => json_response(status, &object(&transcript)),
        Written::Text => text_response(status, PLAIN, text()),
        Written::Srt => text_response(status, PLAIN, transcript.srt()),
        Written::Vtt => text_response(status, PLAIN, transcript.vtt()),
        Written::Verbose { segments, words } => {
            json_response(status, &verbose(&transcript, task, [segments, words]))
        }
    })
}

/// The text in events.
///
/// # Errors
/// As [`told::streamed`].
pub async fn streamed(state: &State, order: Order, guard: CancelOnDrop) -> Result<Response> {
    told::streamed(state, move |events| order.tell(events), guard).await
}

fn object(transcript: &Transcript) -> Json {
    let seconds = transcript.seconds.ceil() as u64;
    json!({"text": transcript.text.trim(), "usage": {"type": "duration", "seconds": seconds}})
}

fn verbose(transcript: &Transcript, task: SpeechTask, [segments, words]: [bool; 2]) -> Json {
    let mut object = object(transcript);
    object["task"] = match task {
        SpeechTask::Translate => json!("translate"),
        _ => json!("transcribe"),
    };
    object["language"] = json!(transcript.language);
    object["duration"] = hundredths(transcript.seconds);
    if segments {
        let all = transcript.segments.iter().enumerate();
        object["segments"] = all.map(|(id, segment)| segment_object(id, segment)).collect();
    }
    if words {
        let all = transcript.segments.iter().flat_map(|segment| &segment.words);
        let word = |word: &inference_core::SpokenWord| json!({"word": word.word.trim(), "start": word.start, "end": word.end});
        object["words"] = all.map(word).collect();
    }
    object
}

fn segment_object(id: usize, segment: &SpeechSegment) -> Json {
    let window = &segment.window;
    json!({
        "id": id,
        // In frames of a hundredth of a second.
        "seek": (window.start * 100.0).round() as u64,
        "start": hundredths(segment.start),
        "end": hundredths(segment.end),
        "text": segment.text,
        "tokens": segment.tokens,
        "temperature": window.temperature,
        "avg_logprob": window.mean_logprob,
        "compression_ratio": window.compression_ratio,
        "no_speech_prob": window.no_speech,
    })
}

fn hundredths(seconds: f64) -> Json {
    json!((seconds * 100.0).round() / 100.0)
}
