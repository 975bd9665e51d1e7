//! SentencePiece's model file: pieces with scores, and how text was normalized for them.

use std::collections::HashMap;

use super::protobuf::{Fields, Value};

/// Pieces of one model, at most; the largest published ones have 2^18.
const MAX_PIECES: usize = 1 << 20;

/// A SentencePiece model, of what is used here.
#[derive(Debug)]
pub(super) struct Model<'a> {
    pub pieces: Vec<Piece<'a>>,
    pub algorithm: Algorithm,
    pub byte_fallback: bool,
    pub unk_id: i64,
    pub unk_piece: &'a str,
    pub bos_id: i64,
    pub bos_piece: &'a str,
    pub eos_id: i64,
    pub eos_piece: &'a str,
    /// A table of characters' replacements; none where it is empty.
    pub charsmap: &'a [u8],
    pub add_dummy_prefix: bool,
    pub remove_extra_whitespaces: bool,
    pub escape_whitespaces: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Unigram,
    Bpe,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub text: &'a str,
    pub score: f32,
    pub role: Role,
}

/// The role of a piece, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Normal,
    Control,
    UserDefined,
    /// Unknown, unused or a byte.
    Other,
}

impl<'a> Model<'a> {
    /// Reads the bytes of a model file.
    ///
    /// # Errors
    /// Bytes that are none, with the place; a piece that is empty, no text or there twice; a score
    /// that is no number; an algorithm that is neither BPE nor unigram.
    pub fn read(bytes: &'a [u8]) -> Result<Model<'a>, String> {
        let mut model = Model {
            pieces: Vec::new(),
            algorithm: Algorithm::Unigram,
            byte_fallback: false,
            unk_id: 0,
            unk_piece: "<unk>",
            bos_id: 1,
            bos_piece: "<s>",
            eos_id: 2,
            eos_piece: "</s>",
            charsmap: &[],
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
        };
        for field in Fields::of(bytes) {
            let (number, value) = field?;
            match (number, value) {
                (1, Value::Bytes(piece)) => {
                    let at = model.pieces.len();
                    if at == MAX_PIECES {
                        return Err(format!("has more than {MAX_PIECES} pieces"));
                    }
                    let piece = Piece::read(piece).map_err(|why| format!("piece {at}: {why}"))?;
                    model.pieces.push(piece);
                }
                (2, Value::Bytes(spec)) => {
                    model.read_training(spec).map_err(|why| format!("`trainer_spec`: {why}"))?;
                }
                (3, Value::Bytes(spec)) => {
                    model
                        .read_normalizer(spec)
                        .map_err(|why| format!("`normalizer_spec`: {why}"))?;
                }
                _ => {}
            }
        }
        if model.pieces.is_empty() {
            return Err("has no pieces".into());
        }
        let mut seen = HashMap::with_capacity(model.pieces.len());
        for (at, piece) in model.pieces.iter().enumerate() {
            if let Some(before) = seen.insert(piece.text, at) {
                return Err(format!("pieces {before} and {at} are both `{}`", piece.text));
            }
        }
        Ok(model)
    }

    fn read_training(&mut self, spec: &'a [u8]) -> Result<(), String> {
        for field in Fields::of(spec) {
            let (number, value) = field?;
            match number {
                3 => {
                    self.algorithm = match value.int() {
                        Some(1) => Algorithm::Unigram,
                        Some(2) => Algorithm::Bpe,
                        Some(3) => return Err("`model_type` is word, which is not read".into()),
                        Some(4) => return Err("`model_type` is char, which is not read".into()),
                        _ => return Err(format!("`model_type` is {value:?}")),
                    }
                }
                35 => self.byte_fallback = value.flag().unwrap_or_default(),
                40 => self.unk_id = id(value, "unk_id")?,
                41 => self.bos_id = id(value, "bos_id")?,
                42 => self.eos_id = id(value, "eos_id")?,
                45 => self.unk_piece = text(value, "unk_piece")?,
                46 => self.bos_piece = text(value, "bos_piece")?,
                47 => self.eos_piece = text(value, "eos_piece")?,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_normalizer(&mut self, spec: &'a [u8]) -> Result<(), String> {
        for field in Fields::of(spec) {
            let (number, value) = field?;
            match number {
                2 => self.charsmap = value.bytes().unwrap_or_default(),
                3 => self.add_dummy_prefix = value.flag().unwrap_or(true),
                4 => self.remove_extra_whitespaces = value.flag().unwrap_or(true),
                5 => self.escape_whitespaces = value.flag().unwrap_or(true),
                _ => {}
            }
        }
        Ok(())
    }
}

impl<'a> Piece<'a> {
    fn read(message: &'a [u8]) -> Result<Piece<'a>, String> {
        let mut piece = Piece { text: "", score: 0.0, role: Role::Normal };
        for field in Fields::of(message) {
            let (number, value) = field?;
            match number {
                1 => piece.text = text(value, "piece")?,
                2 => piece.score = value.float().ok_or("its score is no number")?,
                3 => {
                    piece.role = match value.int() {
                        Some(1) => Role::Normal,
                        Some(3) => Role::Control,
                        Some(4) => Role::UserDefined,
                        Some(2 | 5 | 6) => Role::Other,
                        _ => return Err(format!("its type is {value:?}")),
                    }
                }
                _ => {}
            }
        }
        match piece {
            Piece { text: "", .. } => Err("it is empty".into()),
            Piece { score, .. } if !score.is_finite() => Err(format!("its score is {score}")),
            piece => Ok(piece),
        }
    }
}

fn text<'a>(value: Value<'a>, name: &str) -> Result<&'a str, String> {
    value.text().ok_or_else(|| format!("`{name}` is no text"))
}

fn id(value: Value<'_>, name: &str) -> Result<i64, String> {
    let id = value.int().filter(|id| i32::try_from(*id).is_ok());
    id.ok_or_else(|| format!("`{name}` is {value:?}"))
}
