//! Taking a model, or one revision of it, out of the cache.

use std::collections::BTreeSet;
use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::cache::{bytes, files_below, is_folder};
use crate::{Cache, Cached, Error, Name, Result, own};

impl Cache {
    /// Removes all of a model, or the one revision that `name` says; how many bytes that frees.
    /// Files that other revisions need stay.
    ///
    /// # Errors
    /// [`Error::NotCached`], [`Error::Busy`] while another process pulls it, and what the system
    /// refuses.
    pub fn remove(&self, name: &Name) -> Result<u64> {
        if name.file().is_some() {
            let whole = name.without_file();
            let revisions = self.revisions(&whole);
            // In each revision its only model: the whole of it.
            let only = |cached: &Cached| match &cached.in_gguf[..] {
                [(label, _)] if !is_folder(&cached.folder) => Some(label.clone()),
                _ => None,
            };
            let first = revisions.first().and_then(only);
            let is_alone = first.is_some() && revisions.iter().all(|cached| only(cached) == first);
            if is_alone && self.find(name).is_ok() {
                return self.remove(&whole);
            }
            let whole = whole.to_string();
            return Err(Error::OneFile { name: name.to_string(), whole });
        }
        let repository = self.repository(name);
        if !repository.folder.is_dir() {
            return Err(self.not_cached(name));
        }
        let _held = hold(name, &repository.locks)?;
        if !name.has_revision() {
            let freed = own_bytes(&files_below(&repository.blobs()));
            fs::remove_dir_all(&repository.folder).map_err(Error::io(&repository.folder))?;
            return Ok(freed);
        }
        let commit = repository.commit(name.revision()).ok_or_else(|| self.not_cached(name))?;
        let snapshot = repository.snapshots().join(&commit);
        if !snapshot.is_dir() {
            return Err(self.not_cached(name));
        }
        let blobs = linked(&snapshot);
        fs::remove_dir_all(&snapshot).map_err(Error::io(&snapshot))?;
        for (reference, _) in repository.references().iter().filter(|(_, means)| *means == commit) {
            let path = repository.reference(reference);
            fs::remove_file(&path).map_err(Error::io(&path))?;
        }
        let others = linked(&repository.snapshots());
        let store = fs::canonicalize(repository.blobs()).unwrap_or_default();
        // A link that leads elsewhere is somebody's own.
        let ours = |blob: &&PathBuf| blob.parent() == Some(&store);
        let unused: Vec<PathBuf> = blobs.difference(&others).filter(ours).cloned().collect();
        let freed = own_bytes(&unused);
        for blob in unused {
            fs::remove_file(&blob).map_err(Error::io(&blob))?;
        }
        Ok(freed)
    }
}

/// Takes every lock of the repository that there is.
fn hold(name: &Name, locks: &Path) -> Result<Vec<File>> {
    let take = |path: PathBuf| {
        let lock = own::open_to_read(&path).map_err(Error::io(&path))?;
        lock.try_lock().map_err(|_| Error::Busy { name: name.to_string() })?;
        Ok(lock)
    };
    files_below(locks).into_iter().map(take).collect()
}

/// The files that links below `folder` lead to.
fn linked(folder: &Path) -> BTreeSet<PathBuf> {
    let target = |link: PathBuf| {
        let target = fs::read_link(&link).ok()?;
        let blobs = link.parent()?.join(target);
        // The blob itself may be a link, into a store that repositories share; it is not followed.
        Some(fs::canonicalize(blobs.parent()?).ok()?.join(blobs.file_name()?))
    };
    files_below(folder).into_iter().filter_map(target).collect()
}

/// The bytes that removing `files` frees: links free nothing.
fn own_bytes(files: &[PathBuf]) -> u64 {
    let own: Vec<_> = files.iter().filter(|file| !file.is_symlink()).cloned().collect();
    bytes(&own)
}
