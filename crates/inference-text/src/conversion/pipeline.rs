//! A SentencePiece model as the `tokenizer.json` that transformers makes of it.

use std::cmp::{Ordering, Reverse};
use std::collections::{HashMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json, json};

use super::class::Class;
use super::merges::Work;
use super::sentencepiece::{Algorithm, Model, Role};

/// The character that stands for a space in pieces.
const SPACE: &str = "▁";
/// Extra ids of T5, where its config says nothing, and at most.
const EXTRA_IDS: u64 = 100;
const MOST_EXTRA_IDS: u64 = 1 << 14;

/// The `tokenizer.json` of `model`, without added tokens and what is put around a text.
///
/// # Errors
/// Tokens that are too long to be cut; names or counts of the config that mean nothing.
pub(super) fn tokenizer(
    class: Class,
    model: &Model<'_>,
    config: &Map<String, Json>,
) -> Result<String, String> {
    let is_set = |key: &str, unset: bool, null: bool| match config.get(key) {
        None => unset,
        Some(Json::Null) => null,
        Some(value) => value.as_bool().unwrap_or(true),
    };
    let prefix = is_set("add_prefix_space", true, true);
    let (model, [normalizer, pre_tokenizer, decoder]) = match class {
        Class::Llama | Class::CodeLlama => {
            let scheme = match (prefix, class) {
                (false, _) => "never",
                (true, Class::Llama) if is_set("legacy", false, false) => "always",
                (true, _) => "first",
            };
            let mut decoders = vec![spaces(), json!({"type": "ByteFallback"}), fuse()];
            if prefix || class == Class::CodeLlama {
                decoders.push(strip());
            }
            let unk = (class == Class::CodeLlama).then(|| token(config, "unk_token")).flatten();
            let model = bpe(vocabulary(model), Bpe { unk, ..Bpe::in_order(model)? })?;
            (model, [Json::Null, metaspace(scheme, false), sequence("decoders", decoders)])
        }
        Class::Gemma => {
            let unk = token(config, "unk_token");
            let model = bpe(vocabulary(model), Bpe { unk, ..Bpe::in_order(model)? })?;
            let split = json!({
                "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                "invert": false
            });
            let decoders = vec![spaces(), json!({"type": "ByteFallback"}), fuse()];
            (model, [underlines(), split, sequence("decoders", decoders)])
        }
        Class::T5 => {
            let extra = match config.get("extra_ids").filter(|extra| !extra.is_null()) {
                None => EXTRA_IDS,
                Some(extra) => extra
                    .as_u64()
                    .filter(|extra| *extra <= MOST_EXTRA_IDS)
                    .ok_or_else(|| format!("`extra_ids` is {extra}"))?,
            };
            let mut pieces = scored(model);
            pieces.extend((0..extra).rev().map(|id| (format!("<extra_id_{id}>"), 0.0)));
            let parts = words("always", model);
            (unigram(&pieces, 2, false)?, parts)
        }
        Class::XlmRoberta => {
            let named = |name: &str| {
                let token = token(config, name).ok_or_else(|| format!("`{name}` is no token"))?;
                Ok::<_, String>((token, 0.0))
            };
            let first = ["bos_token", "pad_token", "eos_token", "unk_token"];
            let mut pieces = first.into_iter().map(named).collect::<Result<Vec<_>, _>>()?;
            pieces.extend(scored(model).into_iter().skip(3));
            pieces.push(named("mask_token")?);
            let prefix = is_set("add_prefix_space", true, false);
            let parts = words(if prefix { "always" } else { "never" }, model);
            (unigram(&pieces, 3, false)?, parts)
        }
        Class::Own => own(model, config, is_set("legacy", true, false))?,
    };
    Ok(format!(
        r#"{{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {normalizer}, "pre_tokenizer": {pre_tokenizer}, "post_processor": null,
        "decoder": {decoder}, "model": {model}}}"#
    ))
}

