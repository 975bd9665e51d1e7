//! Why a file cannot be used, with its name.

use std::fs::FileType;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::failure::{Failure, reason};

/// The system's reason why a file cannot be used.
pub fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::Other(format!("{}: {}", path.display(), reason(error)))
}

/// The refusal of what only a regular file can be.
pub fn not_regular(path: &Path, kind: FileType) -> Failure {
    let kind = if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Failure::Other(format!("{}: is {kind}, expected a regular file", path.display()))
}

/// The refusal of what has more than `most` bytes.
pub fn too_long(name: &str, most: u64) -> Failure {
    Failure::Other(format!("{name}: over {} MiB, at most that are read", most >> 20))
}
