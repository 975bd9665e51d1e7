//! The crate's errors, each with the thing's name and the remedy.

use std::io;
use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model was not found, fetched or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text that names no model.
    #[error(
        "`{name}` is no name of a model: expected ORG/NAME, ORG/NAME@REVISION or ORG/NAME:FILE; {reason}"
    )]
    Name {
        /// The text.
        name: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// A variable of the environment that cannot be used.
    #[error("{variable}: {reason}")]
    Setting {
        /// The variable.
        variable: &'static str,
        /// The fault, and the value expected.
        reason: String,
    },
    /// The model was never pulled, or another revision of it was.
    #[error("{name} is not in the cache {}", .cache.display())]
    NotCached {
        /// The model.
        name: String,
        /// The cache's folder.
        cache: PathBuf,
    },
    /// A pull was cut off, or another program fetched some of the files only.
    #[error("{name} is in the cache without {}", .missing.join(", "))]
    Incomplete {
        /// The model.
        name: String,
        /// The files that are not there.
        missing: Vec<String>,
    },
    /// Nothing may be fetched.
    #[error("{name} cannot be fetched while HF_HUB_OFFLINE is set: unset it")]
    Offline {
        /// The model.
        name: String,
    },
    /// The hub does not have it, or denies that it has.
    #[error("{name}: {reason}")]
    Unknown {
        /// The model.
        name: String,
        /// The remedy.
        reason: String,
    },
    /// The hub does not let us have it.
    #[error("{name}: {reason}")]
    Refused {
        /// The model.
        name: String,
        /// The hub's words, and the remedy.
        reason: String,
    },
    /// The hub's list of a model's files cannot be used.
    #[error("{name}: the hub's list of files cannot be used: {reason}")]
    Listing {
        /// The model.
        name: String,
        /// The fault in the list.
        reason: String,
    },
    /// The repository has no weights that can be read.
    #[error(
        "{name} has no .safetensors or .gguf files of a model, nor pytorch_model*.bin{found}: choose a repository with safetensors, such as a conversion by \
         mlx-community"
    )]
    NoWeights {
        /// The model.
        name: String,
        /// Which weights it has instead, as the message goes on.
        found: String,
    },
    /// Of several models in files of GGUF, none is meant, or more than one.
    #[error("{name}: {reason}, as {name}:{}; there are {}", .labels.first().map_or("FILE", |label| label), .labels.join(", "))]
    Choice {
        /// The model, without a file.
        name: String,
        /// How the choice fails: no file named, none of that name, or several.
        reason: String,
        /// The labels that tell its files apart, such as `Q4_K_M`.
        labels: Vec<String>,
    },
    /// Parts of a model are not removed by themselves.
    #[error("{name} is one file of a model: `ml rm {whole}` removes all of them")]
    OneFile {
        /// The file.
        name: String,
        /// The model.
        whole: String,
    },
    /// The hub did not answer, or not to the end, however often it was asked.
    #[error(
        "{url}: {reason}: check the network (HTTPS_PROXY names a proxy, HF_ENDPOINT another hub); what was fetched is \
             kept, pull again to go on"
    )]
    Network {
        /// The address asked.
        url: String,
        /// The cause of the last failure.
        reason: String,
    },
    /// The bytes that arrived are not those of the file.
    #[error("{file} arrived with the wrong {what}: expected {expected}, found {found}: pull again")]
    Damaged {
        /// The file.
        file: String,
        /// Hash or size.
        what: &'static str,
        /// As the hub tells it.
        expected: String,
        /// As it came.
        found: String,
    },
    /// There is not enough room.
    #[error("{}: {need} bytes are to come and {free} are free: free some, or set HF_HUB_CACHE to another disk", .folder.display())]
    NoRoom {
        /// The cache's folder.
        folder: PathBuf,
        /// Bytes to fetch.
        need: u64,
        /// Bytes that the disk has.
        free: u64,
    },
    /// Another process works on it.
    #[error("{name} is being pulled by another process: wait for it, or end it")]
    Busy {
        /// The model.
        name: String,
    },
    /// A file or folder of the cache.
    #[error("{}: {}", .path.display(), explained(.source))]
    Io {
        /// Its path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl Error {
    /// The error of `path`, for `map_err`.
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Error {
        move |source| Error::Io { path: path.to_owned(), source }
    }
}

/// The system's reason, with the remedy where there is one.
fn explained(error: &io::Error) -> String {
    let text = error.to_string();
    let reason = text.split(" (os error").next().unwrap_or(&text).to_lowercase();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!(
            "{reason}: free some, or set HF_HUB_CACHE to another disk; what was fetched is kept, pull again to go on"
        ),
        io::ErrorKind::FileTooLarge => {
            format!("{reason}: raise the limit of file sizes (`ulimit -f`); pull again to go on")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("{reason}: set HF_HUB_CACHE to a folder that you may write to")
        }
        _ => reason,
    }
}
