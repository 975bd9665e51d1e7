//! Special tokens and the end of a text, from the configs beside a tokenizer.json.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::TextError;
use crate::files::{Files, invalid, read_object};

/// Names of the special tokens in tokenizer_config.json, in transformers' order.
pub(crate) const SPECIAL_NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// An added token as the configs describe it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TokenSpec {
    pub content: String,
    /// Given as an object, or found in `added_tokens_decoder`; a bare string has no flags.
    pub flags: Option<TokenFlags>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TokenFlags {
    pub single_word: bool,
    pub lstrip: bool,
    pub rstrip: bool,
    pub normalized: bool,
    pub special: bool,
}

/// The special tokens of tokenizer_config.json and special_tokens_map.json.
#[derive(Debug, Default)]
pub(crate) struct SpecialTokens {
    /// `bos_token`, `eos_token`, …; also what the chat template may read.
    pub named: Vec<(&'static str, TokenSpec)>,
    pub extra: Vec<TokenSpec>,
    /// `added_tokens_decoder`, in the order of the ids.
    pub added: Vec<TokenSpec>,
}

/// Returns the ids at which generation stops, apart from the tokenizer's own EOS token.
///
/// mlx-lm takes generation_config.json's `eos_token_id` if it has one (an id or a list, and 0
/// counts as none), else config.json's. Here it is both: an id that either file calls an end of
/// sequence is one.
///
/// # Errors
/// If a file is no JSON object, or an id is no id.
pub(crate) fn eos_ids(dir: &dyn Files) -> Result<BTreeSet<u32>, TextError> {
    let mut ids = BTreeSet::new();
    for file in ["generation_config.json", "config.json"] {
        let path = dir.path(file);
        let Some(config) = read_object(dir, file)? else {
            continue;
        };
        let nested = config.get("text_config").and_then(|text| text.get("eos_token_id"));
        let value = config.get("eos_token_id").filter(|v| !v.is_null()).or(nested);
        let id = |value: &Value| {
            let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
            id.ok_or_else(|| {
                invalid(
                    &path,
                    format!("`eos_token_id` is {value}, expected an id or a list of ids"),
                )
            })
        };
        match value {
            None | Some(Value::Null) => {}
            Some(Value::Array(list)) => {
                for value in list {
                    ids.insert(id(value)?);
                }
            }
            Some(value) => {
                ids.insert(id(value)?);
            }
        }
    }
    Ok(ids)
}

/// Special tokens as transformers 5 gathers them for a checkpoint with a tokenizer.json.
///
/// `add_bos_token` and `add_eos_token` are not read: next to a tokenizer.json transformers ignores
/// them, and the post-processor in that file decides.
///
/// # Errors
/// If a file is no JSON object, or an entry is no token.
pub(crate) fn special_tokens(
    dir: &dyn Files,
    config: &Map<String, Value>,
) -> Result<SpecialTokens, TextError> {
    let path = dir.path("tokenizer_config.json");
    let mut tokens = SpecialTokens::default();
    let mut merged = config.clone();
    if let Some(decoder) = config.get("added_tokens_decoder") {
        let decoder = decoder
            .as_object()
            .ok_or_else(|| invalid(&path, "`added_tokens_decoder` is no object"))?;
        let mut added = Vec::new();
        for (id, token) in decoder {
            let id: u32 = id
                .parse()
                .map_err(|_| invalid(&path, format!("`added_tokens_decoder` has the id `{id}`")))?;
            let spec = token.as_object().and_then(|_| spec(token));
            let spec = spec.ok_or_else(|| {
                invalid(&path, format!("`added_tokens_decoder.{id}` is no token"))
            })?;
            added.push((id, spec));
        }
        added.sort_by_key(|(id, _)| *id);
        tokens.added = added.into_iter().map(|(_, spec)| spec).collect();
    } else if let Some(map) = read_object(dir, "special_tokens_map.json")? {
        // Only checkpoints from before `added_tokens_decoder` are read this way.
        merged.extend(map);
    }
    for name in SPECIAL_NAMES {
        match merged.get(name) {
            None | Some(Value::Null) => {}
            Some(value) => {
                let spec = spec(value).ok_or_else(|| {
                    invalid(&path, format!("`{name}` is {value}, expected a token"))
                })?;
                tokens.named.push((name, spec));
            }
        }
    }
    let extra = merged.get("extra_special_tokens").filter(|v| !v.is_null());
    match extra.or_else(|| merged.get("additional_special_tokens")) {
        Some(Value::Array(list)) => tokens.extra = list.iter().filter_map(spec).collect(),
        // Named tokens of one model, such as `image_token`.
        Some(Value::Object(map)) => tokens.extra = map.values().filter_map(spec).collect(),
        _ => {}
    }
    Ok(tokens)
}

fn spec(value: &Value) -> Option<TokenSpec> {
    if let Value::String(content) = value {
        return Some(TokenSpec { content: content.clone(), flags: None });
    }
    let content = value.get("content")?.as_str()?.to_owned();
    let flag = |name| value.get(name).and_then(Value::as_bool);
    let special = flag("special").unwrap_or(false);
    let flags = TokenFlags {
        single_word: flag("single_word").unwrap_or(false),
        lstrip: flag("lstrip").unwrap_or(false),
        rstrip: flag("rstrip").unwrap_or(false),
        normalized: flag("normalized").unwrap_or(!special),
        special,
    };
    Some(TokenSpec { content, flags: Some(flags) })
}
