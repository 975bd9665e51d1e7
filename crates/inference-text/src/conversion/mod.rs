//! Tokenizers in other forms than `tokenizer.json`, made into it as they are loaded.
//!
//! The result has the ids of transformers 5 for SentencePiece's models, and those of the models'
//! own programs for tiktoken's and Mistral's files.

mod class;
mod merges;
mod pipeline;
mod protobuf;
mod sentencepiece;
mod tekken;
mod tiktoken;

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

use crate::TextError;
use crate::around::Around;
use crate::files::{Files, MAX_TOKENIZER, invalid, read_object, read_optional};
use crate::source::Source;
use crate::special_tokens::{TokenFlags, TokenSpec};

use class::Class;
use sentencepiece::{Algorithm, Model, Role};
use tiktoken::Ranks;

/// Files that are converted, the first of which that is there, and what they hold.
const FILES: [(&str, Form); 8] = [
    ("tekken.json", Form::Tekken),
    ("tokenizer.model", Form::SentencePiece),
    ("spiece.model", Form::SentencePiece),
    ("sentencepiece.bpe.model", Form::SentencePiece),
    ("tokenizer.model.v3", Form::SentencePiece),
    ("tokenizer.model.v7", Form::SentencePiece),
    ("tiktoken.model", Form::Tiktoken),
    ("qwen.tiktoken", Form::Qwen),
];
/// Tokens of a gap to fill, by their keys in `tokenizer_config.json`.
const GAP: [(&str, &str); 5] = [
    ("prefix_token", "▁<PRE>"),
    ("middle_token", "▁<MID>"),
    ("suffix_token", "▁<SUF>"),
    ("eot_token", "▁<EOT>"),
    ("fill_token", "<FILL_ME>"),
];

/// The names of the files that are read where there is no `tokenizer.json`, in this order.
pub fn other_tokenizers() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    SentencePiece,
    /// Ranks; of Kimi, or of any other model.
    Tiktoken,
    /// Ranks of Qwen 1.
    Qwen,
    Tekken,
}

/// The tokenizer of the first file that can be converted; `None` where there is none. The special
/// tokens that its class has are put into `config` where that says nothing of them.
///
/// # Errors
/// Whatever is wrong with the file, with its name.
pub(crate) fn converted(
    dir: &dyn Files,
    config: &mut Map<String, Json>,
) -> Result<Option<Source>, TextError> {
    for (name, form) in FILES {
        let Some(bytes) = read_optional(dir, name, MAX_TOKENIZER)? else { continue };
        let model = read_object(dir, "config.json")?.unwrap_or_default();
        let is_listed = config.contains_key("added_tokens_decoder");
        let listed = if is_listed { Vec::new() } else { added_tokens(dir, config)? };
        let made = match form {
            Form::SentencePiece => sentencepiece(&bytes, &model, config),
            Form::Tiktoken => ranked(&bytes, &model, config),
            Form::Qwen => Ranks::read(&bytes).and_then(|ranks| {
                let (cut, special) = tiktoken::qwen(&ranks);
                made_of(ranks.tokenizer(&cut, 0, &special)?, "tiktoken", None)
            }),
            Form::Tekken => tekken::tokenizer(&bytes).and_then(|(json, special)| {
                let known = [
                    ("bos_token", "<s>"),
                    ("eos_token", "</s>"),
                    ("unk_token", "<unk>"),
                    ("pad_token", "<pad>"),
                ];
                let is_there = |token: &str| special.iter().any(|special| special == token);
                set(config, known.into_iter().filter(|(_, token)| is_there(token)));
                made_of(json, "tekken", Some(Around::Ends { bos: true, eos: false }))
            }),
        };
        let mut source = made.map_err(|reason| invalid(&dir.path(name), reason))?;
        source.file = name;
        source.added.splice(0..0, listed);
        return Ok(Some(source));
    }
    Ok(None)
}

fn made_of(json: String, kind: &'static str, around: Option<Around>) -> Result<Source, String> {
    let bytes = Cow::Owned(json.into_bytes());
    Ok(Source { file: "", kind, bytes, added: Vec::new(), around })
}

/// A file of SentencePiece, or Llama 3's ranks under the same name.
fn sentencepiece(
    bytes: &[u8],
    model: &Map<String, Json>,
    config: &mut Map<String, Json>,
) -> Result<Source, String> {
    // Base64 and a rank in a first line are no message: its first byte would be a group's.
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if first.is_ascii() && first.contains(&b' ') && Ranks::is_line(first) {
        return ranked(bytes, model, config);
    }
    let class = Class::of(model, config).map_err(|name| {
        format!(
            "its pieces are read by `{name}`, which is not written here; write tokenizer.json with \
             transformers: `AutoTokenizer.from_pretrained(folder).save_pretrained(folder)`"
        )
    })?;
    let spm = Model::read(bytes)?;
    set(config, class.defaults().iter().copied());
    if class == Class::Own {
        let of_model = [
            ("bos_token", spm.bos_id, spm.bos_piece),
            ("eos_token", spm.eos_id, spm.eos_piece),
            ("unk_token", spm.unk_id, spm.unk_piece),
        ];
        let named = of_model.into_iter().filter(|(_, id, _)| *id >= 0);
        set(config, named.map(|(name, _, piece)| (name, piece)));
    }
    let json = pipeline::tokenizer(class, &spm, config)?;
    let kind = match (class, spm.algorithm) {
        (Class::Own, Algorithm::Unigram) | (Class::T5 | Class::XlmRoberta, _) => {
            "SentencePiece, unigram"
        }
        _ => "SentencePiece, BPE",
    };
    let around = match class {
        Class::T5 => Around::T5,
        Class::XlmRoberta => Around::XlmRoberta,
        _ => ends(config, class == Class::CodeLlama),
    };
    let mut source = made_of(json, kind, Some(around))?;
    source.added = pieces(class, &spm, config);
    if class == Class::Own && spm.add_dummy_prefix {
        as_they_are(config);
    }
    Ok(source)
}

