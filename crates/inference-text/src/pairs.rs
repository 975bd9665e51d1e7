//! A `tokenizer.json` of byte pairs, read without the copies that the library makes of it.
//!
//! The library keeps the text of a model in three forms before the last. Of Gemma's vocabulary that
//! is half a gigabyte. What is not read here is left to the library, with its errors.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tokenizers::models::bpe::{BpeBuilder, Merges, Vocab};
use tokenizers::{
    AddedToken, DecoderWrapper, ModelWrapper, NormalizerWrapper, PaddingParams,
    PostProcessorWrapper, PreTokenizerWrapper, TokenizerBuilder, TruncationParams,
};

/// The tokenizer of a file's parts, without padding and truncation; `None` where the library must
/// read it.
pub(crate) fn tokenizer(file: &HashMap<String, &RawValue>) -> Option<tokenizers::Tokenizer> {
    if file.get("version").is_some_and(|version| version.get() != r#""1.0""#) {
        return None;
    }
    // Both are switched off, but no file is taken in which they are wrong.
    part::<PaddingParams>(file, "padding")?;
    part::<TruncationParams>(file, "truncation")?;
    let pairs: Pairs = serde_json::from_str(file.get("model")?.get()).ok()?;
    let added: Vec<Added> = match file.get("added_tokens") {
        None => Vec::new(),
        Some(raw) => serde_json::from_str(raw.get()).ok()?,
    };
    let builder = TokenizerBuilder::new()
        .with_model(pairs.model()?)
        .with_normalizer(part::<NormalizerWrapper>(file, "normalizer")?)
        .with_pre_tokenizer(part::<PreTokenizerWrapper>(file, "pre_tokenizer")?)
        .with_post_processor(part::<PostProcessorWrapper>(file, "post_processor")?)
        .with_decoder(part::<DecoderWrapper>(file, "decoder")?);
    let mut tokenizer = tokenizers::Tokenizer::from(builder.build().ok()?);
    tokenizer.add_tokens(added.into_iter().map(|added| added.token)).ok()?;
    Some(tokenizer)
}

/// A part of the file that may be absent or null; `None` where it is not as it should be.
fn part<'a, T: Deserialize<'a>>(
    file: &HashMap<String, &'a RawValue>,
    name: &str,
) -> Option<Option<T>> {
    file.get(name).map_or(Some(None), |raw| serde_json::from_str(raw.get()).ok())
}

/// A token of the file's list; its id is the one that the vocabulary gives it.
#[derive(Deserialize)]
struct Added {
    #[serde(rename = "id")]
    _id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

#[derive(Deserialize)]
enum Type {
    #[serde(rename = "BPE")]
    Pairs,
}

/// A model of byte pairs.
#[derive(Deserialize)]
struct Pairs {
    #[serde(rename = "type")]
    _type: Type,
    dropout: Option<f32>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    fuse_unk: Option<bool>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
    vocab: Vocabulary,
    merges: MergeList,
}

impl Pairs {
    fn model(self) -> Option<ModelWrapper> {
        let mut builder = BpeBuilder::new()
            .vocab_and_merges(self.vocab.0, self.merges.0)
            .fuse_unk(self.fuse_unk.unwrap_or_default())
            .byte_fallback(self.byte_fallback.unwrap_or_default())
            .ignore_merges(self.ignore_merges.unwrap_or_default());
        if let Some(dropout) = self.dropout {
            builder = builder.dropout(dropout);
        }
        if let Some(unknown) = self.unk_token {
            builder = builder.unk_token(unknown);
        }
        if let Some(prefix) = self.continuing_subword_prefix {
            builder = builder.continuing_subword_prefix(prefix);
        }
        if let Some(suffix) = self.end_of_word_suffix {
            builder = builder.end_of_word_suffix(suffix);
        }
        builder.build().ok().map(ModelWrapper::BPE)
    }
}

/// Tokens and their ids.
struct Vocabulary(Vocab);

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Vocabulary, D::Error> {
        struct Tokens;
        impl<'de> Visitor<'de> for Tokens {
            type Value = Vocab;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("ids by tokens")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab, A::Error> {
                let mut tokens = Vocab::default();
                while let Some((token, id)) = map.next_entry::<String, u32>()? {
                    tokens.insert(token, id);
                }
                Ok(tokens)
            }
        }
        from.deserialize_map(Tokens).map(Vocabulary)
    }
}

/// Pairs of tokens, each a list of two or a text with a space between them.
struct MergeList(Merges);

impl<'de> Deserialize<'de> for MergeList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<MergeList, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Merges;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("pairs of tokens")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merges, A::Error> {
                let (mut merges, mut is_text) = (Merges::new(), None);
                while let Some(merge) = list.next_element::<Merge>()? {
                    if *is_text.get_or_insert(merge.is_text) != merge.is_text {
                        return Err(A::Error::custom("lists and texts"));
                    }
                    // A first line of the version, as files of merges have it.
                    merges.extend(merge.pair);
                }
                Ok(merges)
            }
        }
        from.deserialize_seq(List).map(MergeList)
    }
}

