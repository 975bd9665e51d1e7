//! Byte pair encoding by ranks, as tiktoken has it: lines of a token in base64 and its rank.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json, json};

use super::merges::Work;
use crate::byte_spelling::byte_spelling;

/// Tokens of one vocabulary, at most; the largest published ones have 2^18.
pub(super) const MAX_TOKENS: usize = 1 << 20;

/// How text is cut before its bytes are merged, where a file does not say so.
pub(super) struct Cut {
    pub pattern: String,
    /// Text is brought into Unicode's form C first.
    pub is_composed: bool,
}

/// Tokens by their rank, which is their place.
pub(super) struct Ranks(Vec<Vec<u8>>);

impl Ranks {
    /// Reads the lines of a file.
    ///
    /// # Errors
    /// The line that is none; what [`new`](Self::new) refuses.
    pub fn read(bytes: &[u8]) -> Result<Ranks, String> {
        let mut found: Vec<Option<Vec<u8>>> = Vec::new();
        for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let wrong = |why: &str| format!("line {}: {why}", at + 1);
            let mut parts = line.split(u8::is_ascii_whitespace).filter(|part| !part.is_empty());
            let (Some(token), Some(rank), None) = (parts.next(), parts.next(), parts.next()) else {
                return Err(wrong("expected a token in base64 and its rank"));
            };
            let token = STANDARD.decode(token).map_err(|_| wrong("the token is no base64"))?;
            let rank = str::from_utf8(rank).ok().and_then(|rank| rank.parse::<usize>().ok());
            let rank = rank.filter(|rank| *rank < MAX_TOKENS).ok_or_else(|| {
                wrong(&format!("the rank is no number from 0 to {}", MAX_TOKENS - 1))
            })?;
            if found.len() <= rank {
                found.resize(rank + 1, None);
            }
            if found[rank].replace(token).is_some() {
                return Err(wrong(&format!("rank {rank} is there twice")));
            }
        }
        let tokens = found.into_iter().enumerate();
        let missing = |(rank, token): (usize, Option<Vec<u8>>)| {
            token.ok_or_else(|| format!("no token has the rank {rank}"))
        };
        Ranks::new(tokens.map(missing).collect::<Result<_, _>>()?)
    }

    /// Tokens in the order of their ranks.
    ///
    /// # Errors
    /// A token that is empty or there twice; a byte without a token of its own.
    pub fn new(tokens: Vec<Vec<u8>>) -> Result<Ranks, String> {
        let mut seen = HashMap::with_capacity(tokens.len());
        for (rank, token) in tokens.iter().enumerate() {
            if token.is_empty() {
                return Err(format!("the token of rank {rank} is empty"));
            }
            if let Some(before) = seen.insert(&**token, rank) {
                return Err(format!("ranks {before} and {rank} have the same token"));
            }
        }
        match (0..=u8::MAX).find(|byte| !seen.contains_key(&[*byte][..])) {
            Some(byte) => Err(format!("the byte 0x{byte:02x} has no token")),
            None => Ok(Ranks(tokens)),
        }
    }

    /// Returns true for a line of a token and its rank.
    pub fn is_line(line: &[u8]) -> bool {
        let mut parts = line.trim_ascii().split(|byte| *byte == b' ');
        let token = parts.next().and_then(|token| STANDARD.decode(token).ok());
        let rank = parts.next().is_some_and(|rank| rank.iter().all(u8::is_ascii_digit));
        token.is_some_and(|token| !token.is_empty()) && rank && parts.next().is_none()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The `tokenizer.json` of these tokens, whose ids begin at `first`, and of the special ones
    /// with their ids.
    ///
    /// # Errors
    /// Tokens that are too long to be cut; a special token that another one spells.
    pub fn tokenizer(
        &self,
        cut: &Cut,
        first: usize,
        special: &[(usize, String)],
    ) -> Result<String, String> {
        let ranks: HashMap<&[u8], usize> =
            self.0.iter().enumerate().map(|(rank, token)| (&**token, rank)).collect();
        let spelling = byte_spelling();
        let spelled = |token: &[u8]| -> String {
            token.iter().map(|byte| spelling[usize::from(*byte)]).collect()
        };
        let mut work = Work::default();
        let mut merges: Vec<[String; 2]> = Vec::new();
        let mut vocabulary: HashMap<String, usize> = HashMap::with_capacity(self.len());
        for (rank, token) in self.0.iter().enumerate() {
            vocabulary.insert(spelled(token), first + rank);
            let mut cuts = work
                .cuts(token, |left, right| ranks.contains_key(left) && ranks.contains_key(right))?;
            cuts.sort_by_key(|end| (ranks.get(&token[..*end]), ranks.get(&token[*end..])));
            merges
                .extend(cuts.iter().map(|end| [spelled(&token[..*end]), spelled(&token[*end..])]));
        }
        for (id, token) in special {
            if vocabulary.insert(token.clone(), *id).is_some() {
                return Err(format!("the special token `{token}` is there twice"));
            }
        }
        let added: Vec<Json> = special.iter().map(|(id, token)| added(*id, token)).collect();
        let text = |error: serde_json::Error| error.to_string();
        let normalizer = if cut.is_composed { json!({"type": "NFC"}) } else { Json::Null };
        let pre_tokenizer = json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": cut.pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        ]});
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        Ok(format!(
            r#"{{"version": "1.0", "truncation": null, "padding": null, "added_tokens": {},
            "normalizer": {normalizer}, "pre_tokenizer": {pre_tokenizer}, "post_processor": null,
            "decoder": {bytes}, "model": {{"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": true, "vocab": {}, "merges": {}}}}}"#,
            Json::from(added),
            serde_json::to_string(&vocabulary).map_err(text)?,
            serde_json::to_string(&merges).map_err(text)?,
        ))
    }
}

