//! The bytes that each token adds to a text, for what looks at text below characters: constraints.

use crate::byte_spelling::spelled_bytes;
use crate::decoder_steps::{Step, decode_at, fallback_byte, steps_of};
use crate::{TextError, Tokenizer};

/// The bytes of every token, by its id; empty where an id adds no text.
#[derive(Debug)]
pub(crate) struct TokenBytes {
    /// The bytes that a token adds after another one.
    pub inner: Vec<Vec<u8>>,
    /// The bytes that a token adds at the beginning of a text, if they differ for any:
    /// SentencePiece's decoders drop a space there.
    pub first: Option<Vec<Vec<u8>>>,
}

/// Text before byte steps, bytes after them.
enum Piece {
    Text(String),
    Bytes(Vec<u8>),
}

impl TokenBytes {
    /// The bytes of the ids below `vocab_size`; a model's vocabulary may be wider or narrower than
    /// its tokenizer's. Special tokens add no text.
    ///
    /// # Errors
    /// A decoder for which a token's text depends on the tokens around it.
    pub fn new(tokenizer: &Tokenizer, vocab_size: usize) -> Result<TokenBytes, TextError> {
        let inner = all(tokenizer, vocab_size, Position::Inner)?;
        let first = all(tokenizer, vocab_size, Position::First)?;
        let first = (first != inner).then_some(first);
        Ok(TokenBytes { inner, first })
    }

    /// Checks that the tokens of the decoder have a text of their own.
    ///
    /// # Errors
    /// A decoder for which a token's text depends on the tokens around it.
    pub fn check(tokenizer: &Tokenizer) -> Result<(), TextError> {
        bytes(&steps(tokenizer)?, "a".to_owned(), Position::Inner).map(drop)
    }
}

impl Tokenizer {
    /// The bytes that the token `id` adds to a text behind another token; none for a special one,
    /// and for an id that no token has.
    ///
    /// # Errors
    /// A decoder for which a token's text depends on the tokens around it.
    pub fn token_bytes(&self, id: u32) -> Result<Vec<u8>, TextError> {
        match ordinary(self, id) {
            Some(token) => bytes(&steps(self)?, token, Position::Inner),
            None => Ok(Vec::new()),
        }
    }
}

/// The token with the id, as the vocabulary spells it, unless it is special.
fn ordinary(tokenizer: &Tokenizer, id: u32) -> Option<String> {
    let inner = &tokenizer.inner.tokenizer;
    let vocabulary = inner.get_added_vocabulary();
    let token = vocabulary.simple_id_to_token(id).or_else(|| inner.id_to_token(id));
    token.filter(|token| !vocabulary.is_special_token(token))
}

#[derive(Clone, Copy, PartialEq)]
enum Position {
    First,
    Inner,
}

fn all(
    tokenizer: &Tokenizer,
    vocab_size: usize,
    position: Position,
) -> Result<Vec<Vec<u8>>, TextError> {
    let steps = steps(tokenizer)?;
    (0..vocab_size)
        .map(|id| match ordinary(tokenizer, id as u32) {
            Some(token) => bytes(&steps, token, position),
            None => Ok(Vec::new()),
        })
        .collect()
}

/// The steps of the tokenizer's decoder.
fn steps(tokenizer: &Tokenizer) -> Result<Vec<Step>, TextError> {
    let Some(decoder) = tokenizer.inner.tokenizer.get_decoder() else {
        return Ok(vec![Step::Spaces { first: true }]);
    };
    let json = serde_json::to_value(decoder).map_err(|err| TextError::Decode(err.to_string()))?;
    let mut steps = Vec::new();
    steps_of(&json, &mut steps, &mut false).map_err(TextError::Decode)?;
    Ok(steps)
}

/// Sends a token through the steps of a decoder.
fn bytes(steps: &[Step], token: String, position: Position) -> Result<Vec<u8>, TextError> {
    let is_first = position == Position::First;
    let mut piece = Piece::Text(token);
    for step in steps {
        piece = match (step, piece) {
            (Step::ByteFallback { .. }, Piece::Text(token)) => match fallback_byte(&token) {
                Some(byte) => Piece::Bytes(vec![byte]),
                None => Piece::Text(token),
            },
            (Step::ByteLevel { .. }, Piece::Text(token)) => Piece::Bytes(spelled_bytes(&token)),
            (Step::Each(decoder), Piece::Text(token)) => {
                Piece::Text(decode_at(decoder, token, true).concat())
            }
            (Step::First { decoder, .. }, Piece::Text(token)) => {
                Piece::Text(decode_at(decoder, token, is_first).concat())
            }
            (Step::Spaces { .. }, Piece::Text(token)) if !is_first => {
                Piece::Text(format!(" {token}"))
            }
            (Step::Strip { content, start, stop: 0, .. }, piece) => {
                let mut bytes = piece.into_bytes();
                if is_first {
                    let mut buffer = [0; 4];
                    let content = content.encode_utf8(&mut buffer).as_bytes();
                    for _ in 0..*start {
                        if bytes.starts_with(content) {
                            bytes.drain(..content.len());
                        }
                    }
                }
                Piece::Bytes(bytes)
            }
            (Step::Last { .. } | Step::Repeats { .. } | Step::Whole { .. }, _)
            | (Step::Strip { .. }, _) => {
                return Err(TextError::Decode(
                    "the text of a token depends on the tokens around it".into(),
                ));
            }
            (Step::Each(decoder), Piece::Bytes(bytes)) => match String::from_utf8(bytes) {
                Ok(text) => Piece::Text(decode_at(decoder, text, true).concat()),
                Err(error) => Piece::Bytes(error.into_bytes()),
            },
            // Bytes pass the steps that spell text.
            (_, piece) => piece,
        };
    }
    Ok(piece.into_bytes())
}

impl Piece {
    fn into_bytes(self) -> Vec<u8> {
        match self {
            Piece::Text(text) => text.into_bytes(),
            Piece::Bytes(bytes) => bytes,
        }
    }
}
