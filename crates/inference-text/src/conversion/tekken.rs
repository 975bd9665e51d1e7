//! Mistral's `tekken.json`: ranks of tokens, and special tokens in front of them.

use std::collections::{BTreeMap, HashMap};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::tiktoken::{Cut, MAX_TOKENS, Ranks};
use crate::load::MAX_ADDED_TOKENS;

/// The special tokens of files that list none.
const FIRST: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

type Object<'a> = HashMap<String, &'a RawValue>;

/// The `tokenizer.json` of a `tekken.json`, and its special tokens.
///
/// # Errors
/// The field that is missing or no such thing; what [`Ranks`] refuses.
pub(super) fn tokenizer(bytes: &[u8]) -> Result<(String, Vec<String>), String> {
    let file: Object<'_> = parse(bytes)?;
    let config: Json = parse(raw(&file, "config")?.get().as_bytes())?;
    let pattern = config["pattern"].as_str().ok_or("`config.pattern` is no text")?.to_owned();
    let count = |name: &str, most: usize| match &config[name] {
        Json::Null => Ok(None),
        value => {
            let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
            let count = count.filter(|count| *count <= most);
            count.map(Some).ok_or_else(|| {
                format!("`config.{name}` is {value}, expected a number of at most {most}")
            })
        }
    };
    let mut special = special(&file)?;
    let n_special = count("default_num_special_tokens", MAX_ADDED_TOKENS)?;
    let n_special = n_special.unwrap_or(special.len());
    if special.len() > n_special {
        return Err(format!(
            "has {} special tokens, and `config.default_num_special_tokens` is {n_special}",
            special.len()
        ));
    }
    special.extend((special.len()..n_special).map(|id| format!("<SPECIAL_{id}>")));
    let listed: Vec<&RawValue> = parse(raw(&file, "vocab")?.get().as_bytes())?;
    let n_tokens = match count("default_vocab_size", MAX_TOKENS)? {
        None => listed.len(),
        Some(size) => size.checked_sub(n_special).filter(|n| *n <= listed.len()).ok_or_else(|| {
            format!(
                "`config.default_vocab_size` is {size}, of {} tokens and {n_special} special ones",
                listed.len()
            )
        })?,
    };
    if n_tokens > MAX_TOKENS {
        return Err(format!("has {n_tokens} tokens, at most {MAX_TOKENS} are taken"));
    }
    let tokens = listed.into_iter().take(n_tokens).enumerate();
    let ranks =
        Ranks::new(tokens.map(|(at, token)| token_of(at, token)).collect::<Result<_, _>>()?)?;
    let cut = Cut { pattern, is_composed: false };
    let numbered: Vec<_> = special.iter().cloned().enumerate().collect();
    Ok((ranks.tokenizer(&cut, n_special, &numbered)?, special))
}

fn parse<'a, T: serde::Deserialize<'a>>(json: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

fn raw<'a>(file: &Object<'a>, name: &str) -> Result<&'a RawValue, String> {
    file.get(name).copied().ok_or_else(|| format!("`{name}` is missing"))
}

/// The bytes of a token, whose rank is its place.
fn token_of(at: usize, token: &RawValue) -> Result<Vec<u8>, String> {
    let token: Json =
        parse(token.get().as_bytes()).map_err(|why| format!("`vocab[{at}]`: {why}"))?;
    if let Some(rank) = token.get("rank").filter(|rank| rank.as_u64() != Some(at as u64)) {
        return Err(format!("`vocab[{at}].rank` is {rank}"));
    }
    let bytes = token["token_bytes"].as_str().and_then(|bytes| STANDARD.decode(bytes).ok());
    bytes.ok_or_else(|| format!("`vocab[{at}].token_bytes` is no base64"))
}

/// The special tokens in the order of their ranks.
fn special(file: &Object<'_>) -> Result<Vec<String>, String> {
    let listed: Option<Vec<&RawValue>> = match file.get("special_tokens") {
        None => None,
        Some(list) => parse(list.get().as_bytes())?,
    };
    let Some(listed) = listed else {
        return Ok(FIRST.map(str::to_owned).into());
    };
    if listed.len() > MAX_ADDED_TOKENS {
        let count = listed.len();
        return Err(format!("has {count} special tokens, at most {MAX_ADDED_TOKENS} are taken"));
    }
    let mut by_rank = BTreeMap::new();
    for (at, token) in listed.into_iter().enumerate() {
        let token: Json = parse(token.get().as_bytes())?;
        let (rank, text) = (token["rank"].as_u64(), token["token_str"].as_str());
        let (Some(rank), Some(text)) = (rank, text) else {
            return Err(format!("`special_tokens[{at}]` has no `rank` or no `token_str`"));
        };
        if text.is_empty() {
            return Err(format!("`special_tokens[{at}].token_str` is empty"));
        }
        if by_rank.insert(rank, text.to_owned()).is_some() {
            return Err(format!("`special_tokens[{at}].rank` is {rank}, which another one has"));
        }
    }
    match by_rank.keys().zip(0..).find(|(rank, at)| **rank != *at) {
        Some((rank, at)) => Err(format!("a special token has the rank {rank}, and none has {at}")),
        None => Ok(by_rank.into_values().collect()),
    }
}
