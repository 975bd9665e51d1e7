//! A response as it grows: its items, and the events that they come in.

use std::sync::Arc;

use inference_core::PrefillProgress;
use serde_json::{Value as Json, json};

use super::echo::{Echo, Stage};
use super::input::OPEN_THOUGHTS;
use super::output::{Include, Thoughts};
use super::store::{Item, Store, Stored};
use super::tools::{Called, INPUT, Known, Takes};
use crate::error::ApiError;
use crate::protocol::openai::head::{IDLE, of_progress};
use crate::protocol::openai::logprobs;
use crate::protocol::timings::{Times, timings};
use crate::protocol::wire::{Frame, Wire};
use crate::run::part::{End, Part, Usage};
use crate::run::said::Said;

/// How a response is written.
#[derive(Debug)]
pub struct Form {
    /// The fields that repeat its request.
    pub echo: Echo,
    /// The client's names of the tools.
    pub known: Known,
    /// How thoughts are told.
    pub thoughts: Thoughts,
    /// The additions that `include` asks for.
    pub include: Include,
    /// Tells the ids of its items from those of other responses.
    pub salt: String,
    /// The times of the request, as llama.cpp's clients ask for them.
    pub times: Times,
    /// The store that keeps it, with the items that it answers; `None` where none does.
    pub keep: Option<(Arc<Store>, Vec<Arc<Item>>)>,
}

/// Writes a response.
pub struct ResponseWire {
    form: Form,
    /// How many events there were.
    events: u64,
    /// The items that are complete.
    output: Vec<Json>,
    open: Option<Open>,
    /// Log probabilities of tokens whose text has not come.
    unsent: Vec<Json>,
    calls: usize,
    end: Option<End>,
    /// Used so far.
    progress: Usage,
}

/// The item that grows.
struct Open {
    kind: Kind,
    id: String,
    /// Its text, its thoughts, or its arguments.
    text: String,
    logprobs: Vec<Json>,
}

/// The type of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
    /// With the call's id.
    Call(Called, String),
}

impl ResponseWire {
    /// A wire that writes in `form`.
    pub fn new(form: Form) -> Self {
        let (output, unsent) = (Vec::new(), Vec::new());
        let (open, end, progress) = (None, None, Usage::default());
        ResponseWire { form, events: 0, output, open, unsent, calls: 0, end, progress }
    }

    /// The event `name` with `fields`, and with its number.
    fn event(&mut self, name: &'static str, fields: Json) -> Frame {
        let mut event = json!({"type": name});
        if let Json::Object(fields) = fields {
            fields.into_iter().for_each(|(field, value)| event[field] = value);
        }
        if self.form.times == Times::Told && name.ends_with(".delta") {
            event["timings"] = timings(self.progress);
        }
        event["sequence_number"] = json!(self.events);
        self.events += 1;
        Frame::Event(name, event)
    }

    /// The event `name` of `open`, with `fields`.
    fn of_item(&mut self, name: &'static str, open: &Open, fields: Json) -> Frame {
        let mut event = json!({"item_id": open.id, "output_index": self.output.len()});
        if open.kind == Kind::Message || self.is_content(open) {
            event["content_index"] = json!(0);
        } else if open.kind == Kind::Reasoning {
            event["summary_index"] = json!(0);
        }
        if let Json::Object(fields) = fields {
            fields.into_iter().for_each(|(field, value)| event[field] = value);
        }
        self.event(name, event)
    }

    /// Returns true when `open` is thoughts that are written as they are.
    fn is_content(&self, open: &Open) -> bool {
        open.kind == Kind::Reasoning && self.form.thoughts == Thoughts::Whole
    }

    /// The part of `open` that holds `text`.
    fn part(&self, open: &Open, text: &str) -> Json {
        match open.kind {
            Kind::Message => {
                json!({"type": "output_text", "text": text, "annotations": [], "logprobs": open.logprobs})
            }
            _ if self.is_content(open) => json!({"type": "reasoning_text", "text": text}),
            _ => json!({"type": "summary_text", "text": text}),
        }
    }