/// Tokens by ranks, of Kimi or of any other model.
fn ranked(
    bytes: &[u8],
    model: &Map<String, Json>,
    config: &Map<String, Json>,
) -> Result<Source, String> {
    let ranks = Ranks::read(bytes)?;
    let of = |object: &Map<String, Json>, name: &str| {
        object.get(name).and_then(Json::as_str).unwrap_or_default().to_owned()
    };
    let is_kimi = of(config, "tokenizer_class") == "TikTokenTokenizer"
        || of(model, "model_type").starts_with("kimi");
    let (cut, special) = match is_kimi {
        true => tiktoken::kimi(&ranks, config),
        false => tiktoken::other(&ranks, config)?,
    };
    let is_said = ["add_bos_token", "add_eos_token"].iter().any(|key| config.contains_key(*key));
    let around = is_said.then(|| ends(config, false));
    made_of(ranks.tokenizer(&cut, 0, &special)?, "tiktoken", around)
}

/// The ends of a text as the config has them; `bos` is the class's own beginning.
fn ends(config: &Map<String, Json>, bos: bool) -> Around {
    let is = |key: &str, unset: bool| match config.get(key) {
        None => unset,
        Some(value) => value.as_bool().unwrap_or(!value.is_null()),
    };
    Around::Ends { bos: is("add_bos_token", bos), eos: is("add_eos_token", false) }
}

/// Puts tokens into a config that says nothing of their names.
fn set<'a>(config: &mut Map<String, Json>, tokens: impl Iterator<Item = (&'a str, &'a str)>) {
    for (name, token) in tokens {
        config.entry(name).or_insert_with(|| token.into());
    }
}

/// Control pieces and those of users as tokens, where the config lists no special ones itself.
fn pieces(class: Class, spm: &Model<'_>, config: &Map<String, Json>) -> Vec<TokenSpec> {
    let is_listed = config.contains_key("additional_special_tokens")
        || config.get("extra_special_tokens").is_some_and(|extra| !extra.is_object());
    let mut tokens = Vec::new();
    if !is_listed {
        for piece in &spm.pieces {
            match piece.role {
                Role::Control => tokens.push(plain(piece.text, true)),
                // Others find them in their own way.
                Role::UserDefined if class != Class::Own => tokens.push(plain(piece.text, false)),
                _ => {}
            }
        }
        if class == Class::T5 {
            let extra = config.get("extra_ids").and_then(Json::as_u64).unwrap_or(100);
            tokens.extend((0..extra).map(|id| plain(&format!("<extra_id_{id}>"), true)));
        }
    }
    if class == Class::CodeLlama {
        let named = |(key, unset): (&str, &str)| match config.get(key) {
            Some(token) => token.as_str().map(|token| plain(token, true)),
            None => Some(plain(unset, true)),
        };
        tokens.extend(GAP.into_iter().filter_map(named));
    }
    tokens
}

fn plain(content: &str, special: bool) -> TokenSpec {
    let flags =
        TokenFlags { single_word: false, lstrip: false, rstrip: false, normalized: false, special };
    TokenSpec { content: content.to_owned(), flags: Some(flags) }
}

/// Lets the config's added tokens be found in the text as it is, before it is normalized.
fn as_they_are(config: &mut Map<String, Json>) {
    let decoder = config.get_mut("added_tokens_decoder").and_then(Json::as_object_mut);
    for (_, token) in decoder.into_iter().flatten() {
        if let Some(token) = token.as_object_mut() {
            token.insert("normalized".into(), false.into());
        }
    }
}

/// The tokens of `added_tokens.json`, in the order of their ids. It counts where the config has no
/// `added_tokens_decoder`.
///
/// # Errors
/// A file that is no object of ids.
fn added_tokens(dir: &dyn Files, config: &Map<String, Json>) -> Result<Vec<TokenSpec>, TextError> {
    const NAME: &str = "added_tokens.json";
    let Some(listed) = read_object(dir, NAME)? else { return Ok(Vec::new()) };
    let map = read_object(dir, "special_tokens_map.json")?.unwrap_or_default();
    let is_special = |token: &str| [config, &map].iter().any(|from| names_special(from, token));
    let mut tokens = Vec::with_capacity(listed.len());
    for (token, id) in &listed {
        let id = id.as_u64().filter(|_| !token.is_empty());
        let id = id.ok_or_else(|| {
            invalid(&dir.path(NAME), format!("`{token}` has the id {}", listed[token]))
        })?;
        let special = is_special(token);
        let mut spec = plain(token, special);
        if let Some(flags) = &mut spec.flags {
            flags.normalized = !special;
        }
        tokens.push((id, spec));
    }
    tokens.sort_by_key(|(id, _)| *id);
    Ok(tokens.into_iter().map(|(_, spec)| spec).collect())
}

/// Returns true where `token` is one of the special tokens of a config.
fn names_special(config: &Map<String, Json>, token: &str) -> bool {
    let is = |value: &Json| {
        value.as_str().or_else(|| value.get("content")?.as_str()).is_some_and(|text| text == token)
    };
    let listed = ["extra_special_tokens", "additional_special_tokens"].into_iter();
    let mut listed = listed.filter_map(|key| config.get(key)?.as_array()).flatten();
    let mut named = crate::special_tokens::SPECIAL_NAMES.iter().filter_map(|key| config.get(*key));
    named.any(is) || listed.any(is)
}