fn added(id: usize, token: &str) -> Json {
    json!({
        "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true
    })
}

/// Words of letters, numbers of up to `digits` digits, and runs of other characters.
fn words(digits: &str) -> String {
    format!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

/// Qwen 1: special tokens follow the others, all of them known.
pub(super) fn qwen(ranks: &Ranks) -> (Cut, Vec<(usize, String)>) {
    let named = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned);
    let extra = (0..205).map(|number| format!("<|extra_{number}|>"));
    let special = named.into_iter().chain(extra).enumerate();
    let special = special.map(|(at, token)| (ranks.len() + at, token)).collect();
    (Cut { pattern: words(""), is_composed: true }, special)
}

/// Kimi: runs of Chinese characters are cut from other words, and 258 special tokens follow.
pub(super) fn kimi(ranks: &Ranks, config: &Map<String, Json>) -> (Cut, Vec<(usize, String)>) {
    const RESERVED: usize = 256 + 2;
    let upper = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]";
    let lower = r"\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]";
    let before = r"[^\r\n\p{L}\p{N}]?";
    let behind = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
    let pattern = format!(
        r"[\p{{Han}}]+|{before}[{upper}]*[{lower}]+{behind}|{before}[{upper}]+[{lower}]*{behind}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    );
    let special = (ranks.len()..ranks.len() + RESERVED).map(|id| (id, reserved(config, id)));
    (Cut { pattern, is_composed: false }, special.collect())
}

/// Any other: text is cut as Llama 3 does, and the config names the special tokens.
pub(super) fn other(
    ranks: &Ranks,
    config: &Map<String, Json>,
) -> Result<(Cut, Vec<(usize, String)>), String> {
    let ids = config.get("added_tokens_decoder").and_then(Json::as_object);
    let ids = ids.into_iter().flatten().filter_map(|(id, _)| id.parse::<usize>().ok());
    let end = ids.max().map_or(0, |last| last.saturating_add(1));
    if end > ranks.len() + MAX_TOKENS {
        return Err(format!(
            "has {} tokens, and `added_tokens_decoder` goes up to {}",
            ranks.len(),
            end - 1
        ));
    }
    let special = (ranks.len()..end).map(|id| (id, reserved(config, id))).collect();
    Ok((Cut { pattern: words("{1,3}"), is_composed: false }, special))
}

/// The special token that the config has for an id, or one that stands for none.
fn reserved(config: &Map<String, Json>, id: usize) -> String {
    let decoder = config.get("added_tokens_decoder");
    let token = decoder.and_then(|decoder| decoder.get(id.to_string())?.get("content")?.as_str());
    token.map_or_else(|| format!("<|reserved_token_{id}|>"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::Ranks;

    fn bytes() -> String {
        let line = |byte: u8| format!("{} {byte}\n", STANDARD.encode([byte]));
        (0..=u8::MAX).map(line).collect()
    }

    #[test]
    fn lines_that_are_none_are_named() {
        let whole = bytes();
        assert_eq!(Ranks::read(whole.as_bytes()).unwrap().len(), 256);
        for (more, fault) in [
            ("YWI=", "line 257: expected a token in base64 and its rank"),
            ("YWI= 256 1", "line 257: expected"),
            ("Y!I= 256", "line 257: the token is no base64"),
            ("YWI= -1", "line 257: the rank is no number"),
            ("YWI= 99999999999999999999", "the rank is no number"),
            ("YWI= 1048576", "the rank is no number from 0 to 1048575"),
            ("YWI= 255", "line 257: rank 255 is there twice"),
            ("YWI= 300", "no token has the rank 256"),
            ("YQ== 256", "ranks 97 and 256 have the same token"),
            ("= 256", "no base64"),
            ("\u{ff} 256", "no base64"),
        ] {
            let error = Ranks::read(format!("{whole}{more}").as_bytes()).err().unwrap();
            assert!(error.contains(fault), "{more}: {error}");
        }
        let lacking = whole.replace("QQ== 65\n", "YWI= 65\n");
        let error = Ranks::read(lacking.as_bytes()).err().unwrap();
        assert_eq!(error, "the byte 0x41 has no token");
        assert_eq!(Ranks::read(b"").err().unwrap(), "the byte 0x00 has no token");
    }
}