/// A pair of tokens.
struct Merge {
    is_text: bool,
    pair: Option<(String, String)>,
}

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Merge, D::Error> {
        struct Pair;
        impl<'de> Visitor<'de> for Pair {
            type Value = Merge;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("two tokens")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Merge, E> {
                if text.starts_with("#version") {
                    return Ok(Merge { is_text: true, pair: None });
                }
                let pair = text.split_once(' ').filter(|(_, right)| !right.contains(' '));
                let (left, right) = pair.ok_or_else(|| E::custom("not two tokens"))?;
                Ok(Merge { is_text: true, pair: Some((left.to_owned(), right.to_owned())) })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<Merge, A::Error> {
                let tokens = (pair.next_element()?, pair.next_element()?);
                let is_more = pair.next_element::<IgnoredAny>()?.is_some();
                match tokens {
                    (Some(left), Some(right)) if !is_more => {
                        Ok(Merge { is_text: false, pair: Some((left, right)) })
                    }
                    _ => Err(A::Error::custom("not two tokens")),
                }
            }
        }
        from.deserialize_any(Pair)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs;
    use std::path::Path;

    use serde_json::value::RawValue;
    use serde_json::{Value as Json, json};

    use super::tokenizer;

    /// The library's tokenizer of `text` as JSON, and ours where it is read here.
    fn both(text: &str) -> (Option<Json>, Option<Json>) {
        let file: HashMap<String, &RawValue> = serde_json::from_str(text).expect("an object");
        let library = tokenizers::Tokenizer::from_bytes(text).ok().map(|mut tokenizer| {
            tokenizer.with_padding(None);
            tokenizer.with_truncation(None).expect("none");
            serde_json::to_value(&tokenizer).expect("JSON")
        });
        (library, tokenizer(&file).map(|ours| serde_json::to_value(&ours).expect("JSON")))
    }

    fn small() -> Json {
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null,
                "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
                "byte_fallback": false, "vocab": {"a": 0, "b": 1, "ab": 2, "abb": 3},
                "merges": ["#version: 0.2", "a b", "ab b"],
            },
        })
    }

    #[test]
    fn files_give_what_the_library_makes_of_them() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers");
        let mut count = 0;
        for entry in fs::read_dir(folder).expect("fixtures") {
            let path = entry.expect("an entry").path().join("tokenizer.json");
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let (library, ours) = both(&text);
            assert!(library.is_some() && library == ours, "{}", path.display());
            count += 1;
        }
        assert!(count >= 8, "{count} files");
    }

    #[test]
    fn both_forms_of_merges_and_all_options_are_read() {
        let mut file = small();
        let (library, ours) = both(&file.to_string());
        assert!(library.is_some() && library == ours);
        let model = &mut file["model"];
        model["merges"] = json!([["a", "b"], ["ab", "b"]]);
        for (key, value) in [
            ("dropout", json!(0.5)),
            ("unk_token", json!("a")),
            ("end_of_word_suffix", json!("</w>")),
            ("continuing_subword_prefix", json!("")),
            ("fuse_unk", json!(true)),
            ("byte_fallback", json!(true)),
            ("ignore_merges", json!(true)),
        ] {
            model[key] = value;
        }
        let (library, ours) = both(&file.to_string());
        assert!(library.is_some() && library == ours);
        // What says nothing of a part is as one that has none.
        let mut file = small();
        let object = file.as_object_mut().unwrap();
        object.retain(|key, _| ["added_tokens", "model"].contains(&key.as_str()));
        let (library, ours) = both(&file.to_string());
        assert!(library.is_some() && library == ours);
    }

    #[test]
    fn added_tokens_get_the_vocabularys_ids() {
        let mut file = small();
        let token = |id: u32, content: &str| {
            json!({
                "id": id, "content": content, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true,
            })
        };
        file["added_tokens"] = json!([token(9, "<x>"), token(2, "ab")]);
        let (library, ours) = both(&file.to_string());
        assert!(library.is_some() && library == ours);
        file["added_tokens"][0].as_object_mut().unwrap().remove("id");
        assert_eq!(both(&file.to_string()), (None, None));
    }

    #[test]
    fn what_the_library_refuses_is_left_to_it() {
        let refused = |change: &dyn Fn(&mut Json)| {
            let mut file = small();
            change(&mut file);
            assert_eq!(both(&file.to_string()), (None, None), "{file}");
        };
        refused(&|file| file["version"] = json!("2.0"));
        refused(&|file| file["added_tokens"] = Json::Null);
        refused(&|file| file["padding"] = json!("all"));
        refused(&|file| file["truncation"] = json!(3));
        refused(&|file| file["decoder"] = json!({"type": "None"}));
        refused(&|file| file["model"]["vocab"]["c"] = json!(-1));
        refused(&|file| file["model"]["dropout"] = json!(2.0));
        refused(&|file| file["model"]["merges"] = json!(["a b c"]));
        refused(&|file| file["model"]["merges"] = json!(["a b", ["ab", "b"]]));
        refused(&|file| file["model"]["merges"] = json!([["a", "b", "b"]]));
        refused(&|file| file["model"]["merges"] = json!([["a"]]));
        refused(&|file| file["model"]["merges"] = json!(["a c"]));
        // Of another kind, or without one: the library reads it.
        let mut file = small();
        file["model"].as_object_mut().unwrap().remove("type");
        let (library, ours) = both(&file.to_string());
        assert!(library.is_some() && ours.is_none());
    }
}
