//! Reads an event of a stream, or a whole answer: text or none, and the usage.

use serde::Deserialize;
use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::http::shortened;

/// OpenAI's `usage`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the answer.
    #[serde(default)]
    pub completion_tokens: usize,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<usize>,
}

impl Usage {
    /// Tokens of the prompt that the server took from a cache; 0 where it does not tell.
    pub fn cached(&self) -> usize {
        self.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0)
    }
}

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    /// The event carries text of an answer, a thought or a call.
    pub text: bool,
    /// The usage, which the last event has.
    pub usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Json>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    delta: Option<Delta>,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    reasoning_content: Option<String>,
    #[serde(default)]
    reasoning: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<Json>>,
}

impl Choice {
    fn has_text(&self) -> bool {
        let some = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let delta = |delta: &Delta| {
            some(&delta.content)
                || some(&delta.reasoning_content)
                || some(&delta.reasoning)
                || delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty())
        };
        some(&self.text) || self.delta.as_ref().is_some_and(delta)
    }
}

/// The event in `data`.
///
/// # Errors
/// [`Error::Event`] where it is an error, [`Error::Answer`] where it is not of the protocol.
pub fn read(data: &[u8]) -> Result<Event> {
    let chunk: Chunk = serde_json::from_slice(data).map_err(|error| {
        let text = shortened(data);
        Error::Answer(format!("an event is not of OpenAI's protocol: {error}: {text}"))
    })?;
    match chunk.error {
        Some(Json::Null) | None => {
            Ok(Event { text: chunk.choices.iter().any(Choice::has_text), usage: chunk.usage })
        }
        Some(error) => {
            let message = error["message"].as_str().map(str::to_owned);
            Err(Error::Event(message.unwrap_or_else(|| shortened(error.to_string().as_bytes()))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::error::Error;

    #[test]
    fn text_is_told_from_frames_without_any() {
        let text = |data: &str| read(data.as_bytes()).unwrap().text;
        for data in [
            r#"{"choices":[{"index":0,"text":" a","logprobs":null}]}"#,
            r#"{"choices":[{"delta":{"content":"a"}}],"usage":null}"#,
            r#"{"choices":[{"delta":{"content":null,"reasoning_content":"a"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":"a"}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#,
        ] {
            assert!(text(data), "{data}");
        }
        for data in [
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"text":"","finish_reason":"length"}]}"#,
            r#"{"choices":[]}"#,
            r#"{"choices":[{"delta":{}}]}"#,
        ] {
            assert!(!text(data), "{data}");
        }
    }

    #[test]
    fn usage_and_cached_tokens_are_read() {
        let data = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,
            "total_tokens":10,"prompt_tokens_details":{"cached_tokens":4}}}"#;
        let usage = read(data.as_bytes()).unwrap().usage.unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.cached()), (7, 3, 4));
        let bare = r#"{"usage":{"prompt_tokens":7,"prompt_tokens_details":null}}"#;
        assert_eq!(read(bare.as_bytes()).unwrap().usage.unwrap().cached(), 0);
    }

    #[test]
    fn errors_are_told_in_the_servers_words() {
        let error = |data: &str| read(data.as_bytes()).unwrap_err();
        let told = error(r#"{"error":{"message":"out of memory","type":"server_error"}}"#);
        assert_eq!(told.to_string(), "the stream ended with an error: out of memory");
        assert!(matches!(error(r#"{"error":"full"}"#), Error::Event(text) if text == "\"full\""));
        assert!(matches!(error("<html>"), Error::Answer(text) if text.ends_with("<html>")));
    }
}
