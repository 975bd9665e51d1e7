//! A chat's answer: reasoning, content, tool calls and log probabilities.

use std::sync::Arc;

use inference_core::{TextModel, Token};
use serde_json::{Value as Json, json};

use super::logprobs;
use crate::answer::{AnswerParser, Piece};
use crate::answers::Answer;

/// One answer as it grows.
pub struct ChatAnswer {
    /// Reads the text.
    pub parser: AnswerParser,
    /// Decodes the tokens of log probabilities; `None` where none are reported.
    pub logprobs: Option<Arc<dyn TextModel>>,
    /// Whether more than one call may be made.
    pub parallel: bool,
    /// What the ids of this answer's calls begin with.
    pub call_id: String,
    /// What was said so far.
    pub said: Said,
}

/// The message so far.
#[derive(Debug, Default)]
pub struct Said {
    reasoning: String,
    content: String,
    calls: Vec<Call>,
    logprobs: Vec<Json>,
    /// Those that no chunk has carried yet.
    unsent: Vec<Json>,
    reason: &'static str,
}

#[derive(Debug)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Call {
    fn to_json(&self) -> Json {
        let function = json!({"name": self.name, "arguments": self.arguments});
        json!({"id": self.id, "type": "function", "function": function})
    }
}

impl ChatAnswer {
    /// The deltas of `pieces`, and whether the answer may go on.
    fn deltas(&mut self, pieces: Vec<Piece>) -> (Vec<Json>, bool) {
        let mut deltas = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Reasoning(text) => {
                    self.said.reasoning.push_str(&text);
                    deltas.push(json!({"reasoning_content": text}));
                }
                Piece::Content(text) => {
                    self.said.content.push_str(&text);
                    deltas.push(json!({"content": text}));
                }
                Piece::ToolCall { index, .. } if index > 0 && !self.parallel => {
                    return (deltas, false);
                }
                Piece::ToolCall { index, name } => {
                    let id = format!("{}{index}", self.call_id);
                    let call = Call { id, name, arguments: String::new() };
                    let mut delta = call.to_json();
                    delta["index"] = json!(index);
                    deltas.push(json!({"tool_calls": [delta]}));
                    self.said.calls.push(call);
                }
                Piece::Arguments { index, text } => {
                    if let Some(call) = self.said.calls.get_mut(index) {
                        call.arguments.push_str(&text);
                    }
                    let function = json!({"arguments": text});
                    deltas.push(json!({"tool_calls": [{"index": index, "function": function}]}));
                }
            }
        }
        (deltas, true)
    }

    /// The chunks of `deltas`; the first one carries the log probabilities that wait.
    fn chunks(&mut self, deltas: Vec<Json>) -> Vec<Json> {
        let chunk = |delta| {
            let unsent = std::mem::take(&mut self.said.unsent);
            let logprobs = match unsent.is_empty() {
                true => Json::Null,
                false => json!({"content": unsent, "refusal": null}),
            };
            json!({"delta": delta, "logprobs": logprobs, "finish_reason": null})
        };
        deltas.into_iter().map(chunk).collect()
    }
}

impl Answer for ChatAnswer {
    fn begin(&mut self) -> Vec<Json> {
        self.chunks(vec![json!({"role": "assistant", "content": ""})])
    }

    /// Chats have no way to ask for it.
    fn prompt(&mut self, _: Vec<Token>) -> Vec<Json> {
        Vec::new()
    }

    fn push(&mut self, token: Token) -> (Vec<Json>, bool) {
        if let Some(model) = &self.logprobs {
            let entry = logprobs::of_chat(model.as_ref(), &token);
            self.said.logprobs.push(entry.clone());
            self.said.unsent.push(entry);
        }
        let pieces = self.parser.push(&token.text);
        let (deltas, more) = self.deltas(pieces);
        (self.chunks(deltas), more)
    }

    fn finish(&mut self, reason: &'static str) -> Vec<Json> {
        let pieces = self.parser.finish();
        let (mut deltas, _) = self.deltas(pieces);
        deltas.push(json!({}));
        let mut chunks = self.chunks(deltas);
        self.said.reason = match reason {
            "stop" if !self.said.calls.is_empty() => "tool_calls",
            reason => reason,
        };
        if let Some(last) = chunks.last_mut() {
            last["finish_reason"] = json!(self.said.reason);
        }
        chunks
    }

    fn whole(self) -> Json {
        let said = self.said;
        let mut message = json!({"role": "assistant", "content": said.content, "refusal": null});
        if !said.reasoning.is_empty() {
            message["reasoning_content"] = json!(said.reasoning);
        }
        if !said.calls.is_empty() {
            message["tool_calls"] = said.calls.iter().map(Call::to_json).collect();
            if said.content.is_empty() {
                message["content"] = Json::Null;
            }
        }
        let logprobs = self.logprobs.map(|_| json!({"content": said.logprobs, "refusal": null}));
        json!({"message": message, "logprobs": logprobs, "finish_reason": said.reason})
    }
}

#[cfg(test)]
mod tests {
    use inference_core::Token;
    use serde_json::json;

    use super::{ChatAnswer, Said};
    use crate::answer::{AnswerParser, Family, Piece};
    use crate::answers::Answer;

    fn answer(parallel: bool) -> ChatAnswer {
        ChatAnswer {
            parser: AnswerParser::new(Family::Plain, "", &[]),
            logprobs: None,
            parallel,
            call_id: "call_".to_owned(),
            said: Said::default(),
        }
    }

    fn calls() -> Vec<Piece> {
        vec![
            Piece::Reasoning("hm".into()),
            Piece::ToolCall { index: 0, name: "f".into() },
            Piece::Arguments { index: 0, text: "{}".into() },
            Piece::ToolCall { index: 1, name: "g".into() },
        ]
    }

    #[test]
    fn calls_are_numbered_and_their_arguments_joined() {
        let mut answer = answer(true);
        let (deltas, more) = answer.deltas(calls());
        assert!(more);
        assert_eq!(deltas[0], json!({"reasoning_content": "hm"}));
        assert_eq!(deltas[1]["tool_calls"][0]["id"], "call_0");
        assert_eq!(
            deltas[2],
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]})
        );
        assert_eq!(answer.finish("stop").last().unwrap()["finish_reason"], "tool_calls");
        let whole = answer.whole();
        assert_eq!(whole["message"]["content"], json!(null));
        assert_eq!(whole["message"]["reasoning_content"], "hm");
        assert_eq!(whole["message"]["tool_calls"][0]["function"]["arguments"], "{}");
        assert_eq!(whole["message"]["tool_calls"][1]["function"]["name"], "g");
    }

    #[test]
    fn without_parallel_calls_the_second_one_ends_the_answer() {
        let mut answer = answer(false);
        assert!(!answer.deltas(calls()).1);
        answer.finish("stop");
        assert_eq!(answer.whole()["message"]["tool_calls"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn text_is_content() {
        let mut answer = answer(true);
        answer.begin();
        answer.push(Token { text: "fox".into(), ..Token::default() });
        answer.finish("length");
        let whole = answer.whole();
        assert_eq!(whole["message"]["content"], "fox");
        assert_eq!(whole["finish_reason"], "length");
    }
}
