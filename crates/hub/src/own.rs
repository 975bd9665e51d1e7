//! Files of the cache, which others may write to: what is opened is a regular file, and what is
//! read has a bound.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Most bytes of a file that says which commit a branch means.
pub const MOST_REFERENCE: u64 = 4 << 10;
/// Most bytes of an index of shards: those of the largest models have some 20 MB.
pub const MOST_INDEX: u64 = 64 << 20;

/// Opens a file that is this cache's alone, to be read and appended to; it is made where it is not
/// there.
///
/// # Errors
/// A link, which is not followed; what is no regular file, or has another name as well; and the
/// system's.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true);
    // A named pipe would be waited for.
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => refused("a link"),
        Some(code) if code == rustix::io::Errno::NXIO.raw_os_error() => refused("no regular file"),
        _ => error,
    })?;
    let found = file.metadata()?;
    check_regular(&found)?;
    match found.nlink() {
        0 | 1 => Ok(file),
        _ => Err(refused("a file with other names")),
    }
}

/// Opens a file to be locked or read; links are followed.
///
/// # Errors
/// [`io::Error`] for a path that is no regular file, and the system's.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
}

/// The bytes of a file, at most `most`.
///
/// # Errors
/// [`io::Error`] for a path that is no regular file or has more, and the system's.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_to_read(path)?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    if length <= most {
        // The file may grow meanwhile.
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    }
    if length.max(bytes.len() as u64) > most {
        let reason = format!("it has more than {most} bytes: remove it");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(bytes)
}

/// The text of a file, at most `most` bytes.
///
/// # Errors
/// As [`read`]'s, and what is no UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(io::Error::other)
}

fn check_regular(found: &Metadata) -> io::Result<()> {
    if found.is_file() { Ok(()) } else { Err(refused("no regular file")) }
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}: remove it"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("own"), "own").unwrap();
        assert!(open(&at("own")).is_ok() && open(&at("new")).is_ok());
        symlink(at("own"), at("link")).unwrap();
        fs::hard_link(at("own"), at("twin")).unwrap();
        let status = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(status.success());
        for (name, told) in [("link", "a link"), ("twin", "other names"), ("pipe", "no regular")] {
            let error = open(&at(name)).unwrap_err().to_string();
            assert!(error.contains(told) && error.contains("remove it"), "{name}: {error}");
        }
        assert!(read(&at("pipe"), 9).is_err() && read(Path::new("/dev/zero"), 9).is_err());
        assert_eq!(read_text(&at("link"), 3).unwrap(), "own");
        assert!(read(&at("own"), 2).unwrap_err().to_string().contains("more than 2 bytes"));
    }
}
