//! The tokenizer of a pipeline, which may have its vocabulary and merges in files of their own.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use inference_core::{Error, Result};
use inference_text::{Files, ReadError, Tokenizer};
use serde_json::{Map, Value as Json, json};

use crate::files::ModelFiles;

const FILE: &str = "tokenizer.json";
/// How Qwen's tokenizers cut text (`Qwen2Tokenizer` of transformers).
const PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Reads the tokenizer in `files`: `tokenizer.json`, or what `Qwen2Tokenizer` makes of `vocab.json`
/// and `merges.txt` where only these are there.
///
/// # Errors
/// A file that is missing or wrong.
pub(super) fn read(files: &ModelFiles) -> Result<Tokenizer> {
    if files.exists(FILE) || !files.exists("vocab.json") {
        return Tokenizer::from_files(files).map_err(Error::from);
    }
    let bytes = joined(files)?;
    Tokenizer::from_files(&Joined { files, bytes }).map_err(Error::from)
}

/// The text of a `tokenizer.json` made of the files.
fn joined(files: &ModelFiles) -> Result<Vec<u8>> {
    let text = |name| files.required_text(name).map_err(Error::from);
    let parse = |name: &str, text: &str| -> Result<Json> {
        serde_json::from_str(text).map_err(|error| Error::Load {
            path: files.path(name).display().to_string(),
            reason: error.to_string(),
        })
    };
    let vocab = parse("vocab.json", &text("vocab.json")?)?;
    let merges = text("merges.txt")?;
    let merges: Vec<&str> =
        merges.lines().filter(|line| !line.is_empty() && !line.starts_with("#version")).collect();
    let config = match files.text("tokenizer_config.json").map_err(Error::from)? {
        Some(text) => parse("tokenizer_config.json", &text)?,
        None => Json::Null,
    };
    let mut added = Vec::new();
    let listed = config.get("added_tokens_decoder").and_then(Json::as_object);
    for (id, token) in listed.into_iter().flatten() {
        let (Ok(id), Some(token)) = (id.parse::<u32>(), token.as_object()) else { continue };
        let mut token: Map<String, Json> = token.clone();
        token.insert("id".into(), id.into());
        for flag in ["single_word", "lstrip", "rstrip", "normalized", "special"] {
            token.entry(flag).or_insert(Json::Bool(false));
        }
        added.push((id, Json::Object(token)));
    }
    added.sort_by_key(|(id, _)| *id);
    let added: Vec<Json> = added.into_iter().map(|(_, token)| token).collect();
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        ]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false,
            "vocab": vocab, "merges": merges,
        },
    });
    Ok(file.to_string().into_bytes())
}

/// The files with a `tokenizer.json` beside them.
struct Joined<'a> {
    files: &'a ModelFiles,
    bytes: Vec<u8>,
}

impl Files for Joined<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.files.path(name)
    }

    fn read(&self, name: &str, limit: u64) -> Result<Option<Cow<'static, [u8]>>, ReadError> {
        match name {
            FILE => Ok(Some(Cow::Owned(self.bytes.clone()))),
            _ => Files::read(self.files, name, limit),
        }
    }

    fn on_disk(&self) -> Option<&Path> {
        self.files.on_disk()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use inference_text::AddSpecial;

    use super::*;

    /// The fixture's tokenizer, as one file and as several.
    const FIXTURE: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/images/z_image/tokenizer");

    #[test]
    fn vocabulary_and_merges_make_the_tokenizer_that_one_file_is() {
        let folder = tempfile::TempDir::new().expect("a folder");
        for name in ["vocab.json", "merges.txt", "tokenizer_config.json"] {
            fs::copy(Path::new(FIXTURE).join(name), folder.path().join(name)).expect("a copy");
        }
        let whole = read(&ModelFiles::Folder(FIXTURE.into())).expect("one file");
        let parts = read(&ModelFiles::Folder(folder.path().into())).expect("several files");
        for text in [
            "A small boat on a green sea, 3 birds.\n\n  It's  evening…",
            "<|im_start|>user\nÄ é 東京 🦊<|im_end|>\n",
            "",
        ] {
            let ids = |of: &Tokenizer| of.encode(text, AddSpecial::Never).expect("ids");
            assert_eq!(ids(&whole), ids(&parts), "{text}");
        }
        fs::remove_file(folder.path().join("merges.txt")).expect("a file");
        let error = read(&ModelFiles::Folder(folder.path().into())).expect_err("no merges");
        assert!(error.to_string().contains("merges.txt"), "{error}");
    }
}
