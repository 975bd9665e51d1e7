//! Log probabilities, as chats and as completions report them.

use serde_json::{Map, Value as Json, json};

use crate::fields::json::number;
use crate::run::part::{Scored, Spelling};

/// An entry of a chat's `logprobs.content`.
pub fn of_chat(scored: &Scored) -> Json {
    let entry = |id: u32, spelling: &Spelling, logprob: f32| {
        let Spelling { text, bytes } = spelling;
        json!({"bytes": bytes, "logprob": number(logprob), "token": text, "token_id": id})
    };
    let token = &scored.token;
    let mut own = entry(token.id, &scored.own, token.logprob.unwrap_or(f32::NEG_INFINITY));
    let top = token.top_logprobs.iter().zip(&scored.top);
    own["top_logprobs"] = top.map(|(top, own)| entry(top.id, own, top.logprob)).collect();
    own
}

/// The `logprobs` of a completion: four lists, one entry a token.
#[derive(Debug, Default)]
pub struct OfCompletion {
    tokens: Vec<Json>,
    logprobs: Vec<Json>,
    top: Vec<Json>,
    offsets: Vec<Json>,
}

impl OfCompletion {
    /// Adds a token, whose text begins at character `offset` of the answer. A prompt's first token
    /// has no probability.
    pub fn push(&mut self, scored: &Scored, offset: usize) {
        let token = &scored.token;
        self.tokens.push(json!(scored.own.text));
        self.logprobs.push(token.logprob.map_or(Json::Null, number));
        let mut top = Map::new();
        for (entry, Spelling { text, .. }) in token.top_logprobs.iter().zip(&scored.top) {
            // Of tokens with the same text, the likelier one stands.
            top.entry(text.clone()).or_insert_with(|| number(entry.logprob));
        }
        self.top.push(if token.logprob.is_some() { Json::Object(top) } else { Json::Null });
        self.offsets.push(json!(offset));
    }

    /// The lists.
    pub fn into_json(self) -> Json {
        json!({
            "tokens": self.tokens,
            "token_logprobs": self.logprobs,
            "top_logprobs": self.top,
            "text_offset": self.offsets,
        })
    }
}