    /// `open` as an item that holds `text`.
    fn item(&self, open: &Open, text: &str, status: &str) -> Json {
        let begun = status != "in_progress";
        match &open.kind {
            Kind::Message => {
                let content: Vec<_> = begun.then(|| self.part(open, text)).into_iter().collect();
                json!({
                    "id": open.id, "type": "message", "status": status, "role": "assistant",
                    "content": content,
                })
            }
            Kind::Reasoning => {
                let parts: Vec<_> = begun.then(|| self.part(open, text)).into_iter().collect();
                let mut item = json!({
                    "id": open.id, "type": "reasoning", "status": status, "summary": [],
                });
                let list = if self.is_content(open) { "content" } else { "summary" };
                item[list] = json!(parts);
                if begun && self.form.include.thoughts {
                    item["encrypted_content"] = json!(format!("{OPEN_THOUGHTS}{text}"));
                }
                item
            }
            Kind::Call(called, call_id) => {
                let (kind, field) = match called.takes {
                    Takes::Arguments => ("function_call", "arguments"),
                    Takes::Input => ("custom_tool_call", "input"),
                };
                let mut item = json!({
                    "id": open.id, "type": kind, "status": status, "call_id": call_id,
                    "name": called.name,
                });
                item[field] = json!(text);
                if let Some(namespace) = &called.namespace {
                    item["namespace"] = json!(namespace);
                }
                item
            }
        }
    }

    /// Opens an item of `kind`, unless one is open that goes on.
    fn open(&mut self, frames: &mut Vec<Frame>, kind: Kind) {
        if self.open.as_ref().is_some_and(|open| open.kind == kind) {
            return;
        }
        self.close(frames, "completed");
        let prefix = match &kind {
            Kind::Message => "msg_",
            Kind::Reasoning => "rs_",
            Kind::Call(Called { takes: Takes::Arguments, .. }, _) => "fc_",
            Kind::Call(..) => "ctc_",
        };
        let id = format!("{prefix}{}{}", self.form.salt, self.output.len());
        let open = Open { kind, id, text: String::new(), logprobs: Vec::new() };
        let added = json!({
            "output_index": self.output.len(), "item": self.item(&open, "", "in_progress"),
        });
        frames.push(self.event("response.output_item.added", added));
        if let Some(name) = self.part_event(&open, "added") {
            let part = json!({"part": self.part(&open, "")});
            frames.push(self.of_item(name, &open, part));
        }
        self.open = Some(open);
    }

    /// The event of `open`'s part, where it has parts.
    fn part_event(&self, open: &Open, what: &str) -> Option<&'static str> {
        let of_content = matches!(open.kind, Kind::Message) || self.is_content(open);
        match (&open.kind, of_content, what) {
            (Kind::Call(..), ..) => None,
            (_, true, "added") => Some("response.content_part.added"),
            (_, true, _) => Some("response.content_part.done"),
            (_, false, "added") => Some("response.reasoning_summary_part.added"),
            (_, false, _) => Some("response.reasoning_summary_part.done"),
        }
    }

    /// The events of `open`'s text: of a piece of it, and of the whole.
    fn text_events(&self, open: &Open) -> (&'static str, &'static str) {
        match &open.kind {
            Kind::Message => ("response.output_text.delta", "response.output_text.done"),
            Kind::Reasoning if self.is_content(open) => {
                ("response.reasoning_text.delta", "response.reasoning_text.done")
            }
            Kind::Reasoning => {
                ("response.reasoning_summary_text.delta", "response.reasoning_summary_text.done")
            }
            Kind::Call(Called { takes: Takes::Arguments, .. }, _) => {
                ("response.function_call_arguments.delta", "response.function_call_arguments.done")
            }
            Kind::Call(..) => {
                ("response.custom_tool_call_input.delta", "response.custom_tool_call_input.done")
            }
        }
    }

    /// Adds `text` to the item that is open.
    fn grow(&mut self, frames: &mut Vec<Frame>, text: &str, logprobs: Vec<Json>) {
        let Some(mut open) = self.open.take() else { return };
        open.text.push_str(text);
        // The input of a custom tool is told once its JSON is complete.
        if !matches!(&open.kind, Kind::Call(Called { takes: Takes::Input, .. }, _)) {
            let mut delta = json!({"delta": text});
            if open.kind == Kind::Message {
                delta["logprobs"] = json!(logprobs);
            }
            let (name, _) = self.text_events(&open);
            frames.push(self.of_item(name, &open, delta));
        }
        open.logprobs.extend(logprobs);
        self.open = Some(open);
    }

    /// Closes the item that is open.
    fn close(&mut self, frames: &mut Vec<Frame>, status: &str) {
        let Some(open) = self.open.take() else { return };
        let mut text = open.text.clone();
        let mut done = json!({});
        match &open.kind {
            Kind::Message => done["logprobs"] = json!(open.logprobs),
            Kind::Reasoning => {}
            Kind::Call(Called { takes: Takes::Arguments, name, .. }, _) => {
                done["name"] = json!(name);
            }
            Kind::Call(..) => {
                text = input_of(&text);
                let (name, _) = self.text_events(&open);
                frames.push(self.of_item(name, &open, json!({"delta": text})));
            }
        }
        let field = match &open.kind {
            Kind::Call(Called { takes: Takes::Arguments, .. }, _) => "arguments",
            Kind::Call(..) => "input",
            _ => "text",
        };
        done[field] = json!(text);
        let (_, name) = self.text_events(&open);
        frames.push(self.of_item(name, &open, done));
        if let Some(name) = self.part_event(&open, "done") {
            let part = json!({"part": self.part(&open, &text)});
            frames.push(self.of_item(name, &open, part));
        }
        let item = self.item(&open, &text, status);
        let done = json!({"output_index": self.output.len(), "item": item});
        frames.push(self.event("response.output_item.done", done));
        self.output.push(item);
    }

    fn call(&mut self, name: &str) -> Kind {
        let own = Called { takes: Takes::Arguments, name: name.to_owned(), namespace: None };
        let called = self.form.known.get(name).cloned().unwrap_or(own);
        let id = format!("call_{}{}", self.form.salt, self.calls);
        self.calls += 1;
        Kind::Call(called, id)
    }

    fn add(&mut self, frames: &mut Vec<Frame>, part: Part) {
        match part {
            // Responses have no way to ask for it.
            Part::Prompt(_) => {}
            Part::Token(token) => self.unsent.push(logprobs::of_chat(&token)),
            Part::Reasoning(text) => {
                self.unsent.clear();
                self.open(frames, Kind::Reasoning);
                self.grow(frames, &text, Vec::new());
            }
            Part::Text(text) => {
                let logprobs = std::mem::take(&mut self.unsent);
                self.open(frames, Kind::Message);
                self.grow(frames, &text, logprobs);
            }
            Part::Call { name, .. } => {
                self.unsent.clear();
                let kind = self.call(&name);
                self.open(frames, kind);
            }
            Part::Arguments { text, .. } => self.grow(frames, &text, Vec::new()),
            Part::End(end) => {
                let status = if end == End::Length { "incomplete" } else { "completed" };
                self.close(frames, status);
                self.end = Some(end);
            }
        }
    }

    /// The response that has ended, which is kept where it is to be.
    fn ended(&mut self, usage: Usage) -> Json {
        let stage = Stage::Ended(self.end.clone());
        let response = self.form.echo.object(&stage, &self.output, Some(usage));
        if let Some((store, input)) = self.form.keep.take() {
            let output = self.output.iter().cloned().map(Item::new).collect();
            let id = self.form.echo.id().to_owned();
            store.put(Stored { id, response: Item::new(response.clone()), input, output });
        }
        response
    }
}

