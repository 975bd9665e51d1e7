//! A file is replaced whole or stays as it was.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use super::refusal::{failed, not_regular};
use crate::failure::Result;

/// Who may read a file that was not there before. One that was keeps its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Whom the umask lets.
    Shared,
    /// Its owner alone.
    Private,
}

/// Links that lead from one to the next, as many as the system follows.
const MAX_LINKS: usize = 40;

/// Makes `bytes` the content of the file at `path`. A new file beside it takes its place once it is
/// on the disk, so that a full disk or a crash leaves the earlier content whole. A symbolic link
/// stays, and the file that it leads to is replaced. Mode and owner are kept, as far as the system
/// lets us.
///
/// # Errors
/// Names `path`: what is no regular file, may not be written, or does not fit on the disk.
pub fn replace(path: &Path, bytes: &[u8], access: Access) -> Result<()> {
    let new = New::beside(path, access)?;
    new.write(bytes).map_err(|error| failed(path, &error))
}

/// Makes the new file of [`replace`] and removes it, so that a place that takes none is told before
/// the work.
///
/// # Errors
/// As [`replace`], but for what does not fit on the disk.
pub fn check_replaceable(path: &Path) -> Result<()> {
    New::beside(path, Access::Private).map(drop)
}

/// A new file that is to take the place of another; without it, it goes.
struct New {
    file: NamedTempFile,
    target: PathBuf,
    before: Option<Metadata>,
}

impl New {
    fn beside(path: &Path, access: Access) -> Result<New> {
        let before = match fs::metadata(path) {
            Ok(before) if !before.is_file() => return Err(not_regular(path, before.file_type())),
            Ok(before) => Some(before),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(path, &error)),
        };
        New::made(path, before, access).map_err(|error| failed(path, &error))
    }

    fn made(path: &Path, before: Option<Metadata>, access: Access) -> io::Result<New> {
        let target = end_of_links(path)?;
        // A folder may let us replace a file whose own mode forbids to write it.
        if before.is_some() {
            File::options().write(true).open(&target)?;
        }
        let mode = match (&before, access) {
            (None, Access::Shared) => 0o666,
            _ => 0o600,
        };
        let mut builder = Builder::new();
        builder.prefix(".ml-").permissions(Permissions::from_mode(mode));
        let file = builder.tempfile_in(folder_of(&target))?;
        Ok(New { file, target, before })
    }

    fn write(mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        if let Some(before) = &self.before {
            keep_owner_and_mode(&self.file, before)?;
        }
        self.file.as_file().sync_all()?;
        self.file.persist(&self.target).map_err(|error| error.error)?;
        // The name is on the disk with its folder; not all systems can be asked for that.
        let _ = File::open(folder_of(&self.target)).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn keep_owner_and_mode(file: &NamedTempFile, before: &Metadata) -> io::Result<()> {
    let file = file.as_file();
    let now = file.metadata()?;
    if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
        // Only root may give a file away, and writing into another's file is allowed to others too.
        let _ = fchown(file, Some(before.uid()), Some(before.gid()));
    }
    file.set_permissions(Permissions::from_mode(before.mode() & 0o7777))
}

/// Follows links from `path` to a file that need not be there.
fn end_of_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::symlink_metadata(&path) {
            Ok(data) if data.is_symlink() => {}
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => return Ok(path),
        }
        let link = fs::read_link(&path)?;
        path = path.parent().map_or_else(|| link.clone(), |folder| folder.join(&link));
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;
    use std::process::Command;

    use super::{Access, check_replaceable, replace};

    fn shared(path: &Path, bytes: &[u8]) -> Result<(), String> {
        replace(path, bytes, Access::Shared).map_err(|failure| failure.to_string())
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    /// The names in a folder, sorted: nothing may be left beside the file.
    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for kept in [0o640, 0o600, 0o666, 0o755] {
            fs::write(&path, "a longer text").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(kept)).unwrap();
            shared(&path, b"new").unwrap();
            assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"new".to_vec(), kept));
        }
        check_replaceable(&path).unwrap();
        check_replaceable(&folder.path().join("new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn a_new_file_has_the_mode_of_any_other_or_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let [shared_file, private, other] =
            ["shared", "private", "other"].map(|name| folder.path().join(name));
        shared(&shared_file, b"x").unwrap();
        replace(&private, b"x", Access::Private).unwrap();
        fs::write(&other, "x").unwrap();
        assert_eq!((mode(&shared_file), mode(&private)), (mode(&other), 0o600));
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("inner")).unwrap();
        fs::write(at("inner/file"), "old").unwrap();
        symlink("inner/file", at("near")).unwrap();
        symlink(at("near"), at("far")).unwrap();
        symlink("inner/new", at("ahead")).unwrap();
        shared(&at("far"), b"new").unwrap();
        shared(&at("ahead"), b"made").unwrap();
        for link in ["near", "far", "ahead"] {
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink(), "{link}");
        }
        assert_eq!(fs::read_to_string(at("inner/file")).unwrap(), "new");
        assert_eq!(fs::read_to_string(at("inner/new")).unwrap(), "made");
        symlink("round", at("round")).unwrap();
        assert!(shared(&at("round"), b"x").unwrap_err().contains("round: "));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        symlink("/dev/full", at("device")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for (name, kind) in [("pipe", "a pipe"), ("device", "a device"), ("folder", "a folder")] {
            let error = shared(&at(name), b"x").unwrap_err();
            assert_eq!(check_replaceable(&at(name)).unwrap_err().to_string(), error);
            let told = format!("{}: is {kind}, expected a regular file", at(name).display());
            assert_eq!(error, told);
        }
        assert_eq!(names(folder.path()), ["device", "folder", "pipe"]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_folder_that_takes_no_file_is_told() {
        // Nobody may make a file there, root included.
        let error = shared(Path::new("/sys/kernel/ml-test"), b"x").unwrap_err();
        assert!(error.starts_with("/sys/kernel/ml-test: "), "{error}");
        let checked = check_replaceable(Path::new("/sys/kernel/ml-test")).unwrap_err();
        assert_eq!(checked.to_string(), error);
        let error = shared(Path::new("no/such/folder/file"), b"x").unwrap_err();
        assert_eq!(error, "no/such/folder/file: no such file or directory");
    }
}
