//! The files of a model: in a folder, in memory, in one file of GGUF, or drawn from a config.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use inference_core::{StoredAs, utf8_text};
use inference_text::{Files, Folder, ReadError};
use mlx_ffi::Dtype;

use crate::error::{Result, load};
use crate::gguf::{Gguf, Groups};

/// Stands for the folder of files that lie in the program.
const EMBEDDED: &str = "(embedded model)";
/// Stands for the folder of a model of random weights.
const RANDOM: &str = "(random weights)";
/// The tokenizer of a model of random weights, which is given ids: it knows one letter.
const LETTER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
        "vocab": {"a": 0}, "merges": []}}"#;
/// Text files larger than this are not configuration.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// The source of a model's files.
#[derive(Clone, Debug)]
pub(crate) enum ModelFiles {
    /// A folder on disk.
    Folder(PathBuf),
    /// Files that lie in the program, as (name, bytes).
    Embedded(&'static [(&'static str, &'static [u8])]),
    /// One file of GGUF, in which all that other models have in files lies.
    Gguf(Arc<Gguf>),
    /// No files but this `config.json`: weights of its shapes are drawn as they are asked for.
    Random(Arc<str>),
}

impl ModelFiles {
    /// The files of the model at `path`: a folder, a file of GGUF, or a folder with one. Weights in
    /// GGUF that can be packed in `groups` are; its numbers are given out as `dtype`, in which they
    /// are computed with.
    ///
    /// # Errors
    /// A file of GGUF that is damaged, or has what is not known; a folder with several.
    pub fn open(path: &Path, groups: Groups, dtype: Option<Dtype>) -> Result<ModelFiles> {
        ModelFiles::of(path, |file| Gguf::open(file, groups, dtype))
    }

    /// The files of the model at `path` for a description alone: those of GGUF have no tokenizer.
    ///
    /// # Errors
    /// As [`open`](Self::open), but for what is wrong with the vocabulary.
    pub fn outline(path: &Path, groups: Groups, dtype: Option<Dtype>) -> Result<ModelFiles> {
        ModelFiles::of(path, |file| Gguf::outline(file, groups, dtype))
    }

    /// The files of the model at `path`, of which one of GGUF is opened by `open`.
    fn of(path: &Path, open: impl FnOnce(&Path) -> Result<Gguf>) -> Result<ModelFiles> {
        let file = match Gguf::is_named(path) && !path.is_dir() {
            true => Some(path.to_owned()),
            false => Gguf::within(path)?,
        };
        match file {
            Some(file) => Ok(ModelFiles::Gguf(open(&file)?.into())),
            None => Ok(ModelFiles::Folder(path.to_owned())),
        }
    }

    /// A path for messages.
    pub fn path(&self, name: &str) -> PathBuf {
        match self {
            ModelFiles::Gguf(file) => file.path.clone(),
            _ => self.folder().join(name),
        }
    }

    /// The folder, for messages.
    pub fn folder(&self) -> PathBuf {
        match self {
            ModelFiles::Folder(folder) => folder.clone(),
            ModelFiles::Gguf(file) => file.path.clone(),
            ModelFiles::Embedded(_) => PathBuf::from(EMBEDDED),
            ModelFiles::Random(_) => PathBuf::from(RANDOM),
        }
    }

    /// Their format and the name that they have for the way of their weights.
    pub fn stored_as(&self) -> StoredAs {
        let (format, quantization) = match self {
            ModelFiles::Folder(_) if !self.has_safetensors() => ("pytorch", ""),
            ModelFiles::Folder(_) | ModelFiles::Embedded(_) => ("safetensors", ""),
            ModelFiles::Gguf(file) => ("gguf", file.file_type.as_str()),
            ModelFiles::Random(_) => ("", ""),
        };
        StoredAs { format: format.to_owned(), quantization: quantization.to_owned() }
    }

