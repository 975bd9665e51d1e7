//! Constraints against tokenizers of every kind, with random draws in place of a model.

mod grammars;
mod hostile;
mod kept;
mod reasoning;
mod schemas;
mod text;

use std::path::Path;

use inference_core::{Constraint, Error, Value};
use serde_json::Value as Json;

use super::{Constraints, Matcher};
use crate::{Detokenizer, SkipSpecial, Tokenizer};

/// Rows of the output layer that no tokenizer here fills.
const VOCAB_SIZE: usize = 1100;
/// The kinds of decoders: ByteLevel; byte fallback without and with a space that is dropped.
const FAMILIES: [&str; 3] = ["qwen", "gemma", "mistral"];

fn tokenizer(family: &str) -> Tokenizer {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers");
    Tokenizer::from_dir(&folder.join(family)).unwrap()
}

fn constraints(tokenizer: &Tokenizer) -> Constraints {
    let eos = tokenizer.eos_ids().iter().copied().collect();
    Constraints::new(tokenizer.clone(), eos, VOCAB_SIZE)
}

fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::Int(number),
            None => Value::Float(number.as_f64().unwrap()),
        },
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => Value::Array(items.iter().map(value).collect()),
        Json::Object(fields) => {
            Value::Object(fields.iter().map(|(key, field)| (key.clone(), value(field))).collect())
        }
    }
}

/// The steps of SplitMix64.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % bound
    }
}

/// How a random text ended.
#[derive(Debug, PartialEq)]
enum End {
    Complete,
    Eos,
    Length,
}

/// Draws any of the allowed ids, often one that closes something, so that texts end.
fn write(matcher: &mut Matcher, tokenizer: &Tokenizer, seed: u64, most: usize) -> (String, End) {
    let mut draws = Draws(seed);
    let mut detokenizer = Detokenizer::new(tokenizer, SkipSpecial::Yes).unwrap();
    let mut text = String::new();
    let mut end = End::Length;
    for _ in 0..most {
        let mask = matcher.mask().unwrap();
        let allowed: Vec<u32> = (0..VOCAB_SIZE as u32).filter(|id| mask.allows(*id)).collect();
        assert!(!allowed.is_empty());
        let closing: Vec<u32> = allowed
            .iter()
            .copied()
            .filter(|id| {
                let token = tokenizer.id_to_token(*id).unwrap();
                token.starts_with(['"', '}', ']']) || tokenizer.eos_ids().contains(id)
            })
            .collect();
        let ids = if closing.is_empty() || draws.below(3) > 0 { &allowed } else { &closing };
        let id = ids[draws.below(ids.len())];
        if tokenizer.eos_ids().contains(&id) {
            end = End::Eos;
            break;
        }
        matcher.accept(id);
        text.push_str(&detokenizer.push(id));
        if matcher.is_complete() {
            end = End::Complete;
            break;
        }
    }
    text.push_str(&detokenizer.finish());
    (text, end)
}

fn refusal(constraints: &Constraints, constraint: &Constraint) -> String {
    match constraints.matcher(constraint) {
        Err(Error::InvalidOption { option: "constraint", reason }) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("accepted: {constraint:?}"),
    }
}
