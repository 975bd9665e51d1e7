//! The text files of a model, read with a cap and parsed to JSON.

use std::borrow::Cow;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::TextError;
use crate::json::standard_json;

/// The largest published tokenizer.json has 35 MB.
const MAX_TOKENIZER: u64 = 128 << 20;
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
    /// What the system said.
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
fn read_optional(
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

pub(crate) fn read_tokenizer(dir: &dyn Files) -> Result<Cow<'static, [u8]>, TextError> {
    const NAME: &str = "tokenizer.json";
    read_optional(dir, NAME, MAX_TOKENIZER)?
        .ok_or_else(|| TextError::Read { path: dir.path(NAME), source: ErrorKind::NotFound.into() })
}

pub(crate) fn read_text(dir: &dyn Files, name: &str) -> Result<Option<String>, TextError> {
    let Some(bytes) = read_optional(dir, name, MAX_CONFIG)? else { return Ok(None) };
    let text = String::from_utf8(bytes.into_owned());
    let text = text.map_err(|err| invalid(&dir.path(name), err.to_string()))?;
    // Python reads text files with universal newlines.
    Ok(Some(if text.contains('\r') {
        text.replace("\r\n", "\n").replace('\r', "\n")
    } else {
        text
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
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let text =
        std::str::from_utf8(bytes).map_err(|err| invalid(&dir.path(name), err.to_string()))?;
    match serde_json::from_str(&standard_json(text)) {
        Ok(Value::Object(object)) => Ok(Some(object)),
        Ok(_) => Err(invalid(&dir.path(name), "expected an object")),
        Err(err) => Err(invalid(&dir.path(name), err.to_string())),
    }
}

pub(crate) fn invalid(path: &Path, reason: impl Into<String>) -> TextError {
    TextError::Invalid { path: path.to_owned(), reason: reason.into() }
}
