//! tokenizer.json and the configs beside it, put together as transformers does.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value as Json;
use serde_json::value::RawValue;
use tokenizers::{AddedToken, ModelWrapper};

use crate::inner::Inner;
use crate::marks::ControlTokens;
use crate::normalizer::{Growth, TooMuch};
use crate::pairs;
use crate::pipeline::PlainPipeline;
use crate::source::Source;
use crate::special_tokens::{SpecialTokens, TokenFlags, TokenSpec};

/// Added tokens of one tokenizer, at most: each takes some 2 KiB in what finds them in a text.
/// Codes of sounds and pictures are up to 2^16 of them.
pub const MAX_ADDED_TOKENS: usize = 1 << 17;
/// Bytes of all added tokens once they are normalized.
const MAX_NORMALIZED_TOKENS: usize = 16 << 20;

/// # Errors
/// Bytes that are no tokenizer; a normalizer that multiplies its added tokens.
pub(crate) fn build(
    source: &Source,
    specials: &SpecialTokens,
    mut eos_ids: BTreeSet<u32>,
) -> Result<Inner, String> {
    let bytes = &*source.bytes;
    let file: HashMap<String, &RawValue> =
        serde_json::from_slice(bytes).map_err(|err| err.to_string())?;
    let growth = growth(&file, specials)?;
    let mut tokenizer = match pairs::tokenizer(&file) {
        Some(tokenizer) => tokenizer,
        None => tokenizers::Tokenizer::from_bytes(bytes).map_err(|err| err.to_string())?,
    };
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|err| err.to_string())?;
    let added = tokens_to_add(&tokenizer, specials);
    if !added.is_empty() {
        tokenizer.add_tokens(added).map_err(|err| err.to_string())?;
    }
    let named: Vec<_> =
        specials.named.iter().map(|(name, spec)| (*name, spec.content.clone())).collect();
    if let Some(around) = source.around {
        let around = around.processor(&named, |token| tokenizer.token_to_id(token))?;
        tokenizer.with_post_processor(Some(around));
    }
    let kind = kind(source, tokenizer.get_model());
    let eos = named.iter().find(|(name, _)| *name == "eos_token");
    eos_ids.extend(eos.and_then(|(_, token)| tokenizer.token_to_id(token)));
    let vocabulary = tokenizer.get_added_vocabulary();
    let special_ids = vocabulary
        .get_added_tokens_decoder()
        .iter()
        .filter(|(_, token)| token.special)
        .map(|(id, _)| *id)
        .collect();
    let control = ControlTokens::new(vocabulary)?;
    let plain = PlainPipeline::new(&tokenizer, &control)?;
    Ok(Inner { tokenizer, plain, control, growth, named, eos_ids, special_ids, kind })
}

/// The kind of a tokenizer and the file that it comes from.
fn kind(source: &Source, model: &ModelWrapper) -> String {
    let kind = match model {
        _ if !source.kind.is_empty() => source.kind,
        ModelWrapper::BPE(_) => "BPE",
        ModelWrapper::WordPiece(_) => "WordPiece",
        ModelWrapper::WordLevel(_) => "words",
        ModelWrapper::Unigram(_) => "unigram",
    };
    format!("{kind} (`{}`)", source.file)
}

/// The normalizer's steps, checked against the added tokens, which the library normalizes as it
/// reads them.
fn growth(file: &HashMap<String, &RawValue>, specials: &SpecialTokens) -> Result<Growth, String> {
    let value = |name: &str| match file.get(name) {
        Some(raw) => serde_json::from_str(raw.get()).map_err(|err| err.to_string()),
        None => Ok(Json::Null),
    };
    let growth = Growth::new(value("normalizer")?)?;
    let in_file = file.get("added_tokens").map_or("[]", |raw| raw.get());
    // What is no list is for the library to tell.
    let in_file: Vec<&RawValue> = serde_json::from_str(in_file).unwrap_or_default();
    let count = in_file.len() + specials.added.len() + specials.extra.len();
    if count > MAX_ADDED_TOKENS {
        return Err(format!("has {count} added tokens, at most {MAX_ADDED_TOKENS} are taken"));
    }
    let in_file: Vec<String> = in_file.into_iter().filter_map(content).collect();
    let named = specials.named.iter().map(|(_, token)| token);
    let in_config = named.chain(&specials.extra).chain(&specials.added);
    let mut left = MAX_NORMALIZED_TOKENS;
    let in_file = in_file.iter().map(String::as_str);
    for content in in_file.chain(in_config.map(|token| token.content.as_str())) {
        let made = growth.check(content, left).map_err(|TooMuch { step, .. }| {
            format!(
                "its normalizer `{step}` makes more than {MAX_NORMALIZED_TOKENS} bytes of the \
                 added tokens up to `{}`",
                content.chars().take(40).collect::<String>()
            )
        })?;
        left = left.saturating_sub(made);
    }
    Ok(growth)
}

