//! tokenizer.json and the configs beside it, put together as transformers does.

use super::files::{SpecialTokens, TokenFlags, TokenSpec};
use super::marks::ControlTokens;
use super::pipeline::PlainPipeline;
use super::tokenizer::Inner;
use std::collections::BTreeSet;
use tokenizers::AddedToken;

pub(super) fn build(
    bytes: &[u8],
    specials: &SpecialTokens,
    mut eos_ids: BTreeSet<u32>,
) -> Result<Inner, String> {
    let mut tokenizer = tokenizers::Tokenizer::from_bytes(bytes).map_err(|err| err.to_string())?;
    tokenizer.with_padding(None);
    tokenizer
        .with_truncation(None)
        .map_err(|err| err.to_string())?;
    let added = tokens_to_add(&tokenizer, specials);
    if !added.is_empty() {
        tokenizer.add_tokens(added).map_err(|err| err.to_string())?;
    }
    let named: Vec<_> = specials
        .named
        .iter()
        .map(|(name, spec)| (*name, spec.content.clone()))
        .collect();
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
    Ok(Inner {
        tokenizer,
        plain,
        control,
        named,
        eos_ids,
        special_ids,
    })
}

/// Tokens that the configs add to those of tokenizer.json, or whose flags they change.
fn tokens_to_add(tokenizer: &tokenizers::Tokenizer, specials: &SpecialTokens) -> Vec<AddedToken> {
    let present = tokenizer.get_added_tokens_decoder();
    let mut known: Vec<AddedToken> = present.into_values().collect();
    let mut changed = Vec::new();
    let mut put = |token: AddedToken| {
        let old = known.iter().position(|t| t.content == token.content);
        if old.is_none_or(|at| known[at] != token) {
            match old {
                Some(at) => known[at] = token.clone(),
                None => known.push(token.clone()),
            }
            changed.push(token);
        }
    };
    for spec in &specials.added {
        if let Some(flags) = spec.flags {
            put(added_token(&spec.content, flags));
        }
    }
    let flags_of = |spec: &TokenSpec| {
        let listed = specials
            .added
            .iter()
            .find(|added| added.content == spec.content);
        spec.flags.or(listed.and_then(|added| added.flags))
    };
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
            TokenFlags {
                special: true,
                ..flags_of(spec).unwrap_or(plain)
            },
        ));
    }
    for spec in &specials.extra {
        put(added_token(
            &spec.content,
            TokenFlags {
                special: true,
                ..spec.flags.unwrap_or(plain)
            },
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
