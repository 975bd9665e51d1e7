//! The tokenizer's pipeline with control tokens under our control.
//!
//! A rendered chat that holds marks is cut at the template's own control
//! tokens; what lies between is tokenized as text, in which no control token
//! is recognised. The model and its vocabulary are shared with the tokenizer.

use crate::marks::ControlTokens;
use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value as Json;
use std::ops::Range;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::tokenizer::{Model, PreTokenizer};
use tokenizers::{AddedToken, AddedVocabulary, OffsetType};

pub(crate) struct PlainPipeline {
    /// Finds every added token, to see which of them the template wrote.
    search: AhoCorasick,
    /// The tokens that `search` finds, by the index of its pattern.
    found: Vec<(u32, AddedToken)>,
    /// Control tokens; the others are left to the vocabulary below.
    is_control: Vec<bool>,
    /// Recognises the added tokens that are no control tokens.
    text_vocabulary: AddedVocabulary,
    /// As in tokenizer.json, except that nothing is put in front: for text that is not the first.
    inner_pre_tokenizer: Option<PreTokenizerWrapper>,
}

impl PlainPipeline {
    pub fn new(
        tokenizer: &tokenizers::Tokenizer,
        control: &ControlTokens,
    ) -> Result<PlainPipeline, String> {
        let vocabulary = tokenizer.get_added_vocabulary();
        let found: Vec<(u32, AddedToken)> = vocabulary
            .get_added_tokens_decoder()
            .iter()
            .map(|(id, token)| (*id, token.clone()))
            .filter(|(_, token)| !token.content.is_empty() && (!token.normalized || token.special))
            .collect();
        let is_control = found
            .iter()
            .map(|(_, token)| control.tokens().binary_search(&token.content).is_ok())
            .collect();
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(found.iter().map(|(_, token)| &token.content))
            .map_err(|err| err.to_string())?;
        let mut text_vocabulary = vocabulary.clone();
        let as_special = vocabulary
            .get_added_tokens_decoder()
            .values()
            .filter(|token| control.tokens().binary_search(&token.content).is_ok())
            .map(|token| token.clone().special(true));
        text_vocabulary
            .add_tokens(
                as_special.collect::<Vec<_>>(),
                tokenizer.get_model(),
                tokenizer.get_normalizer(),
            )
            .map_err(|err| err.to_string())?;
        // "Encode special tokens" is the crate's name for not recognising them.
        text_vocabulary.set_encode_special_tokens(true);
        let inner_pre_tokenizer = match tokenizer.get_pre_tokenizer() {
            None => None,
            Some(pre_tokenizer) => {
                let mut json =
                    serde_json::to_value(pre_tokenizer).map_err(|err| err.to_string())?;
                prepend_nothing(&mut json);
                Some(serde_json::from_value(json).map_err(|err| err.to_string())?)
            }
        };
        Ok(PlainPipeline { search, found, is_control, text_vocabulary, inner_pre_tokenizer })
    }

    /// Ids of `rendered`: tokens that hold no `mark` are tokens, all else is text without its
    /// marks.
    pub fn encode(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        rendered: &str,
        mark: Option<char>,
    ) -> Result<Vec<u32>, String> {
        let mut ids = Vec::new();
        let mut done = 0;
        let text_ids = |from: usize, text: &str| {
            let pre_tokenizer = match from {
                0 => tokenizer.get_pre_tokenizer(),
                _ => self.inner_pre_tokenizer.as_ref(),
            };
            let text = mark.map_or_else(|| text.to_owned(), |mark| text.replace(mark, ""));
            self.encode_text(tokenizer, &text, pre_tokenizer)
        };
        for (found, id, token) in self.control_tokens(rendered) {
            if found.start < done {
                continue;
            }
            let before = &rendered[done..found.start];
            let text = if token.lstrip { before.trim_end() } else { before };
            ids.extend(text_ids(done, text)?);
            ids.push(id);
            done = found.end;
            if token.rstrip {
                let after = &rendered[done..];
                done += after.len() - after.trim_start().len();
            }
        }
        ids.extend(text_ids(done, &rendered[done..])?);
        Ok(ids)
    }

    /// The control tokens that stand in `text` as they are.
    pub fn control_tokens<'t>(
        &'t self,
        text: &'t str,
    ) -> impl Iterator<Item = (Range<usize>, u32, &'t AddedToken)> {
        self.search.find_iter(text).filter_map(move |found| {
            let index = found.pattern().as_usize();
            let (id, token) = &self.found[index];
            let (before, after) = (&text[..found.start()], &text[found.end()..]);
            let beside_word = before.ends_with(is_word) || after.starts_with(is_word);
            let is_token = self.is_control[index] && !(token.single_word && beside_word);
            is_token.then(|| (found.range(), *id, token))
        })
    }

    /// Returns true when normalization can turn text without a control token into one.
    pub fn is_ambiguous(&self, tokenizer: &tokenizers::Tokenizer) -> bool {
        let mut tokens = self.found.iter().zip(&self.is_control);
        let normalized = tokens.any(|((_, token), is_control)| *is_control && token.normalized);
        normalized && tokenizer.get_normalizer().is_some()
    }

    fn encode_text(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        text: &str,
        pre_tokenizer: Option<&PreTokenizerWrapper>,
    ) -> Result<Vec<u32>, String> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let (vocabulary, normalizer) = (&self.text_vocabulary, tokenizer.get_normalizer());
        let mut pieces = vocabulary.extract_and_normalize(normalizer, text);
        let failed = |err: tokenizers::Error| err.to_string();
        if let Some(pre_tokenizer) = pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(failed)?;
        }
        let model = tokenizer.get_model();
        pieces.tokenize(|text| model.tokenize(text.get())).map_err(failed)?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None);
        Ok(encoding.map_err(failed)?.get_ids().to_vec())
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Metaspace's `prepend_scheme: first` looks at the offset in the whole text, which a piece does
/// not know.
fn prepend_nothing(json: &mut Json) {
    match json {
        Json::Object(map) => {
            if map.get("prepend_scheme").is_some_and(|scheme| scheme == "first") {
                map.insert("prepend_scheme".into(), "never".into());
            }
            map.values_mut().for_each(prepend_nothing);
        }
        Json::Array(items) => items.iter_mut().for_each(prepend_nothing),
        _ => {}
    }
}
