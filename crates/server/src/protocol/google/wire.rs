//! An answer: parts of a candidate, whole or in the pieces of a stream.

use serde_json::{Value as Json, json};

use super::error::event;
use crate::error::ApiError;
use crate::fields::json::number;
use crate::protocol::openai::head::IDLE;
use crate::protocol::tools::arguments;
use crate::protocol::wire::{Form, Frame, Wire};
use crate::run::part::{End, Part, Scored, Usage};
use crate::run::said::Said;
use crate::run::state::State;

/// The head of an answer.
#[derive(Debug)]
pub struct Head {
    id: String,
    model: String,
    call_id: String,
}

impl Head {
    /// The head of a new answer of `model`.
    pub fn new(state: &State, model: &str) -> Head {
        Head { id: state.id("gen_"), model: model.to_owned(), call_id: state.id("call_") }
    }
}

/// Writes an answer.
pub struct ContentWire {
    head: Head,
    form: Form,
    /// Tokens of the prompt.
    prompt: usize,
    tells_thoughts: bool,
    /// A call whose arguments still come: its place, its name, and what there is of them.
    open: Option<(usize, String, String)>,
    /// A call that is none, in words.
    malformed: Option<String>,
    /// The piece that is sent with the next one: the last one has to say why the answer ended.
    held: Option<Piece>,
    /// Tokens that no piece has told yet.
    scores: Vec<Scored>,
    /// The sum of the log probabilities so far, and how many they are.
    sum: (f64, usize),
    used: Usage,
    end: Option<End>,
}

/// A piece of a candidate.
#[derive(Debug, Default)]
struct Piece {
    parts: Vec<Json>,
    scores: Vec<Scored>,
}

impl ContentWire {
    /// A wire for the answer to a prompt of so many tokens.
    pub fn new(head: Head, form: Form, prompt: usize, tells_thoughts: bool) -> Self {
        ContentWire {
            head,
            form,
            prompt,
            tells_thoughts,
            open: None,
            malformed: None,
            held: None,
            scores: Vec::new(),
            sum: (0.0, 0),
            used: Usage::default(),
            end: None,
        }
    }

    /// The parts of a content that `parts` make.
    fn content(&mut self, parts: Vec<Part>) -> Vec<Json> {
        let mut content = Vec::new();
        for part in parts {
            // Calls are told as a whole.
            if !matches!(part, Part::Arguments { .. } | Part::Token(_)) {
                let cut = part == Part::End(End::Length);
                content.extend(self.call(cut));
            }
            match part {
                Part::Prompt(_) => {}
                Part::Token(token) => {
                    self.sum.0 += f64::from(token.token.logprob.unwrap_or(0.0));
                    self.sum.1 += 1;
                    self.scores.push(token);
                }
                Part::Reasoning(text) if self.tells_thoughts => {
                    content.push(json!({"text": text, "thought": true}));
                }
                Part::Reasoning(_) => {}
                Part::Text(text) => content.push(json!({"text": text})),
                Part::Call { index, name } => self.open = Some((index, name, String::new())),
                Part::Arguments { text, .. } => {
                    if let Some((_, _, arguments)) = &mut self.open {
                        arguments.push_str(&text);
                    }
                }
                Part::End(end) => self.end = Some(end),
            }
        }
        content
    }

    /// The part of the call that is open. One that is `cut` off before its end is left out.
    fn call(&mut self, cut: bool) -> Option<Json> {
        let (index, name, text) = self.open.take()?;
        match arguments(text) {
            arguments @ Json::Object(_) => {
                let id = format!("{}{index}", self.head.call_id);
                Some(json!({"functionCall": {"id": id, "name": name, "args": arguments}}))
            }
            arguments => {
                if !cut {
                    let message = format!("the arguments of `{name}` are no object: {arguments}");
                    self.malformed = Some(message);
                }
                None
            }
        }
    }

