//! The `tokenizer.json` and `tokenizer_config.json` that are made from a file's metadata.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json, json};

use super::cuts::Cut;
use super::reader::{Header, Value, shown};
use crate::error::{Error, Result};

/// The kinds of tokens that are not pieces of text.
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// The most tokens that text is searched for. Vocabularies have up to some ten thousand, and each
/// takes a kilobyte and 40 µs as a tokenizer is made.
const MAX_ADDED: usize = 1 << 16;

/// The character for a space in vocabularies of SentencePiece.
const SPACE: char = '▁';

/// A `tokenizer.json`. It is written from what the header has: a copy of a large vocabulary as
/// values of JSON takes a hundred MiB.
#[derive(Serialize)]
struct TokenizerFile<'a> {
    version: &'static str,
    truncation: (),
    padding: (),
    added_tokens: Vec<Json>,
    normalizer: Json,
    pre_tokenizer: Json,
    post_processor: Json,
    decoder: Json,
    model: Pairs<'a>,
}

/// A model of byte pairs.
#[derive(Serialize)]
struct Pairs<'a> {
    r#type: &'static str,
    dropout: (),
    unk_token: Option<&'a str>,
    continuing_subword_prefix: (),
    end_of_word_suffix: (),
    fuse_unk: bool,
    byte_fallback: bool,
    ignore_merges: bool,
    #[serde(serialize_with = "by_token")]
    vocab: &'a [&'a str],
    merges: Merges<'a>,
}

/// Pairs of tokens, the first to be merged first.
#[derive(Serialize)]
#[serde(untagged)]
enum Merges<'a> {
    /// As files have them, with a space between.
    Texts(Vec<&'a str>),
    /// Those that scores mean.
    Pairs(Vec<[&'a str; 2]>),
}

/// Writes ids by tokens.
fn by_token<S: Serializer>(tokens: &&[&str], to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_map(tokens.iter().enumerate().map(|(id, token)| (token, id)))
}

/// A vocabulary with what is known of its tokens.
struct Tokens<'a> {
    texts: Vec<&'a str>,
    kinds: Vec<u64>,
}

/// The texts by the names of the files that they stand for.
///
/// # Errors
/// Metadata that is missing or not known, by name.
pub(super) fn texts(header: &Header) -> Result<BTreeMap<&'static str, String>> {
    let tokens = Tokens::of(header)?;
    let adds = |key: &str, usual: bool| match header.metadata.get(&key_of(key)) {
        Some(Value::Flag(adds)) => *adds,
        _ => usual,
    };
    let model = text(header, "model");
    let (mut tokenizer, adds_bos) = match model {
        Some("gpt2") => {
            let cut = Cut::named(text(header, "pre"))?;
            (pairs(header, &tokens, cut)?, adds("add_bos_token", cut.adds_bos))
        }
        Some("llama") => {
            let prefixes = adds("add_space_prefix", true);
            (pieces(header, &tokens, prefixes)?, adds("add_bos_token", true))
        }
        // Pieces whose merges the file has.
        Some("gemma4") => {
            let prefixes = adds("add_space_prefix", false);
            // Some files say that it has none, and are wrong.
            (pieces(header, &tokens, prefixes)?, true)
        }
        other => {
            let name = shown(other.unwrap_or("(none)"));
            return Err(Error::model(format!(
                "`tokenizer.ggml.model` is `{name}`; gpt2, llama, gemma4 work"
            )));
        }
    };
    let named = |key: &str| -> Result<Option<(u64, &str)>> {
        let key = format!("{key}_token_id");
        let found = header.metadata.get(&key_of(&key));
        // One below 0 stands for none.
        let id = match found {
            None | Some(Value::Signed(..0)) => return Ok(None),
            Some(value) => value
                .whole()
                .ok_or_else(|| Error::model(format!("`{}` is no id of a token", key_of(&key))))?,
        };
        let token = tokens.texts.get(id as usize);
        let token = token.ok_or_else(|| {
            Error::model(format!("`{}` is {id}, which no token has", key_of(&key)))
        })?;
        Ok(Some((id, token)))
    };
    if adds("add_eos_token", false) {
        return Err(Error::model("`tokenizer.ggml.add_eos_token` is true; false works"));
    }
    if let Some((id, token)) = named("bos")?.filter(|_| adds_bos) {
        let bos = json!({"SpecialToken": {"id": token, "type_id": 0}});
        let sequence = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
        tokenizer.post_processor = json!({
            "type": "TemplateProcessing",
            "single": [bos, sequence("A")],
            "pair": [bos, sequence("A"), bos, sequence("B")],
            "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]}},
        });
    }
    let mut config = Map::new();
    for (key, name) in [("bos", "bos_token"), ("eos", "eos_token"), ("padding", "pad_token")] {
        if let Some((_, token)) = named(key)? {
            config.insert(name.into(), json!(token));
        }
    }
    if let Some(template) = text(header, "chat_template_of_tokenizer") {
        config.insert("chat_template".into(), json!(template));
    }
    let tokenizer = serde_json::to_string(&tokenizer)
        .map_err(|error| Error::model(format!("its vocabulary is no JSON: {error}")))?;
    Ok(BTreeMap::from([
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", Json::Object(config).to_string()),
    ]))
}

