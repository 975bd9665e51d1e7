//! The user's files: text read whole, and results that replace a file whole.

mod lines;
mod refusal;
mod replace;

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use inference_core::utf8_text;
use rustix::fs::OFlags;

pub use lines::Lines;
use refusal::{failed, not_regular, too_long};
pub use replace::{Access, check_replaceable, replace};

use crate::failure::{Failure, Result, reason};

/// A longer text fits no context; an endless one, such as a device, must end somewhere.
const MAX_BYTES: u64 = 64 << 20;

/// Returns true when `path` stands for stdin.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The text in the file at `path`, for a flag: `-` is stdin, and a pipe such as `<(command)` is
/// read to its end. A byte order mark in front is taken off.
///
/// # Errors
/// Names the file, and its encoding or the first byte that is not UTF-8.
pub fn read(path: &Path) -> Result<String> {
    if is_stdin(path) {
        return read_stdin();
    }
    read_all(File::open(path).map_err(|error| failed(path, &error))?, &name(path))
}

/// The text in the regular file at `path`, without waiting: who types at a prompt cannot get out of
/// a pipe that nobody writes to.
///
/// # Errors
/// As [`read`], and anything but a regular file.
pub fn read_regular(path: &Path) -> Result<String> {
    read_all(regular(path)?, &name(path))
}

fn regular(path: &Path) -> Result<File> {
    // Opening a pipe waits for its other end, unless it is told not to.
    let no_wait = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(no_wait).open(path);
    let file = file.map_err(|error| failed(path, &error))?;
    let kind = file.metadata().map_err(|error| failed(path, &error))?.file_type();
    if !kind.is_file() {
        return Err(not_regular(path, kind));
    }
    Ok(file)
}

/// The bytes of the regular file at `path`, without waiting.
///
/// # Errors
/// As [`read_regular`], but for the text.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    bytes_of(regular(path)?, MAX_BYTES, &name(path))
}

/// All of the file at `path`, for a flag: a pipe such as `<(command)` is read to its end.
///
/// # Errors
/// As [`read`], but for the text.
pub fn read_bytes_for_flag(path: &Path) -> Result<Vec<u8>> {
    read_bytes_up_to(MAX_BYTES, path)
}

/// [`read_bytes_for_flag`], of a file that may have so many bytes.
///
/// # Errors
/// As [`read_bytes_for_flag`].
pub fn read_bytes_up_to(most: u64, path: &Path) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(|error| failed(path, &error))?;
    let kind = file.metadata().map_err(|error| failed(path, &error))?.file_type();
    if kind.is_dir() {
        return Err(not_regular(path, kind));
    }
    bytes_of(file, most, &name(path))
}

/// All of a file with sound of at most `most` bytes: `-` is stdin, and a pipe is read to its end.
///
/// # Errors
/// As [`read_bytes_for_flag`].
pub fn read_sound(most: usize, path: &Path) -> Result<Vec<u8>> {
    match is_stdin(path) {
        true => bytes_of(io::stdin(), most as u64, "stdin"),
        false => read_bytes_up_to(most as u64, path),
    }
}

/// Makes the folder at `path` where it is not there.
///
/// # Errors
/// Why it cannot be made.
pub fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| failed(path, &error))
}

/// All of stdin.
///
/// # Errors
/// As [`read`].
pub fn read_stdin() -> Result<String> {
    read_all(io::stdin(), "stdin")
}

/// The lines of the text at `path`, without their ends.
///
/// # Errors
/// As [`read`].
pub fn read_lines(path: &Path) -> Result<Vec<String>> {
    Ok(read(path)?.lines().map(str::to_owned).collect())
}

/// Returns true when a person would have to type the text of stdin.
pub fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// The text of an input that may have no end.
fn read_all(input: impl Read, name: &str) -> Result<String> {
    let bytes = bytes_of(input, MAX_BYTES, name)?;
    let text = utf8_text(&bytes).map_err(|error| Failure::Other(format!("{name}: {error}")))?;
    Ok(text.to_owned())
}

/// The bytes of an input that may have no end.
fn bytes_of(input: impl Read, most: u64, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::Other(format!("{name}: {}", reason(&error))))?;
    if bytes.len() as u64 > most { Err(too_long(name, most)) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests;