    fn answer(&self, piece: Piece, usage: Usage, is_last: bool) -> Json {
        let mut parts = piece.parts;
        if parts.is_empty() {
            parts.push(json!({"text": ""}));
        }
        let content = json!({"parts": parts, "role": "model"});
        let mut candidate = json!({"content": content, "index": 0});
        if is_last {
            let (reason, message) = self.finish();
            candidate["finishReason"] = json!(reason);
            if let Some(message) = message {
                candidate["finishMessage"] = json!(message);
            }
            if self.sum.1 > 0 {
                candidate["avgLogprobs"] = json!(self.sum.0 / self.sum.1 as f64);
            }
        }
        if !piece.scores.is_empty() {
            candidate["logprobsResult"] = of_scores(&piece.scores);
        }
        json!({
            "candidates": [candidate],
            "usageMetadata": self.of_usage(usage),
            "modelVersion": self.head.model,
            "responseId": self.head.id,
        })
    }

    /// Google's `finishReason` and `finishMessage`.
    fn finish(&self) -> (&'static str, Option<&str>) {
        match (&self.malformed, &self.end) {
            (_, Some(End::Length)) => ("MAX_TOKENS", None),
            (Some(message), _) => ("MALFORMED_FUNCTION_CALL", Some(message)),
            (None, _) => ("STOP", None),
        }
    }

    /// Google's `usageMetadata`, where thoughts are counted by themselves.
    fn of_usage(&self, usage: Usage) -> Json {
        let prompt = usage.prompt.max(self.prompt);
        let mut told = json!({
            "promptTokenCount": prompt,
            "candidatesTokenCount": usage.completion.saturating_sub(usage.reasoning),
            "totalTokenCount": prompt + usage.completion,
        });
        for (name, count) in
            [("thoughtsTokenCount", usage.reasoning), ("cachedContentTokenCount", usage.cached)]
        {
            if count > 0 {
                told[name] = json!(count);
            }
        }
        told
    }

    fn frame(&self, piece: Piece) -> Frame {
        Frame::Data(self.answer(piece, self.used, false).to_string())
    }
}

/// Google's `logprobsResult`.
fn of_scores(scores: &[Scored]) -> Json {
    let entry = |id: u32, text: &str, logprob: f32| json!({"token": text, "tokenId": id, "logProbability": number(logprob)});
    let chosen = |scored: &Scored| {
        let token = &scored.token;
        entry(token.id, &scored.own.text, token.logprob.unwrap_or(f32::NEG_INFINITY))
    };
    let top = |scored: &Scored| {
        let top = scored.token.top_logprobs.iter().zip(&scored.top);
        let top: Vec<Json> = top.map(|(top, own)| entry(top.id, &own.text, top.logprob)).collect();
        json!({"candidates": top})
    };
    let mut told = json!({"chosenCandidates": scores.iter().map(chosen).collect::<Vec<_>>()});
    if scores.iter().any(|scored| !scored.top.is_empty()) {
        told["topCandidates"] = scores.iter().map(top).collect();
    }
    told
}

impl Wire for ContentWire {
    fn form(&self) -> Form {
        self.form
    }

    fn begin(&mut self) -> Vec<Frame> {
        Vec::new()
    }

    fn used(&mut self, progress: Usage) {
        self.used = progress;
    }

    fn say(&mut self, _: usize, parts: Vec<Part>) -> Vec<Frame> {
        // Text before a call does not wait for the call's end.
        let calls = parts.iter().any(|part| matches!(part, Part::Call { .. }));
        let parts = self.content(parts);
        let mut frames = Vec::new();
        if !parts.is_empty() {
            frames.extend(self.held.take().map(|held| self.frame(held)));
            self.held = Some(Piece { parts, scores: std::mem::take(&mut self.scores) });
        }
        if calls {
            frames.extend(self.held.take().map(|held| self.frame(held)));
        }
        frames
    }

    fn end(&mut self, usage: Usage) -> Vec<Frame> {
        let mut last = self.held.take().unwrap_or_default();
        last.scores.append(&mut self.scores);
        vec![Frame::Data(self.answer(last, usage, true).to_string())]
    }

    fn fail(&self, error: &ApiError) -> Frame {
        event(error)
    }

    fn idle(&self) -> Frame {
        IDLE
    }

    fn whole(&mut self, answers: Vec<Said>, usage: Usage) -> Json {
        let said = answers.into_iter().next().unwrap_or_default();
        let parts = self.content(said.into_parts());
        let scores = std::mem::take(&mut self.scores);
        self.answer(Piece { parts, scores }, usage, true)
    }
}