/// The input in the arguments of a custom tool's call; where they have none, they are the input.
fn input_of(arguments: &str) -> String {
    let parsed = serde_json::from_str::<Json>(arguments).ok();
    let input = parsed.as_ref().and_then(|arguments| arguments.get(INPUT)?.as_str());
    input.unwrap_or(arguments).to_owned()
}

impl Wire for ResponseWire {
    fn begin(&mut self) -> Vec<Frame> {
        let response = self.form.echo.object(&Stage::InProgress, &[], None);
        let response = json!({"response": response});
        let created = self.event("response.created", response.clone());
        vec![created, self.event("response.in_progress", response)]
    }

    fn used(&mut self, progress: Usage) {
        self.progress = progress;
    }

    fn read(&mut self, _: usize, progress: PrefillProgress) -> Vec<Frame> {
        let response = self.form.echo.object(&Stage::InProgress, &[], None);
        let told = json!({"response": response, "prompt_progress": of_progress(progress)});
        vec![self.event("response.in_progress", told)]
    }

    fn say(&mut self, _: usize, parts: Vec<Part>) -> Vec<Frame> {
        let mut frames = Vec::new();
        parts.into_iter().for_each(|part| self.add(&mut frames, part));
        frames
    }

    fn end(&mut self, usage: Usage) -> Vec<Frame> {
        let name = match self.end {
            Some(End::Length) => "response.incomplete",
            _ => "response.completed",
        };
        let mut response = json!({"response": self.ended(usage)});
        if self.form.times == Times::Told {
            response["timings"] = timings(usage);
        }
        vec![self.event(name, response)]
    }

    fn fail(&self, error: &ApiError) -> Frame {
        let response = self.form.echo.object(&Stage::Failed(error.clone()), &self.output, None);
        let name = "response.failed";
        let event = json!({"type": name, "response": response, "sequence_number": self.events});
        Frame::Event(name, event)
    }

    fn idle(&self) -> Frame {
        IDLE
    }

    fn whole(&mut self, answers: Vec<Said>, usage: Usage) -> Json {
        let said = answers.into_iter().next().unwrap_or_default();
        self.say(0, said.into_parts());
        let mut response = self.ended(usage);
        if self.form.times == Times::Told {
            response["timings"] = timings(usage);
        }
        response
    }
}
