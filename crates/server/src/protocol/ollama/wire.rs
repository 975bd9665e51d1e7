//! Answers of chats and generations: lines of objects, or one object.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::time;
use crate::error::ApiError;
use crate::protocol::openai::logprobs;
use crate::protocol::tools::arguments as arguments_of;
use crate::protocol::wire::{Form, Frame, Wire};
use crate::run::part::{End, Part, Usage};
use crate::run::said::Said;

/// The field in which an answer's text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In `message`, of `/api/chat`.
    Chat,
    /// In `response`, of `/api/generate`.
    Generate,
}

/// The fields that every object of an answer has.
#[derive(Debug)]
pub struct Head {
    /// The field of the text.
    pub kind: Kind,
    /// The model's name.
    pub model: String,
    /// When the request came.
    pub began: Instant,
    /// How long it waited for its model.
    pub load: Duration,
    /// The prefix of the calls' ids.
    pub call_id: String,
}

impl Head {
    /// The object of a part of the answer.
    fn object(&self, text: &str, thought: &str, calls: Vec<Json>) -> Json {
        let mut object = json!({"model": self.model, "created_at": time::now()});
        let mut said = json!({});
        match self.kind {
            Kind::Chat => said = json!({"role": "assistant", "content": text}),
            Kind::Generate => said["response"] = json!(text),
        }
        if !thought.is_empty() {
            said["thinking"] = json!(thought);
        }
        if !calls.is_empty() {
            said["tool_calls"] = Json::Array(calls);
        }
        match (self.kind, said) {
            (Kind::Generate, Json::Object(said)) => {
                said.into_iter().for_each(|(name, value)| object[name] = value);
            }
            (_, said) => object["message"] = said,
        }
        object["done"] = json!(false);
        object
    }

    /// `object` as the last one.
    fn ended(&self, mut object: Json, end: Option<&End>, usage: Usage) -> Json {
        let reason = if end == Some(&End::Length) { "length" } else { "stop" };
        object["done"] = json!(true);
        object["done_reason"] = json!(reason);
        object["total_duration"] = nanoseconds(self.began.elapsed());
        object["load_duration"] = nanoseconds(self.load);
        object["prompt_eval_count"] = json!(usage.prompt);
        object["prompt_eval_duration"] = nanoseconds(usage.prefill_time);
        object["eval_count"] = json!(usage.completion);
        object["eval_duration"] = nanoseconds(usage.decode_time);
        object
    }

    /// The whole answer to a request that says nothing, but wants the model loaded or unloaded.
    pub fn of_nothing(&self, reason: &str) -> Json {
        let mut object = self.object("", "", Vec::new());
        object["done"] = json!(true);
        object["done_reason"] = json!(reason);
        object
    }

    fn call(&self, index: usize, name: &str, arguments: &str) -> Json {
        let arguments = arguments_of(arguments.to_owned());
        let function = json!({"index": index, "name": name, "arguments": arguments});
        json!({"id": format!("{}{index}", self.call_id), "function": function})
    }
}

/// A duration in nanoseconds.
pub fn nanoseconds(time: Duration) -> Json {
    json!(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Writes an answer.
pub struct LineWire {
    head: Head,
    /// A call whose arguments still come: its place, its name, and what there is of them.
    open: Option<(usize, String, String)>,
    /// Log probabilities that no line has told yet.
    scores: Vec<Json>,
    end: Option<End>,
}

impl LineWire {
    /// A wire for an answer that begins with `head`.
    pub fn new(head: Head) -> LineWire {
        LineWire { head, open: None, scores: Vec::new(), end: None }
    }

    fn line(&mut self, text: &str, thought: &str, calls: Vec<Json>) -> Frame {
        let object = self.head.object(text, thought, calls);
        Frame::Data(self.scored(object).to_string())
    }

    fn scored(&mut self, mut object: Json) -> Json {
        if !self.scores.is_empty() {
            object["logprobs"] = Json::Array(std::mem::take(&mut self.scores));
        }
        object
    }
}

impl Wire for LineWire {
    fn form(&self) -> Form {
        Form::Lines
    }

    fn begin(&mut self) -> Vec<Frame> {
        Vec::new()
    }

    fn say(&mut self, _: usize, parts: Vec<Part>) -> Vec<Frame> {
        let mut frames = Vec::new();
        for part in parts {
            // Calls are told as a whole.
            if !matches!(part, Part::Arguments { .. } | Part::Token(_))
                && let Some((index, name, arguments)) = self.open.take()
            {
                let call = self.head.call(index, &name, &arguments);
                frames.push(self.line("", "", vec![call]));
            }
            match part {
                Part::Prompt(_) => {}
                Part::Token(token) => self.scores.push(logprobs::of_chat(&token)),
                Part::Reasoning(text) => frames.push(self.line("", &text, Vec::new())),
                Part::Text(text) => frames.push(self.line(&text, "", Vec::new())),
                Part::Call { index, name } => self.open = Some((index, name, String::new())),
                Part::Arguments { text, .. } => {
                    if let Some((_, _, arguments)) = &mut self.open {
                        arguments.push_str(&text);
                    }
                }
                Part::End(end) => self.end = Some(end),
            }
        }
        frames
    }

    fn end(&mut self, usage: Usage) -> Vec<Frame> {
        let object = self.head.object("", "", Vec::new());
        let object = self.scored(object);
        vec![Frame::Data(self.head.ended(object, self.end.as_ref(), usage).to_string())]
    }

    fn fail(&self, error: &ApiError) -> Frame {
        super::error::line(error)
    }

    fn idle(&self) -> Frame {
        // Clients read every line as an object.
        Frame::Data(self.head.object("", "", Vec::new()).to_string())
    }

    fn whole(&mut self, answers: Vec<Said>, usage: Usage) -> Json {
        let said = answers.into_iter().next().unwrap_or_default();
        let calls = said.calls.iter().enumerate();
        let calls = calls.map(|(index, call)| self.head.call(index, &call.name, &call.arguments));
        let object = self.head.object(&said.text, &said.reasoning, calls.collect());
        self.scores = said.tokens.iter().map(logprobs::of_chat).collect();
        let object = self.scored(object);
        self.head.ended(object, said.end.as_ref(), usage)
    }
}