/// The text of an added token.
fn content(token: &RawValue) -> Option<String> {
    let token: HashMap<String, Json> = serde_json::from_str(token.get()).ok()?;
    token.get("content")?.as_str().map(str::to_owned)
}

/// Tokens that the configs add to those of tokenizer.json, or whose flags they change.
fn tokens_to_add(tokenizer: &tokenizers::Tokenizer, specials: &SpecialTokens) -> Vec<AddedToken> {
    let present = tokenizer.get_added_tokens_decoder();
    let mut known: HashMap<String, AddedToken> =
        present.into_values().map(|token| (token.content.clone(), token)).collect();
    let in_config: HashMap<&str, TokenFlags> = specials
        .added
        .iter()
        .filter_map(|spec| Some((spec.content.as_str(), spec.flags?)))
        .collect();
    // A config without a list of added tokens leaves their flags to tokenizer.json.
    let in_file: HashMap<String, TokenFlags> = match in_config.is_empty() {
        true => known.iter().map(|(k, t)| (k.clone(), flags(t))).collect(),
        false => HashMap::new(),
    };
    let flags_of = |spec: &TokenSpec| {
        let content = spec.content.as_str();
        let listed = in_config.get(content).or_else(|| in_file.get(content));
        spec.flags.or(listed.copied())
    };
    let mut changed = Vec::new();
    let mut put = |token: AddedToken| {
        let old = known.insert(token.content.clone(), token.clone());
        if old.as_ref() != Some(&token) {
            changed.push(token);
        }
    };
    for spec in &specials.added {
        if let Some(flags) = spec.flags {
            put(added_token(&spec.content, flags));
        }
    }
    let plain = TokenFlags {
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special: true,
    };
    for (_, spec) in &specials.named {
        put(added_token(
            &spec.content,
            TokenFlags { special: true, ..flags_of(spec).unwrap_or(plain) },
        ));
    }
    for spec in &specials.extra {
        put(added_token(
            &spec.content,
            TokenFlags { special: true, ..spec.flags.unwrap_or(plain) },
        ));
    }
    changed
}

fn added_token(content: &str, flags: TokenFlags) -> AddedToken {
    AddedToken::from(content, flags.special)
        .single_word(flags.single_word)
        .lstrip(flags.lstrip)
        .rstrip(flags.rstrip)
        .normalized(flags.normalized)
}

fn flags(token: &AddedToken) -> TokenFlags {
    TokenFlags {
        single_word: token.single_word,
        lstrip: token.lstrip,
        rstrip: token.rstrip,
        normalized: token.normalized,
        special: token.special,
    }
}

/// The fault of a file on which the library panicked, as far as it is known.
pub(crate) fn why_it_failed(bytes: &[u8]) -> String {
    too_long_merge(bytes).unwrap_or_else(|| "the tokenizer library failed on it".to_owned())
}

/// Names the first merge whose token is longer than any of the vocabulary.
fn too_long_merge(bytes: &[u8]) -> Option<String> {
    let file: Json = serde_json::from_slice(bytes).ok()?;
    let model = &file["model"];
    let longest = model["vocab"].as_object()?.keys().map(String::len).max()?;
    let prefix = model["continuing_subword_prefix"].as_str().map_or(0, str::len);
    let pair = |merge: &Json| -> Option<[String; 2]> {
        match merge {
            Json::String(pair) => {
                pair.split_once(' ').map(|(left, right)| [left.to_owned(), right.to_owned()])
            }
            pair => serde_json::from_value(pair.clone()).ok(),
        }
    };
    let merges = model["merges"].as_array()?.iter().enumerate();
    let (at, [left, right]) =
        merges.filter_map(|(at, merge)| Some((at, pair(merge)?))).find(|(_, [left, right])| {
            right.len().checked_sub(prefix).is_none_or(|right| left.len() + right > longest)
        })?;
    Some(format!(
        "merge {at} of `{left}` and `{right}` makes a token that is not in the vocabulary"
    ))
}