/// A model that is read as its own settings say. `legacy` puts a space before each part of a text
/// between special tokens, not before the first alone.
fn own(
    model: &Model<'_>,
    config: &Map<String, Json>,
    legacy: bool,
) -> Result<(String, [Json; 3]), String> {
    let names = renamed(model, config);
    let user_defined = |names: &[String]| -> Vec<String> {
        let pieces = model.pieces.iter().zip(names);
        pieces.filter(|(p, _)| p.role == Role::UserDefined).map(|(_, name)| name.clone()).collect()
    };
    let (text, mut whole) = match model.algorithm {
        Algorithm::Bpe => {
            let whole = user_defined(&names);
            let settings = Bpe {
                merges: ranked_merges(model, &names)?,
                unk: Some(model.unk_piece.to_owned()),
                byte_fallback: model.byte_fallback,
                ignore_merges: !whole.is_empty(),
            };
            let names = names.iter().enumerate().map(|(id, name)| (&**name, id)).collect();
            (bpe(names, settings)?, whole)
        }
        Algorithm::Unigram => {
            let names: Vec<String> =
                model.pieces.iter().map(|piece| piece.text.to_owned()).collect();
            let text = unigram(&scored(model), model.unk_id, model.byte_fallback)?;
            (text, user_defined(&names))
        }
    };
    let mut normalizers: Vec<Json> = charsmap(model).into_iter().collect();
    if model.remove_extra_whitespaces {
        normalizers.push(replace(r"\A +| +\z", ""));
        normalizers.push(replace(" {2,}", " "));
    }
    if model.escape_whitespaces {
        normalizers.push(underlines());
    }
    let mut pre_tokenizers = Vec::new();
    let mut decoders = vec![spaces()];
    if model.byte_fallback {
        decoders.push(json!({"type": "ByteFallback"}));
    }
    if model.add_dummy_prefix {
        if legacy {
            // The step that puts a space in front leaves out texts that have one.
            normalizers.push(replace(r"\A▁", "▁▁"));
        }
        pre_tokenizers.push(metaspace(if legacy { "always" } else { "first" }, false));
        decoders.extend([fuse(), strip()]);
    } else if model.byte_fallback {
        decoders.push(fuse());
    }
    if !whole.is_empty() {
        whole.sort_by_key(|piece| Reverse(piece.chars().count()));
        let pieces: Vec<_> = whole.iter().map(|piece| regex_syntax::escape(piece)).collect();
        pre_tokenizers.push(json!({
            "type": "Split", "pattern": {"Regex": pieces.join("|")}, "behavior": "Isolated",
            "invert": false
        }));
    }
    let pre_tokenizer = match pre_tokenizers.is_empty() {
        true => Json::Null,
        false => sequence("pretokenizers", pre_tokenizers),
    };
    let normalizer = sequence("normalizers", normalizers);
    Ok((text, [normalizer, pre_tokenizer, sequence("decoders", decoders)]))
}

/// The pieces' names, of which `added_tokens_decoder` changes some: placeholders of the model.
fn renamed(model: &Model<'_>, config: &Map<String, Json>) -> Vec<String> {
    let decoder = config.get("added_tokens_decoder").and_then(Json::as_object);
    let names: HashMap<usize, &str> = decoder
        .into_iter()
        .flatten()
        .filter_map(|(id, token)| Some((id.parse().ok()?, token.get("content")?.as_str()?)))
        .collect();
    let kept: HashSet<&str> = model
        .pieces
        .iter()
        .enumerate()
        .filter(|(id, _)| !names.contains_key(id))
        .map(|(_, piece)| piece.text)
        .collect();
    let pieces = model.pieces.iter().enumerate();
    pieces
        .map(|(id, piece)| match names.get(&id) {
            Some(name) if !kept.contains(name) => (*name).to_owned(),
            _ => piece.text.to_owned(),
        })
        .collect()
}

struct Bpe {
    merges: Vec<[String; 2]>,
    unk: Option<String>,
    byte_fallback: bool,
    ignore_merges: bool,
}

impl Bpe {
    /// Merges in the order of the tokens' ids, without a token for what is unknown.
    fn in_order(model: &Model<'_>) -> Result<Bpe, String> {
        let ids = vocabulary(model);
        let mut work = Work::default();
        let mut merges = Vec::new();
        for piece in &model.pieces {
            let is_cut = |left: &[u8], right: &[u8]| is_known(&ids, left) && is_known(&ids, right);
            let cuts = work.cuts(piece.text.as_bytes(), is_cut)?;
            merges.extend(cuts.into_iter().map(|end| pair(piece.text, end)));
        }
        Ok(Bpe { merges, unk: None, byte_fallback: true, ignore_merges: false })
    }
}

fn is_known(ids: &HashMap<&str, usize>, token: &[u8]) -> bool {
    str::from_utf8(token).is_ok_and(|token| ids.contains_key(token))
}

