//! The tokenizer's pipeline with control tokens under our control.
//!
//! A rendered chat that holds marks is cut at the template's own control
//! tokens; what lies between is tokenized as text, in which no control token
//! is recognised. The model and its vocabulary are shared with the tokenizer.

use super::marks::ControlTokens;
use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value as Json;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::tokenizer::{Model, PreTokenizer};
use tokenizers::{AddedToken, AddedVocabulary, OffsetType};

pub(super) struct PlainPipeline {
    /// Finds every added token, to see which of them the template wrote.
    search: AhoCorasick,
    /// What `search` found, by the index of its pattern.
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

    /// Ids of `rendered`: tokens that hold no `mark` are tokens, all else is text without its marks.
    pub fn encode(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        rendered: &str,
        mark: char,
    ) -> Result<Vec<u32>, String> {
        let mut ids = Vec::new();
        let mut done = 0;
        for found in self.search.find_iter(rendered) {
            let index = found.pattern().as_usize();
            let (id, token) = &self.found[index];
            let (before, after) = (&rendered[..found.start()], &rendered[found.end()..]);
            let inside_word = before.ends_with(is_word) || after.starts_with(is_word);
            if !self.is_control[index] || (token.single_word && inside_word) || found.start() < done
            {
                continue;
            }
            let before = &rendered[done..found.start()];
            let text = if token.lstrip { before.trim_end() } else { before };
            self.encode_text(tokenizer, text, mark, done == 0, &mut ids)?;
            ids.push(*id);
            done = found.end();
            if token.rstrip {
                done += after.len() - after.trim_start().len();
            }
        }
        self.encode_text(tokenizer, &rendered[done..], mark, done == 0, &mut ids)?;
        Ok(ids)
    }

    fn encode_text(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        text: &str,
        mark: char,
        at_start: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), String> {
        let text = text.replace(mark, "");
        if text.is_empty() {
            return Ok(());
        }
        let mut pieces =
            self.text_vocabulary.extract_and_normalize(tokenizer.get_normalizer(), &text);
        let pre_tokenizer = if at_start {
            tokenizer.get_pre_tokenizer()
        } else {
            self.inner_pre_tokenizer.as_ref()
        };
        if let Some(pre_tokenizer) = pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(|err| err.to_string())?;
        }
        pieces
            .tokenize(|text| tokenizer.get_model().tokenize(text.get()))
            .map_err(|err| err.to_string())?;
        let encoding =
            pieces.into_encoding(None, 0, OffsetType::None).map_err(|err| err.to_string())?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Metaspace's `prepend_scheme: first` looks at the offset in the whole text, which a piece does not know.
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
