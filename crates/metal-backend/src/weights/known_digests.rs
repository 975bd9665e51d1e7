//! The digests of weight files that were read before, so that a load reads them once.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::cache::hex;

/// The name of the file.
const NAME: &str = "weights.digests";
/// The most digests that are kept: the newest ones.
const MOST: usize = 256;
/// The most bytes of the file that are read.
const MOST_BYTES: u64 = 1 << 20;
/// A file that was changed less than that ago may change again without another time: it is read
/// again.
const SETTLED: Duration = Duration::from_secs(2);

/// The known digests of weight files, in a file that belongs to the user alone.
pub(crate) struct KnownDigests {
    path: PathBuf,
    /// A file's state, and the digest of its bytes, both in hexadecimal digits; the newest last.
    lines: Vec<(String, String)>,
    is_changed: bool,
}

impl KnownDigests {
    /// Reads the digests written to `folder`, which nobody else may write. A damaged file counts as
    /// none.
    pub fn read(folder: &Path) -> KnownDigests {
        let path = folder.join(NAME);
        let text = own_text(&path, folder).unwrap_or_default();
        let line = |line: &str| {
            let (state, digest) = line.split_once(' ')?;
            let is_digest =
                digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_digest.then(|| (state.to_owned(), digest.to_owned()))
        };
        let lines = text.lines().filter_map(line).collect();
        KnownDigests { path, lines, is_changed: false }
    }

    /// The digest of the file at `path` in hexadecimal digits: the known one, where the file is as
    /// it was, else what `compute` finds.
    ///
    /// # Errors
    /// A file that cannot be read, or that changes as it is read.
    pub fn of(
        &mut self,
        path: &Path,
        compute: impl FnOnce() -> io::Result<[u8; 32]>,
    ) -> io::Result<String> {
        let before = fs::metadata(path)?;
        let state = state(&before);
        if let Some((_, digest)) = self.lines.iter().find(|(known, _)| *known == state) {
            return Ok(digest.clone());
        }
        let digest = hex(&compute()?);
        if self::state(&fs::metadata(path)?) != state {
            return Err(io::Error::other("the file changes as it is read"));
        }
        if is_settled(&before) {
            self.lines.push((state, digest.clone()));
            self.is_changed = true;
        }
        Ok(digest)
    }

    /// Writes what was learnt. Where that fails, files are read again at the next load.
    pub fn save(&self) {
        if self.is_changed {
            let _ = self.write();
        }
    }

    fn write(&self) -> io::Result<()> {
        let partial = self.path.with_extension(format!("{}.partial", std::process::id()));
        let newest = &self.lines[self.lines.len().saturating_sub(MOST)..];
        let text: String =
            newest.iter().map(|(state, digest)| format!("{state} {digest}\n")).collect();
        let mut file = File::options().write(true).create_new(true).open(&partial)?;
        let written = file
            .set_permissions(Permissions::from_mode(0o600))
            .and_then(|()| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&partial, &self.path));
        written.inspect_err(|_| drop(fs::remove_file(&partial)))
    }
}

/// The text of a plain file that the owner of `folder` wrote.
fn own_text(path: &Path, folder: &Path) -> Option<String> {
    let (about, of_folder) = (fs::symlink_metadata(path).ok()?, fs::metadata(folder).ok()?);
    if !about.is_file() || about.uid() != of_folder.uid() || about.mode() & 0o022 != 0 {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The state of a file, which a change alters: device, inode, size, and times of the last changes.
/// The time of the last change of any kind cannot be set back.
fn state(about: &Metadata) -> String {
    format!(
        "{:x}-{:x}-{:x}-{:x}.{:x}-{:x}.{:x}",
        about.dev(),
        about.ino(),
        about.len(),
        about.mtime(),
        about.mtime_nsec(),
        about.ctime(),
        about.ctime_nsec()
    )
}

/// Returns true when the last change of a file is not recent.
fn is_settled(about: &Metadata) -> bool {
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(about.ctime().max(0) as u64);
    SystemTime::now().duration_since(changed).is_ok_and(|age| age > SETTLED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_once_it_was_changed_and_damage_counts_as_nothing_known() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("own folder");
        // A program that is older than two seconds.
        let settled = std::env::current_exe().expect("a path");
        let mut known = KnownDigests::read(folder.path());
        let first = known.of(&settled, || Ok([1; 32])).expect("a file");
        assert_eq!(first, "01".repeat(32));
        known.save();
        let mut known = KnownDigests::read(folder.path());
        let again = known.of(&settled, || panic!("it is known")).expect("a file");
        assert_eq!(again, first);
        let fresh = folder.path().join("fresh");
        fs::write(&fresh, "a").expect("a writable folder");
        for digest in [2, 3] {
            let found = known.of(&fresh, || Ok([digest; 32])).expect("a file");
            assert_eq!(found, hex(&[digest; 32]), "what was just written may change unseen");
        }
        fs::write(folder.path().join(NAME), "damaged \u{0}\nmore").expect("a writable folder");
        let mut known = KnownDigests::read(folder.path());
        assert_eq!(known.of(&settled, || Ok([4; 32])).expect("a file"), hex(&[4; 32]));
    }
}
