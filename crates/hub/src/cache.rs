//! The cache's layout, which is that of Python's `huggingface_hub`, and what lies in it.
//!
//! ```text
//! CACHE/models--ORG--NAME/blobs/HASH                a file; HASH.incomplete while it is fetched
//!                         refs/REVISION             the commit that a branch or tag means
//!                         snapshots/COMMIT/FILE     a relative link into `blobs`
//! CACHE/.locks/models--ORG--NAME/HASH.lock          held while HASH is fetched
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::gguf;
use crate::hash::Hash;
use crate::index;
use crate::select::{PIPELINE, SAVED_BY_MFLUX};
use crate::{Error, Name, Result, own};

/// A folder of models.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// A revision of a model, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Forty hexadecimal digits.
    pub commit: String,
    /// The folder with its files.
    pub folder: PathBuf,
    /// The path to load it from: that folder, or a GGUF file in it.
    pub model: PathBuf,
}

/// An entry of the cache for a model: a revision of it, or the beginnings of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    /// The repository, without a revision.
    pub name: Name,
    /// The revision's commit; `None` where only the beginnings of files are there.
    pub commit: Option<String>,
    /// The branches and tags that mean the commit.
    pub references: Vec<String>,
    /// The folder with its files.
    pub folder: PathBuf,
    /// Of its files, or of the beginnings.
    pub bytes: u64,
    /// Its models in files of GGUF: what each is called, and the file that it is loaded from.
    pub in_gguf: Vec<(String, PathBuf)>,
    /// The files that it should have and has not.
    pub missing: Vec<String>,
}

/// A repository's places in the cache.
#[derive(Clone, Debug)]
pub(crate) struct Repository {
    pub folder: PathBuf,
    pub locks: PathBuf,
}

impl Repository {
    pub fn blobs(&self) -> PathBuf {
        self.folder.join("blobs")
    }

    pub fn blob(&self, hash: &Hash) -> PathBuf {
        self.blobs().join(hash.digits())
    }

    pub fn incomplete(&self, hash: &Hash) -> PathBuf {
        self.blobs().join(format!("{}.incomplete", hash.digits()))
    }

    pub fn lock(&self, hash: &Hash) -> PathBuf {
        self.locks.join(format!("{}.lock", hash.digits()))
    }

    pub fn snapshots(&self) -> PathBuf {
        self.folder.join("snapshots")
    }

    pub fn reference(&self, revision: &str) -> PathBuf {
        self.folder.join("refs").join(revision)
    }

    /// The commit that a branch, a tag or a commit means here.
    pub fn commit(&self, revision: &str) -> Option<String> {
        let commit = own::read_text(&self.reference(revision), own::MOST_REFERENCE)
            .unwrap_or(revision.to_owned());
        let commit = commit.trim().to_owned();
        matches!(Hash::parse(&commit), Some(Hash::GitSha1(_))).then_some(commit)
    }

    /// All branches and tags, each with its commit.
    pub fn references(&self) -> Vec<(String, String)> {
        let refs = self.folder.join("refs");
        let reference = |path: PathBuf| {
            let name = path.strip_prefix(&refs).ok()?.to_str()?.to_owned();
            Some((name, own::read_text(&path, own::MOST_REFERENCE).ok()?.trim().to_owned()))
        };
        files_below(&refs).into_iter().filter_map(reference).collect()
    }

    /// Removes what a pull made before the hub gave anything: empty beginnings of files, and empty
    /// folders. What another process has a lock of stays.
    pub fn remove_empty(&self, snapshot: &Path) {
        for file in files_below(&self.blobs()) {
            let found = fs::symlink_metadata(&file);
            let is_empty = found.is_ok_and(|found| found.is_file() && found.len() == 0);
            let name = file.file_name().and_then(|name| name.to_str()?.strip_suffix(".incomplete"));
            let Some(hash) = name.filter(|_| is_empty) else { continue };
            // Held until the beginning is gone.
            match own::open_to_read(&self.locks.join(format!("{hash}.lock"))) {
                Ok(lock) if lock.try_lock().is_ok() => drop(fs::remove_file(&file)),
                _ => {}
            }
        }
        // One that is not empty stays, as do those above it.
        for folder in [snapshot, &self.snapshots(), &self.blobs(), &self.folder] {
            let _ = fs::remove_dir(folder);
        }
    }
}

impl Cache {
    /// The cache in `folder`, which need not be there.
    pub fn new(folder: &Path) -> Self {
        Cache { folder: folder.to_owned() }
    }

    pub(crate) fn repository(&self, name: &Name) -> Repository {
        let folder = name.folder();
        Repository {
            locks: self.folder.join(".locks").join(&folder),
            folder: self.folder.join(&folder),
        }
    }

    pub(crate) fn not_cached(&self, name: &Name) -> Error {
        Error::NotCached { name: name.to_string(), cache: self.folder.clone() }
    }

