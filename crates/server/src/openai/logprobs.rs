//! Log probabilities, as chats and as completions report them.

use inference_core::{TextModel, Token};
use serde_json::{Map, Value as Json, json};

use crate::json::number;

/// The text of one token by itself; special tokens have none.
fn text(model: &dyn TextModel, id: u32) -> String {
    model.decode(&[id]).unwrap_or_default()
}

/// Its bytes; `null` where the token is a part of a character, whose bytes its text does not tell.
fn bytes(text: &str) -> Json {
    if text.contains(char::REPLACEMENT_CHARACTER) { Json::Null } else { json!(text.as_bytes()) }
}

/// An entry of a chat's `logprobs.content`.
pub fn of_chat(model: &dyn TextModel, token: &Token) -> Json {
    let entry = |id, logprob| {
        let text = text(model, id);
        json!({"bytes": bytes(&text), "logprob": number(logprob), "token": text, "token_id": id})
    };
    let mut own = entry(token.id, token.logprob.unwrap_or(f32::NEG_INFINITY));
    own["top_logprobs"] = token.top_logprobs.iter().map(|top| entry(top.id, top.logprob)).collect();
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
    /// Adds `token`, whose text begins at character `offset` of the answer. A prompt's first token has
    /// no probability.
    pub fn push(&mut self, model: &dyn TextModel, token: &Token, offset: usize) {
        self.tokens.push(json!(text(model, token.id)));
        self.logprobs.push(token.logprob.map_or(Json::Null, number));
        let mut top = Map::new();
        for entry in &token.top_logprobs {
            // Of tokens with the same text, the likelier one stands.
            top.entry(text(model, entry.id)).or_insert_with(|| number(entry.logprob));
        }
        self.top.push(if token.logprob.is_some() { Json::Object(top) } else { Json::Null });
        self.offsets.push(json!(offset));
    }

    /// Takes what was added since the last time.
    pub fn take(&mut self) -> Json {
        let lists = std::mem::take(self);
        json!({
            "tokens": lists.tokens,
            "token_logprobs": lists.logprobs,
            "top_logprobs": lists.top,
            "text_offset": lists.offsets,
        })
    }
}

/// Appends the lists of `more` to those of `whole`.
pub fn join(whole: &mut Json, more: &Json) {
    let (Some(whole), Some(more)) = (whole.as_object_mut(), more.as_object()) else { return };
    for (name, list) in whole {
        if let (Some(list), Some(more)) = (list.as_array_mut(), more.get(name)) {
            list.extend(more.as_array().into_iter().flatten().cloned());
        }
    }
}
