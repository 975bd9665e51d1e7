//! Answers as llama.cpp's server writes them.

use inference_core::{GenerateOptions, PrefillProgress};
use serde_json::{Value as Json, json};

use crate::error::ApiError;
use crate::fields::json::number;
use crate::protocol::openai::head::{IDLE, failure, of_progress};
use crate::protocol::timings::{Times, timings};
use crate::protocol::wire::{Frame, Wire};
use crate::run::part::{End, Part, Usage};
use crate::run::said::Said;

/// Writes the answer to `/completion`.
#[derive(Debug)]
pub struct LlamaWire {
    model: String,
    prompt: String,
    settings: Json,
    end: Option<End>,
    has_new_line: bool,
    times: Times,
    /// Used so far.
    progress: Usage,
}

impl LlamaWire {
    /// The writer of an answer of `model` to `prompt`, which was asked for with `options`.
    pub fn new(
        model: String,
        prompt: String,
        context: usize,
        options: &GenerateOptions,
    ) -> LlamaWire {
        let settings = json!({
            "n_ctx": context,
            "n_predict": options.max_tokens.map_or(json!(-1), |most| json!(most)),
            "temperature": options.temperature.map(number),
            "top_k": options.top_k,
            "top_p": options.top_p.map(number),
            "min_p": options.min_p.map(number),
            "typical_p": options.typical_p.map(number),
            "top_n_sigma": options.top_n_sigma.map(number),
            "dry_multiplier": options.dry.as_ref().map(|dry| number(dry.multiplier)),
            "repeat_penalty": options.repetition_penalty.map(number),
            "presence_penalty": options.presence_penalty.map(number),
            "frequency_penalty": options.frequency_penalty.map(number),
            "seed": options.seed,
            "stop": options.stop,
            "ignore_eos": options.ignore_eos,
        });
        let (end, has_new_line, progress) = (None, false, Usage::default());
        LlamaWire { model, prompt, settings, end, has_new_line, times: Times::Untold, progress }
    }

    /// This writer, with times in each piece where these are told.
    pub fn telling(self, times: Times) -> LlamaWire {
        LlamaWire { times, ..self }
    }

    fn last(&self, content: &str, usage: Usage) -> Json {
        let (stop_type, word) = match &self.end {
            Some(End::StopText(text)) => ("word", text.as_str()),
            Some(End::Length) => ("limit", ""),
            Some(End::Stop | End::Calls) => ("eos", ""),
            None => ("none", ""),
        };
        json!({
            "index": 0,
            "content": content,
            "tokens": [],
            "id_slot": -1,
            "stop": true,
            "model": self.model,
            "tokens_predicted": usage.completion,
            "tokens_evaluated": usage.prompt,
            "generation_settings": self.settings,
            "prompt": self.prompt,
            "has_new_line": self.has_new_line,
            "truncated": false,
            "stop_type": stop_type,
            "stopping_word": word,
            "tokens_cached": usage.prompt + usage.completion,
            "timings": timings(usage),
        })
    }
}

impl Wire for LlamaWire {
    fn begin(&mut self) -> Vec<Frame> {
        Vec::new()
    }

    fn used(&mut self, progress: Usage) {
        self.progress = progress;
    }

    fn read(&mut self, index: usize, progress: PrefillProgress) -> Vec<Frame> {
        let progress = of_progress(progress);
        let piece = json!({"index": index, "content": "", "tokens": [], "stop": false,
            "id_slot": -1, "prompt_progress": progress});
        vec![Frame::Data(piece.to_string())]
    }

    fn say(&mut self, index: usize, parts: Vec<Part>) -> Vec<Frame> {
        let mut text = String::new();
        for part in parts {
            match part {
                Part::Text(more) => text.push_str(&more),
                Part::End(end) => self.end = Some(end),
                // A prompt is continued as text alone.
                Part::Prompt(_)
                | Part::Token(_)
                | Part::Reasoning(_)
                | Part::Call { .. }
                | Part::Arguments { .. } => {}
            }
        }
        self.has_new_line |= text.contains('\n');
        if text.is_empty() {
            return Vec::new();
        }
        let mut chunk = json!({"index": index, "content": text, "tokens": [], "stop": false});
        if self.times == Times::Told {
            chunk["timings"] = timings(self.progress);
        }
        vec![Frame::Data(chunk.to_string())]
    }

    fn end(&mut self, usage: Usage) -> Vec<Frame> {
        vec![Frame::Data(self.last("", usage).to_string())]
    }

    fn fail(&self, error: &ApiError) -> Frame {
        failure(error)
    }

    fn idle(&self) -> Frame {
        IDLE
    }

    fn whole(&mut self, answers: Vec<Said>, usage: Usage) -> Json {
        let answer = answers.into_iter().next().unwrap_or_default();
        self.has_new_line = answer.text.contains('\n');
        self.end = answer.end.clone();
        self.last(&answer.text, usage)
    }
}
