//! The fields that all objects of one of OpenAI's responses have in common.

use inference_core::PrefillProgress;
use serde_json::{Value as Json, json};

use super::options::UsageEvent;
use crate::error::ApiError;
use crate::protocol::timings::{Times, timings};
use crate::protocol::wire::Frame;
use crate::run::part::{End, Usage};
use crate::run::state::now;

/// The comment that keeps a silent stream alive.
pub const IDLE: Frame = Frame::Comment("waiting");

/// The fields that every object of one response begins with.
#[derive(Clone, Debug)]
pub struct Head {
    id: String,
    created: u64,
    model: String,
    usage: UsageEvent,
    times: Times,
    /// Used so far, where each event tells it.
    progress: Usage,
}

impl Head {
    /// The head of the new response `id` of `model`.
    pub fn new(id: String, model: &str, usage: UsageEvent) -> Head {
        let (model, progress) = (model.to_owned(), Usage::default());
        Head { id, created: now(), model, usage, times: Times::Untold, progress }
    }

    /// This head, with times in whole answers and in events where these are told.
    pub fn telling(self, times: Times) -> Head {
        Head { times, ..self }
    }

    /// Takes note of what is used so far.
    pub fn used(&mut self, progress: Usage) {
        self.progress = progress;
    }

    /// The object of whole answers.
    pub fn whole(&self, object: &str, choices: Vec<Json>, usage: Usage) -> Json {
        let mut whole = self.object(object, choices);
        whole["usage"] = of_usage(usage);
        if self.times == Times::Told {
            whole["timings"] = timings(usage);
        }
        whole
    }

    /// The event of a stream with a further part of answer `index`.
    pub fn chunk(&self, object: &str, index: usize, mut choice: Json) -> Frame {
        choice["index"] = json!(index);
        let mut chunk = self.object(object, vec![choice]);
        match self.usage {
            UsageEvent::Told => chunk["usage"] = Json::Null,
            UsageEvent::Each => chunk["usage"] = of_usage(self.progress),
            UsageEvent::Untold => {}
        }
        // The chunk that begins an answer comes before anything is known.
        if self.times == Times::Told && self.progress.prompt > 0 {
            chunk["timings"] = timings(self.progress);
        }
        Frame::Data(chunk.to_string())
    }

    /// The event of a stream that tells how far the prompt of answer `index` is read.
    pub fn progress(
        &self,
        object: &str,
        index: usize,
        mut choice: Json,
        progress: PrefillProgress,
    ) -> Frame {
        choice["index"] = json!(index);
        let mut chunk = self.object(object, vec![choice]);
        chunk["prompt_progress"] = of_progress(progress);
        Frame::Data(chunk.to_string())
    }

    /// The last events of a stream.
    pub fn end(&self, object: &str, usage: Usage) -> Vec<Frame> {
        let mut frames = Vec::new();
        if self.usage != UsageEvent::Untold {
            frames.push(Frame::Data(self.whole(object, Vec::new(), usage).to_string()));
        }
        frames.push(Frame::Data("[DONE]".to_owned()));
        frames
    }

    fn object(&self, object: &str, choices: Vec<Json>) -> Json {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": concat!("ml-", env!("CARGO_PKG_VERSION")),
            "choices": choices,
        })
    }
}

/// OpenAI's `usage`.
pub fn of_usage(usage: Usage) -> Json {
    json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}

/// llama.cpp's `prompt_progress`.
pub fn of_progress(progress: PrefillProgress) -> Json {
    json!({
        "total": progress.total,
        "cache": progress.cached,
        "processed": progress.processed,
        "time_ms": progress.elapsed.as_millis() as u64,
    })
}

/// OpenAI's `finish_reason`; `null` where the answer goes on.
pub fn finish_reason(end: Option<&End>) -> Json {
    end.map_or(Json::Null, |end| {
        json!(match end {
            End::Stop | End::StopText(_) => "stop",
            End::Calls => "tool_calls",
            End::Length => "length",
        })
    })
}

/// The event that ends a stream with `error`.
pub fn failure(error: &ApiError) -> Frame {
    Frame::Data(super::error::body(error).to_string())
}