fn key_of(key: &str) -> String {
    match key {
        "chat_template_of_tokenizer" => "tokenizer.chat_template".to_owned(),
        key => format!("tokenizer.ggml.{key}"),
    }
}

fn text<'a>(header: &'a Header, key: &str) -> Option<&'a str> {
    match header.metadata.get(&key_of(key)) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

fn list<'a>(header: &'a Header, key: &str) -> Result<&'a [Value]> {
    match header.metadata.get(&key_of(key)) {
        Some(Value::List(values)) => Ok(values),
        _ => Err(Error::model(format!("has no list `{}`", key_of(key)))),
    }
}

fn texts_of<'a>(header: &'a Header, key: &str) -> Result<Vec<&'a str>> {
    let wrong = || Error::model(format!("`{}` is no list of texts", key_of(key)));
    let of = |value: &'a Value| match value {
        Value::Text(text) => Ok(text.as_str()),
        _ => Err(wrong()),
    };
    list(header, key)?.iter().map(of).collect()
}

impl Tokens<'_> {
    fn of(header: &Header) -> Result<Tokens<'_>> {
        let texts = texts_of(header, "tokens")?;
        let kind = |value: &Value| match value {
            Value::Signed(kind) => *kind as u64,
            Value::Unsigned(kind) => *kind,
            _ => 0,
        };
        let kinds: Vec<u64> = list(header, "token_type")?.iter().map(kind).collect();
        if kinds.len() != texts.len() {
            return Err(Error::model(format!(
                "has {} tokens and {} types of tokens",
                texts.len(),
                kinds.len()
            )));
        }
        Ok(Tokens { texts, kinds })
    }

    /// Tokens that text is searched for before it is cut; `strips`: those of turns take the spaces
    /// behind them. What `whole` has is searched for too, whatever its kind.
    ///
    /// # Errors
    /// More of them than any vocabulary has.
    fn added(&self, strips: bool, whole: &HashSet<usize>) -> Result<Vec<Json>> {
        const PLAIN: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];
        let is_added = |id: usize| {
            [UNKNOWN, CONTROL, USER_DEFINED].contains(&self.kinds[id]) || whole.contains(&id)
        };
        let token = |id: usize| {
            let (text, kind) = (self.texts[id], self.kinds[id]);
            let special = match kind {
                USER_DEFINED => false,
                UNKNOWN | CONTROL => true,
                _ => is_mark(text),
            };
            let rstrip = strips && kind != USER_DEFINED && !PLAIN.contains(&text);
            json!({
                "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": rstrip,
                "normalized": false, "special": special,
            })
        };
        let added = || (0..self.texts.len()).filter(|id| is_added(*id));
        match added().count() {
            0..=MAX_ADDED => Ok(added().map(token).collect()),
            count => Err(Error::model(format!(
                "has {count} tokens that are no pieces of text; at most {MAX_ADDED} work"
            ))),
        }
    }

    /// Tokens that no merge makes. Files call some of them ordinary that the tokenizer's own files
    /// search text for.
    fn made_by_none(&self, merges: &[&str]) -> HashSet<usize> {
        let made: HashSet<String> = merges.iter().map(|pair| pair.replacen(' ', "", 1)).collect();
        let is_byte = |text: &str| text.starts_with("<0x") && text.len() == 6;
        let is_whole =
            |text: &str| text.chars().nth(1).is_some() && !is_byte(text) && !made.contains(text);
        (0..self.texts.len()).filter(|id| is_whole(self.texts[*id])).collect()
    }
}

/// Returns true for a token that files call ordinary and that stands for no text.
/// It has the form of a mark, and is no tag of HTML.
fn is_mark(text: &str) -> bool {
    const OWN: [&str; 5] = ["pad", "eos", "bos", "unk", "mask"];
    let Some(inner) = text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) else {
        return false;
    };
    let name = inner.strip_prefix('/').unwrap_or(inner);
    let is_tag = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    !is_tag || OWN.contains(&inner) || inner.starts_with("unused")
}

/// A tokenizer of byte pairs, whose text is `cut` first.
fn pairs<'a>(header: &'a Header, tokens: &'a Tokens<'_>, cut: &Cut) -> Result<TokenizerFile<'a>> {
    let normalizer = if cut.composes { json!({"type": "NFC"}) } else { Json::Null };
    Ok(TokenizerFile {
        version: "1.0",
        truncation: (),
        padding: (),
        added_tokens: tokens.added(false, &HashSet::new())?,
        normalizer,
        pre_tokenizer: cut.pre_tokenizer(),
        post_processor: Json::Null,
        decoder: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
        model: Pairs {
            r#type: "BPE",
            dropout: (),
            unk_token: None,
            continuing_subword_prefix: (),
            end_of_word_suffix: (),
            fuse_unk: false,
            byte_fallback: false,
            ignore_merges: cut.ignores_merges,
            vocab: &tokens.texts,
            merges: Merges::Texts(texts_of(header, "merges")?),
        },
    })
}