    /// The model `name`, without asking the hub.
    ///
    /// # Errors
    /// [`Error::NotCached`], and [`Error::Incomplete`] where files are missing.
    pub fn find(&self, name: &Name) -> Result<Snapshot> {
        let repository = self.repository(name);
        let commit = repository.commit(name.revision()).ok_or_else(|| self.not_cached(name))?;
        let folder = repository.snapshots().join(&commit);
        if !folder.is_dir() {
            return Err(self.not_cached(name));
        }
        let has_folder = name.file().is_none() && is_folder(&folder);
        let lacking = missing(&folder);
        if !lacking.is_empty() {
            return Err(Error::Incomplete { name: name.to_string(), missing: lacking });
        }
        if has_folder {
            return Ok(Snapshot { commit, model: folder.clone(), folder });
        }
        let paths = paths_below(&folder);
        let files = gguf::chosen(name, paths.iter().map(|path| &**path))?;
        let first = files.and_then(|files| files.first().copied());
        let model = first.map_or_else(|| folder.clone(), |path| folder.join(path));
        Ok(Snapshot { commit, folder, model })
    }

    /// All models, by name and commit. A folder that is no cache, or not there, has none.
    ///
    /// # Errors
    /// A folder that cannot be listed.
    pub fn models(&self) -> Result<Vec<Cached>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io(&self.folder)(error)),
        };
        let names = entries.filter_map(|entry| Name::of_folder(entry.ok()?.file_name().to_str()?));
        let mut models: Vec<_> = names.flat_map(|name| self.revisions(&name)).collect();
        models.sort_by(|one, other| (&one.name, &one.commit).cmp(&(&other.name, &other.commit)));
        Ok(models)
    }

    pub(crate) fn revisions(&self, name: &Name) -> Vec<Cached> {
        let repository = self.repository(name);
        let references = repository.references();
        let cached = |folder: PathBuf| {
            let commit = folder.file_name()?.to_str()?.to_owned();
            let meant = references.iter().filter(|(_, means)| *means == commit);
            Some(Cached {
                name: name.clone(),
                references: meant.map(|(reference, _)| reference.clone()).collect(),
                commit: Some(commit),
                bytes: bytes(&files_below(&folder)),
                in_gguf: in_gguf(&folder),
                missing: missing(&folder),
                folder,
            })
        };
        let snapshots = folders_in(&repository.snapshots()).into_iter();
        let revisions: Vec<_> = snapshots.filter_map(cached).filter(|c| c.bytes > 0).collect();
        if !revisions.is_empty() {
            return revisions;
        }
        let bytes = bytes(&files_below(&repository.blobs()));
        if bytes == 0 {
            return Vec::new();
        }
        let begun = Cached {
            name: name.clone(),
            commit: None,
            references: Vec::new(),
            bytes,
            in_gguf: Vec::new(),
            missing: Vec::new(),
            folder: repository.folder,
        };
        vec![begun]
    }
}

/// The files that a snapshot should have and has not: `config.json` or that of an adapter or a
/// pipeline where it has no model in GGUF, shards that an index names, parts of such a model, and
/// links into nothing.
pub(crate) fn missing(snapshot: &Path) -> Vec<String> {
    let mut missing: Vec<String> = files_below(snapshot)
        .iter()
        .filter(|file| !file.is_file())
        .filter_map(|file| Some(file.strip_prefix(snapshot).ok()?.display().to_string()))
        .collect();
    let paths = paths_below(snapshot);
    let paths = || paths.iter().map(|path| &**path);
    if !is_folder(snapshot) && gguf::labelled(paths()).is_empty() {
        missing.push("config.json".to_owned());
    }
    missing.extend(gguf::lacking(paths()));
    // The index of the model, and those of a pipeline's components. That of pickled weights counts
    // where there are no others.
    let files = files_below(snapshot);
    let ends = |file: &Path, end: &str| file.to_str().is_some_and(|path| path.ends_with(end));
    let has_safetensors = files.iter().any(|file| ends(file, ".safetensors"));
    let indexes = files.iter().filter(|file| {
        ends(file, ".safetensors.index.json") || !has_safetensors && ends(file, ".bin.index.json")
    });
    for path in indexes.filter(|path| path.is_file()) {
        let folder = path.parent().unwrap_or(snapshot);
        let lacking = index::lacking(path, folder);
        let inside = |shard: String| {
            Some(folder.strip_prefix(snapshot).ok()?.join(shard).display().to_string())
        };
        missing.extend(lacking.into_iter().filter_map(inside));
    }
    missing.sort();
    missing.dedup();
    missing
}

/// Returns true for a snapshot whose model is the folder: of text, of pictures, or an adapter.
pub(crate) fn is_folder(snapshot: &Path) -> bool {
    let texts = ["config.json", "adapter_config.json", PIPELINE, SAVED_BY_MFLUX];
    texts.into_iter().any(|name| snapshot.join(name).is_file())
}

/// The models of a snapshot in files of GGUF: what each is called, and its first file.
fn in_gguf(snapshot: &Path) -> Vec<(String, PathBuf)> {
    let paths = paths_below(snapshot);
    let models = gguf::labelled(paths.iter().map(|path| &**path));
    models.into_iter().map(|(label, path)| (label, snapshot.join(path))).collect()
}

/// The paths in `folder` of all files and links below it.
fn paths_below(folder: &Path) -> Vec<String> {
    let path = |file: &PathBuf| Some(file.strip_prefix(folder).ok()?.to_str()?.to_owned());
    files_below(folder).iter().filter_map(path).collect()
}

/// All files and links below `folder`; none where there is no such folder.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                _ => files.push(entry.path()),
            }
        }
    }
    files
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// The total size in bytes of files, or of the files that they link to.
pub(crate) fn bytes(files: &[PathBuf]) -> u64 {
    files
        .iter()
        .filter_map(|file| fs::metadata(file).ok())
        .fold(0, |sum, file| sum.saturating_add(file.len()))
}
