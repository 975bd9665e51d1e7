//! tokenizer.json and the configs beside it, put together as transformers does.

use super::files::{SpecialTokens, TokenFlags, TokenSpec};
use super::marks::ControlTokens;
use super::pipeline::PlainPipeline;
use super::tokenizer::Inner;
use std::collections::{BTreeSet, HashMap};
use tokenizers::AddedToken;

pub(super) fn build(
    bytes: &[u8],
    specials: &SpecialTokens,
    mut eos_ids: BTreeSet<u32>,
) -> Result<Inner, String> {
    let mut tokenizer = tokenizers::Tokenizer::from_bytes(bytes).map_err(|err| err.to_string())?;
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|err| err.to_string())?;
    let added = tokens_to_add(&tokenizer, specials);
    if !added.is_empty() {
        tokenizer.add_tokens(added).map_err(|err| err.to_string())?;
    }
    let named: Vec<_> =
        specials.named.iter().map(|(name, spec)| (*name, spec.content.clone())).collect();
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
    Ok(Inner { tokenizer, plain, control, named, eos_ids, special_ids })
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