fn pair(token: &str, end: usize) -> [String; 2] {
    let (left, right) = token.split_at(end);
    [left.to_owned(), right.to_owned()]
}

/// Merges of normal pieces, the best scores first.
fn ranked_merges(model: &Model<'_>, names: &[String]) -> Result<Vec<[String; 2]>, String> {
    let is_normal = |id: usize| model.pieces[id].role == Role::Normal;
    let ids: HashMap<&str, usize> =
        names.iter().enumerate().filter(|(id, _)| is_normal(*id)).map(|(i, n)| (&**n, i)).collect();
    let mut order: Vec<(&str, usize)> = ids.iter().map(|(name, id)| (*name, *id)).collect();
    order.sort_by(|(_, a), (_, b)| {
        let score = |id: usize| model.pieces[id].score;
        score(*b).partial_cmp(&score(*a)).unwrap_or(Ordering::Equal).then(a.cmp(b))
    });
    let mut work = Work::default();
    let mut merges = Vec::new();
    for (name, _) in order {
        let is_cut = |left: &[u8], right: &[u8]| is_known(&ids, left) && is_known(&ids, right);
        let cuts = work.cuts(name.as_bytes(), is_cut)?;
        merges.extend(cuts.into_iter().map(|end| pair(name, end)));
    }
    Ok(merges)
}

fn vocabulary<'a>(model: &Model<'a>) -> HashMap<&'a str, usize> {
    model.pieces.iter().enumerate().map(|(id, piece)| (piece.text, id)).collect()
}

fn scored(model: &Model<'_>) -> Vec<(String, f32)> {
    model.pieces.iter().map(|piece| (piece.text.to_owned(), piece.score)).collect()
}

fn bpe(vocabulary: HashMap<&str, usize>, settings: Bpe) -> Result<String, String> {
    let text = |error: serde_json::Error| error.to_string();
    Ok(format!(
        r#"{{"type": "BPE", "dropout": null, "unk_token": {}, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": {}, "ignore_merges": {},
        "vocab": {}, "merges": {}}}"#,
        Json::from(settings.unk),
        settings.byte_fallback,
        settings.ignore_merges,
        serde_json::to_string(&vocabulary).map_err(text)?,
        serde_json::to_string(&settings.merges).map_err(text)?,
    ))
}

fn unigram(pieces: &[(String, f32)], unk: i64, byte_fallback: bool) -> Result<String, String> {
    let unk = usize::try_from(unk).ok().filter(|unk| *unk < pieces.len());
    let unk = unk
        .ok_or_else(|| format!("the unknown token's id is none of its {} pieces", pieces.len()))?;
    let pieces: Vec<(&str, f64)> =
        pieces.iter().map(|(piece, score)| (&**piece, f64::from(*score))).collect();
    let pieces = serde_json::to_string(&pieces).map_err(|error| error.to_string())?;
    Ok(format!(
        r#"{{"type": "Unigram", "unk_id": {unk}, "byte_fallback": {byte_fallback},
        "vocab": {pieces}}}"#
    ))
}

/// The steps of models that cut text at white space, with a space before each word.
fn words(scheme: &str, model: &Model<'_>) -> [Json; 3] {
    let steps = vec![json!({"type": "WhitespaceSplit"}), metaspace(scheme, true)];
    let normalizer = charsmap(model).unwrap_or(Json::Null);
    [normalizer, sequence("pretokenizers", steps), metaspace(scheme, true)]
}

/// The content of a special token of the config.
fn token(config: &Map<String, Json>, name: &str) -> Option<String> {
    let value = config.get(name)?;
    value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_owned)
}

fn charsmap(model: &Model<'_>) -> Option<Json> {
    let is_there = !model.charsmap.is_empty();
    is_there.then(|| {
        let table = STANDARD.encode(model.charsmap);
        json!({"type": "Precompiled", "precompiled_charsmap": table})
    })
}

fn metaspace(scheme: &str, split: bool) -> Json {
    json!({"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split})
}

fn replace(regex: &str, content: &str) -> Json {
    json!({"type": "Replace", "pattern": {"Regex": regex}, "content": content})
}

fn underlines() -> Json {
    json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
}

fn spaces() -> Json {
    json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "})
}

fn fuse() -> Json {
    json!({"type": "Fuse"})
}

fn strip() -> Json {
    json!({"type": "Strip", "content": " ", "start": 1, "stop": 0})
}

fn sequence(of: &str, steps: Vec<Json>) -> Json {
    json!({"type": "Sequence", of: steps})
}
