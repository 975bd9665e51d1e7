//! Log probabilities, as chats and as completions report them.

use serde_json::{Map, Value as Json, json};

use crate::fields::json::number;
use crate::run::part::{Scored, Spelling};

/// An entry of a chat's `logprobs.content`.
pub fn of_chat(scored: &Scored) -> Json {
    let entry = |id: u32, spelling: &Spelling, logprob: f32| {
        let Spelling { text, bytes, .. } = spelling;
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
    /// Adds a token, whose text begins at character `offset`. A prompt's first token has no
    /// probability.
    pub fn push(&mut self, scored: &Scored, offset: usize) {
        let token = &scored.token;
        self.tokens.push(json!(name(&scored.own)));
        self.logprobs.push(token.logprob.map_or(Json::Null, number));
        let mut top = Map::new();
        for (entry, spelling) in token.top_logprobs.iter().zip(&scored.top) {
            // Of tokens with the same text, the likelier one stands.
            top.entry(name(spelling)).or_insert_with(|| number(entry.logprob));
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

/// A token as completions call it: parts of characters by their bytes, such as `bytes:\xe9\x80`.
fn name(spelling: &Spelling) -> String {
    let Spelling { text, is_escaped, .. } = spelling;
    if *is_escaped { format!("bytes:{text}") } else { text.clone() }
}

/// A place between the tokens of a text, in characters. Tokens that are parts of one character
/// begin where it does.
#[derive(Clone, Debug, Default)]
pub struct Place {
    characters: usize,
    /// The beginning of a character that later tokens complete.
    open: Vec<u8>,
}

impl Place {
    /// The place behind so many characters.
    pub fn behind(characters: usize) -> Place {
        Place { characters, open: Vec::new() }
    }

    /// The character at which a token of the prompt begins; the place goes behind it.
    pub fn pass_prompt(&mut self, scored: &Scored) -> usize {
        self.pass_bytes(scored.token.text.as_bytes())
    }

    /// The character at which a token of the answer begins; the place goes behind it. Its text may
    /// be held back for later tokens, so that its bytes count.
    pub fn pass(&mut self, scored: &Scored) -> usize {
        let text = scored.token.text.as_bytes();
        // A special token has a text of its own where the request asks to see those.
        let bytes = scored.own.bytes.as_deref().filter(|bytes| !bytes.is_empty());
        self.pass_bytes(bytes.unwrap_or(text))
    }

    fn pass_bytes(&mut self, bytes: &[u8]) -> usize {
        let begins = self.characters;
        self.open.extend_from_slice(bytes);
        let mut rest = self.open.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.characters += text.chars().count();
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (text, behind) = rest.split_at(error.valid_up_to());
                    self.characters += String::from_utf8_lossy(text).chars().count();
                    rest = behind;
                    // What can be no character is told as one.
                    let Some(wrong) = error.error_len() else { break };
                    self.characters += 1;
                    rest = &rest[wrong..];
                }
            }
        }
        self.open = rest.to_vec();
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn parts_of_a_character_begin_where_it_does() {
        let mut place = Place::behind(5);
        let pieces: [&[u8]; 6] =
            ["，".as_bytes(), b"\xe9\x80", b"\x82", "合".as_bytes(), b" \xff", b"a"];
        let begins = pieces.map(|bytes| place.pass_bytes(bytes));
        assert_eq!(begins, [5, 6, 6, 7, 8, 10]);
    }
}