/// The merges of SentencePiece's pieces: those of the file, else those that their scores mean; and
/// tokens that none of the file's makes.
///
/// # Errors
/// Another number of scores than of tokens.
fn merges_of<'a>(
    header: &'a Header,
    tokens: &'a Tokens<'_>,
) -> Result<(Merges<'a>, HashSet<usize>)> {
    if header.metadata.contains_key(&key_of("merges")) {
        let merges = texts_of(header, "merges")?;
        let whole = tokens.made_by_none(&merges);
        return Ok((Merges::Texts(merges), whole));
    }
    const LONGEST: usize = 1024;
    /// The most steps of looking for the parts of all tokens: the vocabulary of Gemma takes 30
    /// million.
    const MOST: usize = 1 << 28;
    if let Some(id) = tokens.texts.iter().position(|text| text.len() > LONGEST) {
        return Err(Error::model(format!(
            "token {id} has {} bytes; at most {LONGEST} work",
            tokens.texts[id].len()
        )));
    }
    // Each of a token's bytes parts it in two, both of which are looked up.
    if tokens.texts.iter().map(|text| text.len() * text.len()).sum::<usize>() > MOST {
        return Err(Error::model("its tokens are longer than those of any vocabulary"));
    }
    let score = |value: &Value| match value {
        Value::Float(score) => *score,
        _ => 0.0,
    };
    let scores: Vec<f64> = list(header, "scores")?.iter().map(score).collect();
    if scores.len() != tokens.texts.len() {
        return Err(Error::model(format!(
            "has {} tokens and {} scores",
            tokens.texts.len(),
            scores.len()
        )));
    }
    Ok((Merges::Pairs(merges(&tokens.texts, &scores)?), HashSet::new()))
}

/// A tokenizer of SentencePiece's pieces.
fn pieces<'a>(
    header: &'a Header,
    tokens: &'a Tokens<'_>,
    prefixes: bool,
) -> Result<TokenizerFile<'a>> {
    let (merges, whole) = merges_of(header, tokens)?;
    let space =
        json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE.to_string()});
    let normalizer = match prefixes {
        true => json!({"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": SPACE.to_string()}, space,
        ]}),
        false => space,
    };
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": SPACE.to_string()}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefixes {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let unknown = tokens.kinds.iter().position(|kind| *kind == UNKNOWN);
    let unknown = unknown.map(|id| tokens.texts[id]);
    // Files do not say it of Phi 3, whose tokens do so.
    let strips = header.metadata.get("general.architecture") == Some(&Value::Text("phi3".into()));
    Ok(TokenizerFile {
        version: "1.0",
        truncation: (),
        padding: (),
        added_tokens: tokens.added(strips, &whole)?,
        normalizer,
        pre_tokenizer: Json::Null,
        post_processor: Json::Null,
        decoder: json!({"type": "Sequence", "decoders": decoders}),
        model: Pairs {
            r#type: "BPE",
            dropout: (),
            unk_token: unknown,
            continuing_subword_prefix: (),
            end_of_word_suffix: (),
            fuse_unk: true,
            byte_fallback: true,
            ignore_merges: false,
            vocab: &tokens.texts,
            merges,
        },
    })
}

/// The pairs that make tokens of tokens: those of higher scores first, then those of longer parts.
///
/// # Errors
/// More pairs than any vocabulary has.
fn merges<'a>(texts: &[&'a str], scores: &[f64]) -> Result<Vec<[&'a str; 2]>> {
    // Those of Gemma are made of 600,000. One takes 40 bytes.
    const MOST: usize = 1 << 21;
    let ids: HashMap<&str, usize> =
        texts.iter().enumerate().map(|(id, text)| (*text, id)).collect();
    let mut found: Vec<(f64, usize, usize, [usize; 2])> = Vec::new();
    for (text, score) in texts.iter().zip(scores) {
        let first = found.len();
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if let (Some(&left_id), Some(&right_id)) = (ids.get(left), ids.get(right)) {
                let [long, short] = [left, right].map(|part| part.chars().count());
                found.push((*score, long, short, [left_id, right_id]));
            }
        }
        if found.len() > MOST {
            return Err(Error::model(format!("its tokens are made of more than {MOST} pairs")));
        }
        found[first..].sort_by_key(|(.., ids)| *ids);
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(b.2.cmp(&a.2)));
    Ok(found.into_iter().map(|(.., ids)| ids.map(|id| texts[id])).collect())
}
