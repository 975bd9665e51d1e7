//! The text files of a model, read with a cap and parsed to JSON.

use std::borrow::Cow;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use inference_core::utf8_text;
use serde_json::{Map, Value};

use crate::TextError;
use crate::json::standard_json;

/// The bytes of a tokenizer, at most; the largest published tokenizer.json has 35 MB.
pub(crate) const MAX_TOKENIZER: u64 = 128 << 20;
const MAX_CONFIG: u64 = 16 << 20;

/// The files of a model, by name: those of a folder, or others that a backend has.
pub trait Files {
    /// A path for messages.
    fn path(&self, name: &str) -> PathBuf;

    /// The bytes of a file of at most `limit` bytes, `None` where there is none.
    ///
    /// # Errors
    /// A file that cannot be read or is larger.
    fn read(&self, name: &str, limit: u64) -> Result<Option<Cow<'static, [u8]>>, ReadError>;

    /// The folder on disk that holds the files, where there is one.
    fn on_disk(&self) -> Option<&Path>;
}

/// Why a file was not read.
#[derive(Debug)]
pub enum ReadError {
    /// The system's error.
    Io(std::io::Error),
    /// Its size in bytes.
    TooLarge(u64),
    /// A folder, a pipe or a device.
    NotAFile,
}

/// The files of a folder on disk.
#[derive(Clone, Copy, Debug)]
pub struct Folder<'a>(pub &'a Path);

impl Files for Folder<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn read(&self, name: &str, limit: u64) -> Result<Option<Cow<'static, [u8]>>, ReadError> {
        let path = self.path(name);
        // Asked before it is opened: opening a pipe waits for its other end.
        let size = match fs::metadata(&path) {
            Ok(data) if data.is_file() => data.len(),
            Ok(_) => return Err(ReadError::NotAFile),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ReadError::Io(error)),
        };
        if size > limit {
            return Err(ReadError::TooLarge(size));
        }
        let file = fs::File::open(&path).map_err(ReadError::Io)?;
        let mut bytes = Vec::new();
        // The file may grow meanwhile.
        file.take(limit + 1).read_to_end(&mut bytes).map_err(ReadError::Io)?;
        match bytes.len() as u64 {
            size if size > limit => Err(ReadError::TooLarge(size)),
            _ => Ok(Some(Cow::Owned(bytes))),
        }
    }

    fn on_disk(&self) -> Option<&Path> {
        Some(self.0)
    }
}

/// Reads a file that may be absent.
pub(crate) fn read_optional(
    dir: &dyn Files,
    name: &str,
    limit: u64,
) -> Result<Option<Cow<'static, [u8]>>, TextError> {
    dir.read(name, limit).map_err(|error| match error {
        ReadError::Io(source) => TextError::Read { path: dir.path(name), source },
        ReadError::NotAFile => invalid(&dir.path(name), "it is not a file"),
        ReadError::TooLarge(size) => TextError::FileTooLarge { path: dir.path(name), size, limit },
    })
}

/// The text of tokenizer.json, `None` where there is none.
pub(crate) fn read_tokenizer(dir: &dyn Files) -> Result<Option<Cow<'static, [u8]>>, TextError> {
    const NAME: &str = "tokenizer.json";
    let Some(bytes) = read_optional(dir, NAME, MAX_TOKENIZER)? else { return Ok(None) };
    let length = utf8_text(&bytes);
    let length = length.map_err(|error| invalid(&dir.path(NAME), error.to_string()))?.len();
    let mark = bytes.len() - length;
    Ok(Some(match bytes {
        whole if mark == 0 => whole,
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[mark..]),
        Cow::Owned(bytes) => Cow::Owned(bytes[mark..].to_vec()),
    }))
}

/// The error where there is no tokenizer, with advice by the files that are there in its place.
pub(crate) fn no_tokenizer(dir: &dyn Files) -> TextError {
    const SAVE: &str = "write it with transformers: \
                        `AutoTokenizer.from_pretrained(folder).save_pretrained(folder)`";
    const TAKE: &str = "take it from the model's repository, or from a conversion of the model \
                        that has it";
    const KINDS: [(&str, &str, &str); 6] = [
        ("spm.model", "SentencePiece", SAVE),
        ("tokenizer.tiktoken", "tiktoken", TAKE),
        ("o200k_base.tiktoken", "tiktoken", TAKE),
        ("cl100k_base.tiktoken", "tiktoken", TAKE),
        ("vocab.json", "BPE in two files, with `merges.txt`", SAVE),
        ("vocab.txt", "WordPiece", SAVE),
    ];
    // Nothing is read: a file of any size is there, whatever else is wrong with it.
    let is_there = |name: &str| !matches!(dir.read(name, 0), Ok(None));
    let remedy = match KINDS.iter().find(|(name, ..)| is_there(name)) {
        Some((name, kind, remedy)) => {
            format!("`{name}` ({kind}) is there, which is not read; {remedy}")
        }
        None => TAKE.to_owned(),
    };
    TextError::Missing { path: dir.path("tokenizer.json"), remedy }
}

/// The text of a file that may be absent, without a byte order mark.
pub(crate) fn read_text(dir: &dyn Files, name: &str) -> Result<Option<String>, TextError> {
    let Some(bytes) = read_optional(dir, name, MAX_CONFIG)? else { return Ok(None) };
    let text = utf8_text(&bytes).map_err(|error| invalid(&dir.path(name), error.to_string()))?;
    // Python reads text files with universal newlines.
    Ok(Some(if text.contains('\r') {
        text.replace("\r\n", "\n").replace('\r', "\n")
    } else {
        text.to_owned()
    }))
}

/// [`read_text`] for a file in a folder of its own.
pub(crate) fn read_text_at(path: &Path) -> Result<Option<String>, TextError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    read_text(&Folder(folder), name)
}

/// The object in a JSON file; `None` if there is no such file.
pub(crate) fn read_object(
    dir: &dyn Files,
    name: &str,
) -> Result<Option<Map<String, Value>>, TextError> {
    let Some(bytes) = read_optional(dir, name, MAX_CONFIG)? else { return Ok(None) };
    let text = utf8_text(&bytes).map_err(|error| invalid(&dir.path(name), error.to_string()))?;
    match serde_json::from_str(&standard_json(text)) {
        Ok(Value::Object(object)) => Ok(Some(object)),
        Ok(_) => Err(invalid(&dir.path(name), "expected an object")),
        Err(err) => Err(invalid(&dir.path(name), err.to_string())),
    }
}

pub(crate) fn invalid(path: &Path, reason: impl Into<String>) -> TextError {
    TextError::Invalid { path: path.to_owned(), reason: reason.into() }
}
