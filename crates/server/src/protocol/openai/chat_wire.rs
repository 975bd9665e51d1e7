//! A chat's answers: reasoning, content, tool calls and log probabilities.

use inference_core::PrefillProgress;
use serde_json::{Value as Json, json};

use super::head::{Head, IDLE, failure, finish_reason};
use super::logprobs;
use crate::error::ApiError;
use crate::protocol::wire::{Frame, Wire};
use crate::run::part::{End, Part, Usage};
use crate::run::said::{Call, Said};

/// Writes a chat's answers.
pub struct ChatWire {
    head: Head,
    answers: Vec<Answer>,
    logprobs: Logprobs,
}

/// The log probabilities of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logprobs {
    /// Of each token.
    Told,
    /// `null`.
    Untold,
}

/// The state of one answer.
struct Answer {
    /// The prefix of its calls' ids.
    call_id: String,
    /// Log probabilities that no chunk has carried yet.
    unsent: Vec<Json>,
}

/// The `object` of a stream's events.
const CHUNK: &str = "chat.completion.chunk";

impl ChatWire {
    /// A wire for as many answers as there are `call_ids`, with which the ids of their calls begin.
    pub fn new(head: Head, call_ids: Vec<String>, logprobs: Logprobs) -> Self {
        let answer = |call_id| Answer { call_id, unsent: Vec::new() };
        ChatWire { head, answers: call_ids.into_iter().map(answer).collect(), logprobs }
    }

    /// The chunk with `delta`; it carries the log probabilities that wait.
    fn chunk(&mut self, index: usize, delta: Json, end: Option<&End>) -> Frame {
        let unsent = std::mem::take(&mut self.answers[index].unsent);
        let logprobs = match unsent.is_empty() {
            true => Json::Null,
            false => json!({"content": unsent, "refusal": null}),
        };
        let choice =
            json!({"delta": delta, "logprobs": logprobs, "finish_reason": finish_reason(end)});
        self.head.chunk(CHUNK, index, choice)
    }

    fn choice(&self, index: usize, said: &Said) -> Json {
        let mut message = json!({"role": "assistant", "content": said.text, "refusal": null});
        if !said.reasoning.is_empty() {
            message["reasoning_content"] = json!(said.reasoning);
        }
        if !said.calls.is_empty() {
            let prefix = &self.answers[index].call_id;
            let call = |(position, call): (usize, &Call)| {
                tool_call(prefix, position, &call.name, &call.arguments)
            };
            message["tool_calls"] = said.calls.iter().enumerate().map(call).collect();
            if said.text.is_empty() {
                message["content"] = Json::Null;
            }
        }
        let logprobs = match self.logprobs {
            Logprobs::Told => {
                let content: Vec<_> = said.tokens.iter().map(logprobs::of_chat).collect();
                json!({"content": content, "refusal": null})
            }
            Logprobs::Untold => Json::Null,
        };
        json!({
            "index": index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": finish_reason(said.end.as_ref()),
        })
    }
}

fn tool_call(prefix: &str, index: usize, name: &str, arguments: &str) -> Json {
    let function = json!({"name": name, "arguments": arguments});
    json!({"id": format!("{prefix}{index}"), "type": "function", "function": function})
}

impl Wire for ChatWire {
    fn begin(&mut self) -> Vec<Frame> {
        let count = self.answers.len();
        let first = |index| self.chunk(index, json!({"role": "assistant", "content": ""}), None);
        (0..count).map(first).collect()
    }

    fn used(&mut self, progress: Usage) {
        self.head.used(progress);
    }

    fn read(&mut self, index: usize, progress: PrefillProgress) -> Vec<Frame> {
        let choice = json!({"delta": {}, "logprobs": null, "finish_reason": null});
        vec![self.head.progress(CHUNK, index, choice, progress)]
    }

