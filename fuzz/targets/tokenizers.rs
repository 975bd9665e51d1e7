//! The files of a tokenizer: each input is a `tokenizer.json` or a file in another form, or a
//! `tokenizer_config.json` beside a whole one.
#![no_main]

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use inference_text::{AddSpecial, ChatFormat, Files, ReadError, SkipSpecial, Tokenizer};
use libfuzzer_sys::fuzz_target;

/// A tokenizer that goes with a `tokenizer_config.json`.
const WHOLE: &[u8] =
    include_bytes!("../../crates/inference-text/tests/fixtures/tokenizers/smol/tokenizer.json");
/// A model of SentencePiece that goes with one.
const PIECES: &[u8] =
    include_bytes!("../../crates/inference-text/tests/fixtures/conversions/bpe_whole.model");
/// The names of the files, by what is read of them.
const NAMES: [&str; 5] =
    ["tokenizer.json", "tokenizer.model", "tiktoken.model", "qwen.tiktoken", "tekken.json"];
const TEXT: &str = "The quick brown fox <|im_end|> über 12345 \u{1f98a}\n\n  jumps\0";

/// Files in memory.
struct InMemory<'a> {
    name: &'static str,
    tokenizer: &'a [u8],
    config: Option<&'a [u8]>,
}

impl Files for InMemory<'_> {
    fn path(&self, name: &str) -> PathBuf {
        name.into()
    }

    fn read(&self, name: &str, limit: u64) -> Result<Option<Cow<'static, [u8]>>, ReadError> {
        let bytes = match name {
            name if name == self.name => Some(self.tokenizer),
            "tokenizer_config.json" => self.config,
            _ => None,
        };
        match bytes {
            Some(bytes) if bytes.len() as u64 > limit => {
                Err(ReadError::TooLarge(bytes.len() as u64))
            }
            bytes => Ok(bytes.map(|bytes| Cow::Owned(bytes.to_vec()))),
        }
    }

    fn on_disk(&self) -> Option<&Path> {
        None
    }
}

fuzz_target!(init: fuzz::end_at_a_panic(), |bytes: &[u8]| {
    let alone = NAMES.map(|name| InMemory { name, tokenizer: bytes, config: None });
    let beside = [("tokenizer.json", WHOLE), ("tokenizer.model", PIECES)]
        .map(|(name, tokenizer)| InMemory { name, tokenizer, config: Some(bytes) });
    for files in alone.into_iter().chain(beside) {
        let Ok(tokenizer) = Tokenizer::from_files(&files) else { continue };
        let _ = ChatFormat::from_files(&files, &tokenizer, "qwen3");
        if let Ok(ids) = tokenizer.encode(TEXT, AddSpecial::Prompt) {
            let _ = tokenizer.decode(&ids, SkipSpecial::No);
        }
    }
});
