//! The parts of answers, independent of any protocol.

use std::time::Duration;

use inference_core::{TextModel, Token};

/// A part of one answer, in the order in which the parts come.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Some of the prompt's tokens with their log probabilities, in order; before anything else.
    Prompt(Vec<Scored>),
    /// A token with its log probability, where they were asked for; what its text makes certain
    /// follows.
    Token(Scored),
    /// Reasoning before the answer.
    Reasoning(String),
    /// The answer.
    Text(String),
    /// A call begins.
    Call {
        /// The call's position among the answer's calls, from 0.
        index: usize,
        /// The tool's name.
        name: String,
    },
    /// The arguments of the call `index`: pieces of one JSON object.
    Arguments {
        /// The call's position among the answer's calls, from 0.
        index: usize,
        /// JSON.
        text: String,
    },
    /// Nothing follows.
    End(End),
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The model has said all.
    Stop,
    /// The text reached this stop string.
    StopText(String),
    /// The model waits for what its calls bring.
    Calls,
    /// The answer has as many tokens as it may have.
    Length,
}

/// A token as log probabilities are told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The token, whose text is its part of the whole text.
    pub token: Token,
    /// Its spelling by itself.
    pub own: Spelling,
    /// Spellings of the likeliest tokens at its position, each by itself.
    pub top: Vec<Spelling>,
}

/// A token by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spelling {
    /// Its text, as it is behind another token; of a special token, its name. Bytes that are parts
    /// of characters are written as `\xNN`.
    pub text: String,
    /// True where bytes are written so.
    pub is_escaped: bool,
    /// The bytes that it adds to a text; `None` where only several tokens have some.
    pub bytes: Option<Vec<u8>>,
}

impl Spelling {
    fn of(model: &dyn TextModel, id: u32) -> Spelling {
        let whole = |text, bytes| Spelling { text, is_escaped: false, bytes };
        let Ok(bytes) = model.token_bytes(id) else {
            let text = model.decode(&[id]).unwrap_or_default();
            let is_whole = !text.contains(char::REPLACEMENT_CHARACTER);
            let bytes = is_whole.then(|| text.clone().into_bytes());
            return whole(text, bytes);
        };
        if bytes.is_empty() {
            return whole(model.special_token(id).unwrap_or_default(), Some(bytes));
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => whole(text.to_owned(), Some(bytes)),
            Err(_) => Spelling { text: escaped(&bytes), is_escaped: true, bytes: Some(bytes) },
        }
    }
}

/// Bytes in visible ASCII characters, such as `\xe9\x80`. A backslash is doubled, so that no two
/// are written alike.
fn escaped(bytes: &[u8]) -> String {
    let write = |byte: &u8| match byte {
        b'\\' => "\\\\".to_owned(),
        b' '..=b'~' => char::from(*byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    bytes.iter().map(write).collect()
}

impl Scored {
    /// `token`, with what `model` has for it.
    pub fn new(model: &dyn TextModel, token: Token) -> Scored {
        let top = token.top_logprobs.iter().map(|top| Spelling::of(model, top.id)).collect();
        Scored { own: Spelling::of(model, token.id), top, token }
    }
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompts.
    pub prompt: usize,
    /// Of those, the tokens that a cache held.
    pub cached: usize,
    /// Of the answers.
    pub completion: usize,
    /// Of those, the tokens that thoughts are made of.
    pub reasoning: usize,
    /// For the prompts, as far as their generations have ended.
    pub prefill_time: Duration,
    /// For the answers, as far as they have ended.
    pub decode_time: Duration,
    /// Tokens of answers after the first one of each, as far as they have ended: those that were
    /// decoded in that time.
    pub decoded: usize,
}

impl Usage {
    /// Computed tokens of prompts a second; `None` where no time was measured.
    pub fn prompt_rate(&self) -> Option<f64> {
        rate(self.prompt.saturating_sub(self.cached), self.prefill_time)
    }

    /// Tokens of an answer a second, after its first one; `None` where no time was measured.
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.decoded, self.decode_time)
    }
}

fn rate(tokens: usize, time: Duration) -> Option<f64> {
    // A tenth is enough for people, and all of it is noise.
    let rate = |time: f64| (10.0 * tokens as f64 / time).round() / 10.0;
    (tokens > 0 && !time.is_zero()).then(|| rate(time.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn bytes_are_written_so_that_no_two_are_alike() {
        assert_eq!(escaped(b"\xe9\x80"), "\\xe9\\x80");
        assert_eq!(escaped(b" a\xf0"), " a\\xf0");
        assert_ne!(escaped(b"\\x80\xff"), escaped(b"\x80\xff"));
        assert_eq!(escaped(b"\n\xff"), "\\x0a\\xff");
    }
}