    fn say(&mut self, index: usize, parts: Vec<Part>) -> Vec<Frame> {
        let mut frames = Vec::new();
        for part in parts {
            let delta = match part {
                // Chats have no way to ask for it.
                Part::Prompt(_) => continue,
                Part::Token(token) => {
                    self.answers[index].unsent.push(logprobs::of_chat(&token));
                    continue;
                }
                Part::Reasoning(text) => json!({"reasoning_content": text}),
                Part::Text(text) => json!({"content": text}),
                Part::Call { index: position, name } => {
                    let mut call = tool_call(&self.answers[index].call_id, position, &name, "");
                    call["index"] = json!(position);
                    json!({"tool_calls": [call]})
                }
                Part::Arguments { index, text } => {
                    let function = json!({"arguments": text});
                    json!({"tool_calls": [{"index": index, "function": function}]})
                }
                Part::End(end) => {
                    frames.push(self.chunk(index, json!({}), Some(&end)));
                    continue;
                }
            };
            frames.push(self.chunk(index, delta, None));
        }
        frames
    }

    fn end(&mut self, usage: Usage) -> Vec<Frame> {
        self.head.end(CHUNK, usage)
    }

    fn fail(&self, error: &ApiError) -> Frame {
        failure(error)
    }

    fn idle(&self) -> Frame {
        IDLE
    }

    fn whole(&mut self, answers: Vec<Said>, usage: Usage) -> Json {
        let choices = answers.iter().enumerate().map(|(index, said)| self.choice(index, said));
        self.head.whole("chat.completion", choices.collect(), usage)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::{ChatWire, Logprobs};
    use crate::protocol::openai::head::Head;
    use crate::protocol::openai::options::UsageEvent;
    use crate::protocol::wire::{Frame, Wire};
    use crate::run::part::{End, Part, Usage};
    use crate::run::said::Said;

    fn wire() -> ChatWire {
        let head = Head::new("chatcmpl-1".into(), "fake", UsageEvent::Untold);
        ChatWire::new(head, vec!["call_".to_owned()], Logprobs::Untold)
    }

    fn parts() -> Vec<Part> {
        vec![
            Part::Reasoning("hm".into()),
            Part::Call { index: 0, name: "f".into() },
            Part::Arguments { index: 0, text: "{}".into() },
            Part::Call { index: 1, name: "g".into() },
            Part::End(End::Calls),
        ]
    }

    fn choices(frames: Vec<Frame>) -> Vec<Json> {
        let choice = |frame| match frame {
            Frame::Data(data) => serde_json::from_str::<Json>(&data).unwrap()["choices"][0].take(),
            other => panic!("not a chunk: {other:?}"),
        };
        frames.into_iter().map(choice).collect()
    }

    #[test]
    fn calls_are_numbered_in_a_stream() {
        let said = choices(wire().say(0, parts()));
        assert_eq!(said[0]["delta"], json!({"reasoning_content": "hm"}));
        assert_eq!(said[1]["delta"]["tool_calls"][0]["id"], "call_0");
        let arguments = json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]});
        assert_eq!(said[2]["delta"], arguments);
        assert_eq!(said[3]["delta"]["tool_calls"][0]["id"], "call_1");
        assert_eq!(
            (&said[4]["delta"], &said[4]["finish_reason"]),
            (&json!({}), &json!("tool_calls"))
        );
    }

    #[test]
    fn a_message_of_calls_alone_has_no_content() {
        let mut said = Said::default();
        parts().into_iter().for_each(|part| said.add(part));
        let whole = wire().whole(vec![said], Usage::default());
        let message = &whole["choices"][0]["message"];
        assert_eq!(message["content"], json!(null));
        assert_eq!(message["reasoning_content"], "hm");
        assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{}");
        assert_eq!(message["tool_calls"][1]["function"]["name"], "g");
        assert_eq!(message["tool_calls"][1]["id"], "call_1");
    }

    #[test]
    fn text_is_content_and_usage_is_added_up() {
        let mut said = Said::default();
        said.add(Part::Text("fox".into()));
        said.add(Part::End(End::Length));
        let whole = wire()
            .whole(vec![said], Usage { prompt: 2, cached: 1, completion: 3, ..Usage::default() });
        let choice = &whole["choices"][0];
        assert_eq!(
            (&choice["message"]["content"], &choice["finish_reason"]),
            (&json!("fox"), &json!("length"))
        );
        assert_eq!(whole["usage"]["total_tokens"], 5);
        assert_eq!(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
    }
}
