//! What answers say, in no protocol's words.

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
    /// What the model thinks before it answers.
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
    /// What it is by itself.
    pub own: Spelling,
    /// What the likeliest tokens at its place are, each by itself.
    pub top: Vec<Spelling>,
}

/// A token by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spelling {
    /// Its text; a part of a character has `�`.
    pub text: String,
    /// Its bytes; none where only several tokens have some.
    pub bytes: Option<Vec<u8>>,
}

impl Spelling {
    fn of(model: &dyn TextModel, id: u32) -> Spelling {
        let text = model.decode(&[id]).unwrap_or_default();
        let bytes = match text.contains(char::REPLACEMENT_CHARACTER) {
            true => model.token_bytes(id).ok(),
            false => Some(text.clone().into_bytes()),
        };
        Spelling { text, bytes }
    }
}

impl Scored {
    /// `token`, with what `model` has for it. A special token has no text.
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
}
