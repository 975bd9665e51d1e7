//! A message: blocks of thoughts, text and calls, and the events that they come in.

use serde_json::{Value as Json, json};

use super::output::Thoughts;
use crate::error::ApiError;
use crate::protocol::tools::arguments;
use crate::protocol::wire::{Frame, Wire};
use crate::run::part::{End, Part, Usage};
use crate::run::said::Said;
use crate::run::state::State;

/// The placeholder of a signature: nobody signs thoughts here, and clients want one to keep them.
const SIGNATURE: &str = "unsigned";

/// The head of a message.
#[derive(Debug)]
pub struct Head {
    id: String,
    model: String,
    call_id: String,
}

impl Head {
    /// The head of a new message of `model`.
    pub fn new(state: &State, model: &str) -> Head {
        Head { id: state.id("msg_"), model: model.to_owned(), call_id: state.id("toolu_") }
    }
}

/// Writes a message.
pub struct MessageWire {
    head: Head,
    /// Tokens of the prompt.
    prompt: usize,
    thoughts: Thoughts,
    /// The block that is open.
    open: Option<Block>,
    /// How many blocks were opened.
    blocks: usize,
    end: Option<End>,
}

/// The type of a content block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
    ToolUse,
}

impl MessageWire {
    /// A wire for the answer to a prompt of so many tokens.
    pub fn new(head: Head, prompt: usize, thoughts: Thoughts) -> Self {
        MessageWire { head, prompt, thoughts, open: None, blocks: 0, end: None }
    }

    fn message(&self, content: Vec<Json>, end: Option<&End>, usage: Usage) -> Json {
        let mut message = json!({
            "id": self.head.id,
            "type": "message",
            "role": "assistant",
            "model": self.head.model,
            "content": content,
        });
        let (reason, sequence) = stop(end);
        message["stop_reason"] = reason;
        message["stop_sequence"] = sequence;
        message["usage"] = of_usage(usage);
        message
    }

    /// Opens a block, unless one of its kind is open that goes on.
    fn open(&mut self, frames: &mut Vec<Frame>, kind: Block, content: Json) {
        if self.open == Some(kind) && kind != Block::ToolUse {
            return;
        }
        self.close(frames);
        self.open = Some(kind);
        self.blocks += 1;
        frames.push(self.of_block("content_block_start", "content_block", content));
    }

    fn close(&mut self, frames: &mut Vec<Frame>) {
        let Some(kind) = self.open.take() else { return };
        if kind == Block::Thinking {
            let signature = json!({"type": "signature_delta", "signature": SIGNATURE});
            frames.push(self.delta(signature));
        }
        let stop = json!({"type": "content_block_stop", "index": self.blocks - 1});
        frames.push(Frame::Event("content_block_stop", stop));
    }

    fn delta(&self, delta: Json) -> Frame {
        self.of_block("content_block_delta", "delta", delta)
    }

    /// The event `name` of the newest block.
    fn of_block(&self, name: &'static str, field: &str, content: Json) -> Frame {
        let mut event = json!({"type": name, "index": self.blocks - 1});
        event[field] = content;
        Frame::Event(name, event)
    }

    fn thought<'a>(&self, text: &'a str) -> &'a str {
        if self.thoughts == Thoughts::Omitted { "" } else { text }
    }
}

/// Anthropic's `usage`, where what a cache held is counted by itself.
fn of_usage(usage: Usage) -> Json {
    json!({
        "input_tokens": usage.prompt.saturating_sub(usage.cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    })
}

/// Anthropic's `stop_reason` and `stop_sequence`.
fn stop(end: Option<&End>) -> (Json, Json) {
    match end {
        None => (Json::Null, Json::Null),
        Some(End::Stop) => (json!("end_turn"), Json::Null),
        Some(End::StopText(text)) => (json!("stop_sequence"), json!(text)),
        Some(End::Calls) => (json!("tool_use"), Json::Null),
        Some(End::Length) => (json!("max_tokens"), Json::Null),
    }
}

fn tool_use(prefix: &str, index: usize, name: &str, input: Json) -> Json {
    json!({"type": "tool_use", "id": format!("{prefix}{index}"), "name": name, "input": input})
}

impl Wire for MessageWire {
    fn begin(&mut self) -> Vec<Frame> {
        let usage = Usage { prompt: self.prompt, ..Usage::default() };
        let message = self.message(Vec::new(), None, usage);
        let start = json!({"type": "message_start", "message": message});
        vec![Frame::Event("message_start", start), self.idle()]
    }

    fn say(&mut self, _: usize, parts: Vec<Part>) -> Vec<Frame> {
        let mut frames = Vec::new();
        for part in parts {
            match part {
                // Messages have no way to ask for log probabilities.
                Part::Prompt(_) | Part::Token(_) => {}
                Part::Reasoning(text) => {
                    let empty = json!({"type": "thinking", "thinking": "", "signature": ""});
                    self.open(&mut frames, Block::Thinking, empty);
                    let thought = self.thought(&text);
                    if !thought.is_empty() {
                        let delta = json!({"type": "thinking_delta", "thinking": thought});
                        frames.push(self.delta(delta));
                    }
                }
                Part::Text(text) => {
                    self.open(&mut frames, Block::Text, json!({"type": "text", "text": ""}));
                    frames.push(self.delta(json!({"type": "text_delta", "text": text})));
                }
                Part::Call { index, name } => {
                    let call = tool_use(&self.head.call_id, index, &name, json!({}));
                    self.open(&mut frames, Block::ToolUse, call);
                }
                Part::Arguments { text, .. } => {
                    let delta = json!({"type": "input_json_delta", "partial_json": text});
                    frames.push(self.delta(delta));
                }
                Part::End(end) => {
                    self.close(&mut frames);
                    self.end = Some(end);
                }
            }
        }
        frames
    }

    fn end(&mut self, usage: Usage) -> Vec<Frame> {
        let (reason, sequence) = stop(self.end.as_ref());
        let delta = json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": of_usage(usage),
        });
        let stop = json!({"type": "message_stop"});
        vec![Frame::Event("message_delta", delta), Frame::Event("message_stop", stop)]
    }

    fn fail(&self, error: &ApiError) -> Frame {
        super::error::event(error)
    }

    fn idle(&self) -> Frame {
        Frame::Event("ping", json!({"type": "ping"}))
    }

    fn whole(&mut self, answers: Vec<Said>, usage: Usage) -> Json {
        let said = answers.into_iter().next().unwrap_or_default();
        let mut content = Vec::new();
        if !said.reasoning.is_empty() {
            let thought = self.thought(&said.reasoning);
            content.push(json!({"type": "thinking", "thinking": thought, "signature": SIGNATURE}));
        }
        if !said.text.is_empty() {
            content.push(json!({"type": "text", "text": said.text}));
        }
        for (index, call) in said.calls.iter().enumerate() {
            let input = arguments(call.arguments.clone());
            content.push(tool_use(&self.head.call_id, index, &call.name, input));
        }
        self.message(content, said.end.as_ref(), usage)
    }
}
