//! The folder in which a result grows, and what interrupted runs have left of theirs.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Result, load};

/// The end of such a folder's name.
const END: &str = ".partial";

/// A folder that is removed unless it became whole. Nobody else removes it while it is locked, and
/// the lock ends with the process, however that ends.
pub(super) struct Partial {
    pub path: PathBuf,
    _lock: File,
    is_kept: bool,
}

impl Partial {
    /// Makes the folder in which `target` grows, beside it.
    ///
    /// # Errors
    /// A target that is there or has no name; a folder that cannot be made.
    pub fn create(target: &Path) -> Result<Partial> {
        if target.symlink_metadata().is_ok() {
            return Err(load(target, "is there already; remove it, or choose another folder"));
        }
        if target.file_name().is_none() {
            return Err(load(target, "is no name of a folder"));
        }
        let folder = folder_of(target);
        fs::create_dir_all(folder).map_err(|error| load(folder, error))?;
        let process = std::process::id();
        // A process elsewhere may have the same number and the same folder.
        for number in 0..1000 {
            let own = match number {
                0 => format!("{process}"),
                _ => format!("{process}-{number}"),
            };
            let path = target.with_file_name(name(target, &own));
            match fs::create_dir(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(|error| load(&path, error))?,
            }
            // Whoever looked for remains in between may have taken it for one.
            if let Some((lock, _)) = lock(&path) {
                return Ok(Partial { path, _lock: lock, is_kept: false });
            }
        }
        Err(load(target, "no name is free for the folder in which it grows"))
    }

    /// Gives the folder its name.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn keep(mut self, target: &Path) -> Result<()> {
        fs::rename(&self.path, target).map_err(|error| load(target, error))?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_kept {
            // What cannot be removed is named `.partial`, so nobody takes it for a model.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes what runs for `target` have left whose processes are gone, and says what that was.
pub(super) fn remove_remains(target: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder_of(target)) else { return Vec::new() };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let is_left = |path: &Path| {
        if !is_of(target, path) || path.is_symlink() || !path.is_dir() {
            return false;
        }
        // The lock is held until the folder is gone.
        lock(path).is_some_and(|(_lock, is_sure)| {
            (is_sure || is_old(path)) && fs::remove_dir_all(path).is_ok()
        })
    };
    paths.filter(|path| is_left(path)).collect()
}

/// The folder at `path`, locked; `false` where its file system has no locks. None where another
/// process has it, or it is gone.
fn lock(path: &Path) -> Option<(File, bool)> {
    let folder = File::open(path).ok()?;
    let is_sure = match folder.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => return None,
        Err(TryLockError::Error(_)) => false,
    };
    // It may have been removed, and another one made, before it was locked.
    let (own, found) = (folder.metadata().ok()?, fs::metadata(path).ok()?);
    ((own.dev(), own.ino()) == (found.dev(), found.ino())).then_some((folder, is_sure))
}

/// Returns true when nothing in the folder has changed for a day: no process works on it.
fn is_old(path: &Path) -> bool {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let entries = fs::read_dir(path).into_iter().flatten();
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut all = paths.chain([path.to_owned()]);
    all.all(|path| {
        let changed = path.metadata().and_then(|about| about.modified()).ok();
        changed.and_then(|changed| changed.elapsed().ok()).is_some_and(|age| age > DAY)
    })
}

/// The name of the folder in which `target` grows, in the process `own`.
fn name(target: &Path, own: &str) -> OsString {
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(format!(".{own}{END}"));
    name
}

/// Returns true when `path` has a name of a folder in which `target` grows.
fn is_of(target: &Path, path: &Path) -> bool {
    let bytes = |path: &Path| path.file_name().unwrap_or_default().as_bytes().to_vec();
    let (target, found) = (bytes(target), bytes(path));
    let own = found
        .strip_prefix(b".")
        .and_then(|rest| rest.strip_prefix(&target[..])?.strip_prefix(b"."))
        .and_then(|rest| rest.strip_suffix(END.as_bytes()));
    own.is_some_and(|own| {
        !own.is_empty() && own.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-')
    })
}

/// The folder that `target` is in.
fn folder_of(target: &Path) -> &Path {
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_left_that_is_gone_is_removed_and_what_one_has_stays() {
        let home = tempfile::tempdir().expect("a folder");
        let path = |name: &str| home.path().join(name);
        let target = path("out");
        let running = Partial::create(&target).expect("a folder");
        // As a killed process leaves it, its number may be that of a process that runs.
        let left = [".out.4321.partial", &format!(".out.{}-7.partial", std::process::id())];
        let others = [".out.x.partial", ".out.2.partial.1", ".outer.1.partial", "out.1.partial"];
        for name in left.iter().chain(&others) {
            fs::create_dir(path(name)).expect("a folder");
            fs::write(path(name).join("model.safetensors"), [0; 9]).expect("a file");
        }
        fs::write(path(".out.5.partial"), "a file").expect("a file");
        std::os::unix::fs::symlink(path(others[0]), path(".out.6.partial")).expect("a link");
        let mut found = remove_remains(&target);
        found.sort();
        let mut expected = left.map(path);
        expected.sort();
        assert_eq!(found, expected);
        assert!(left.iter().all(|name| !path(name).exists()));
        assert!(others.iter().all(|name| path(name).join("model.safetensors").exists()));
        assert!(running.path.is_dir() && path(".out.5.partial").exists());
        running.keep(&target).expect("its name is free");
        assert!(target.is_dir() && remove_remains(&target).is_empty());
    }

    #[test]
    fn a_folder_of_the_same_name_elsewhere_is_left_alone() {
        let home = tempfile::tempdir().expect("a folder");
        let target = home.path().join("deep/er/out");
        let first = Partial::create(&target).expect("a folder");
        let second = Partial::create(&target).expect("another one");
        assert_ne!(first.path, second.path);
        let (paths, is_there) = ([first.path.clone(), second.path.clone()], Path::is_dir);
        drop(first);
        assert_eq!(paths.each_ref().map(|path| is_there(path)), [false, true]);
        drop(second);
        assert!(!paths[1].exists());
    }
}