    /// The text of a configuration file without a byte order mark, `None` where there is none.
    ///
    /// # Errors
    /// A file that cannot be read, is too large or is not UTF-8.
    pub fn text(&self, name: &str) -> Result<Option<String>> {
        let path = self.path(name);
        let bytes = self.read(name, MAX_TEXT_BYTES).map_err(|error| match error {
            ReadError::Io(error) => load(&path, error),
            ReadError::TooLarge(size) => {
                load(&path, format!("has {size} bytes, at most {MAX_TEXT_BYTES} are read"))
            }
            ReadError::NotAFile => load(&path, "is not a file"),
        })?;
        let text = bytes.map(|bytes| utf8_text(&bytes).map(str::to_owned)).transpose();
        text.map_err(|error| load(&path, error))
    }

    /// The text of a file that must be there.
    ///
    /// # Errors
    /// As [`text`](Self::text), and a file that is missing.
    pub fn required_text(&self, name: &str) -> Result<String> {
        if let ModelFiles::Folder(folder) = self {
            match fs::metadata(folder) {
                Ok(data) if data.is_dir() => {}
                Ok(_) => return Err(load(folder, "is not a folder")),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Err(load(folder, "no such folder"));
                }
                Err(error) => return Err(load(folder, error)),
            }
        }
        self.text(name)?.ok_or_else(|| load(&self.path(name), "the file is missing"))
    }

    /// Returns true when the file is there.
    pub fn exists(&self, name: &str) -> bool {
        match self {
            ModelFiles::Folder(folder) => folder.join(name).is_file(),
            ModelFiles::Embedded(files) => files.iter().any(|(file, _)| *file == name),
            ModelFiles::Gguf(file) => file.text(name).is_some(),
            ModelFiles::Random(_) => matches!(name, "config.json" | "tokenizer.json"),
        }
    }

    /// The bytes of an embedded file; none for other files.
    pub fn embedded(&self, name: &str) -> &'static [u8] {
        match self {
            ModelFiles::Folder(_) | ModelFiles::Gguf(_) | ModelFiles::Random(_) => &[],
            ModelFiles::Embedded(files) => {
                files.iter().find(|(file, _)| *file == name).map_or(&[][..], |(_, bytes)| bytes)
            }
        }
    }

    /// Returns true where a file of safetensors is there. A folder that cannot be listed has some.
    pub fn has_safetensors(&self) -> bool {
        let names = self.names();
        names.map_or(true, |names| names.iter().any(|name| name.ends_with(".safetensors")))
    }

    /// The names of all files, sorted.
    ///
    /// # Errors
    /// A folder that cannot be listed.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut names: Vec<String> = match self {
            ModelFiles::Embedded(files) => files.iter().map(|(name, _)| (*name).into()).collect(),
            ModelFiles::Gguf(file) => file.names().map(str::to_owned).collect(),
            ModelFiles::Random(_) => vec!["config.json".into(), "tokenizer.json".into()],
            ModelFiles::Folder(folder) => {
                let entries = fs::read_dir(folder).map_err(|error| load(folder, error))?;
                entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
            }
        };
        names.sort();
        Ok(names)
    }
}

impl Files for ModelFiles {
    fn path(&self, name: &str) -> PathBuf {
        ModelFiles::path(self, name)
    }

    fn read(&self, name: &str, limit: u64) -> Result<Option<Cow<'static, [u8]>>, ReadError> {
        match self {
            ModelFiles::Folder(folder) => Folder(folder).read(name, limit),
            ModelFiles::Embedded(files) => {
                let found = files.iter().find(|(file, _)| *file == name);
                Ok(found.map(|(_, bytes)| Cow::Borrowed(*bytes)))
            }
            ModelFiles::Gguf(file) => match file.text(name) {
                Some(text) if text.len() as u64 > limit => {
                    Err(ReadError::TooLarge(text.len() as u64))
                }
                text => Ok(text.map(|text| Cow::Owned(text.as_bytes().to_vec()))),
            },
            ModelFiles::Random(config) => Ok(match name {
                "config.json" => Some(Cow::Owned(config.as_bytes().to_vec())),
                "tokenizer.json" => Some(Cow::Borrowed(LETTER.as_bytes())),
                _ => None,
            }),
        }
    }

    fn on_disk(&self) -> Option<&Path> {
        match self {
            ModelFiles::Folder(folder) => Some(folder),
            ModelFiles::Embedded(_) | ModelFiles::Gguf(_) | ModelFiles::Random(_) => None,
        }
    }
}
