//! Fetching a model: what is needed of it, several files at once, and the links that make it count.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::blob::Fetch;
use crate::cache::Repository;
use crate::client::{Client, Patience};
use crate::event::{Event, Planned};
use crate::listing::{File, Listing};
use crate::select::{INDEX, needed};
use crate::{Cache, Error, Name, Result, Settings, space};

/// Files that are fetched at once where nothing else is asked for.
const CONNECTIONS: usize = 4;

/// A model that was fetched, or was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Forty hexadecimal digits.
    pub commit: String,
    /// The folder with its files.
    pub folder: PathBuf,
    /// What it is loaded from: that folder, or a file of GGUF in it.
    pub model: PathBuf,
    /// Of all of its files.
    pub bytes: u64,
}

/// How models are fetched.
#[derive(Clone, Debug)]
pub struct Pull<'a> {
    /// The hub and the cache.
    pub settings: &'a Settings,
    /// Files that are fetched at once, at least 1 [default: 4].
    pub connections: usize,
    /// How long the hub is asked again.
    pub patience: Patience,
}

impl<'a> Pull<'a> {
    /// The usual way.
    pub fn new(settings: &'a Settings) -> Self {
        Pull { settings, connections: CONNECTIONS, patience: Patience::default() }
    }

    /// Fetches what is missing of `name`, and tells `report` of it from several threads.
    ///
    /// The process may be killed at any time: what came is kept, and the next pull goes on from there. A
    /// branch means its new commit only once all files are there.
    ///
    /// # Errors
    /// The hub's refusals, a list that cannot be used, wrong files, and the disk's.
    pub fn run(&self, name: &Name, report: &(dyn Fn(Event<'_>) + Sync)) -> Result<Pulled> {
        if self.settings.offline {
            return Err(Error::Offline { name: name.to_string() });
        }
        let client = Client::new(self.settings, self.patience.clone());
        let stop = AtomicBool::new(false);
        let listing = list(&client, name, &stop, report)?;
        let repository = Cache::new(&self.settings.cache).repository(name);
        let snapshot = repository.snapshots().join(&listing.commit);
        for folder in [&repository.blobs(), &repository.locks, &snapshot] {
            fs::create_dir_all(folder).map_err(Error::io(folder))?;
        }
        let commit = &listing.commit;
        let fetch =
            Fetch { client: &client, name, commit, repository: &repository, stop: &stop, report };
        let files = self.plan(&fetch, &listing)?;
        self.all(&fetch, &snapshot, &files)?;
        if name.revision() != listing.commit {
            let reference = repository.reference(name.revision());
            replace(&reference, &listing.commit).map_err(Error::io(&reference))?;
        }
        let bytes = files.iter().map(|file| file.size).sum();
        // Of a model in GGUF, nothing comes but its files, the first part first.
        let first = files.first().filter(|file| file.path.to_ascii_lowercase().ends_with(".gguf"));
        let model = first.map_or_else(|| snapshot.clone(), |file| snapshot.join(&file.path));
        Ok(Pulled { commit: listing.commit, folder: snapshot, model, bytes })
    }

    /// What is needed, which the index of the weights tells; it is fetched for that.
    fn plan(&self, fetch: &Fetch<'_>, listing: &Listing) -> Result<Vec<File>> {
        let has_index = |file: &&File| fetch.name.file().is_none() && file.path == INDEX;
        let index = listing.files.iter().find(has_index);
        let index = match index {
            Some(file) => {
                fetch.blob(file)?;
                let blob = fetch.repository.blob(&file.hash);
                Some(fs::read(&blob).map_err(Error::io(&blob))?)
            }
            None => None,
        };
        let files = needed(fetch.name, listing, index.as_deref())?;
        let planned: Vec<_> = files.iter().map(|file| planned(fetch, file)).collect();
        (fetch.report)(Event::Planned { files: &planned });
        let missing = planned.iter().map(|file| file.size - file.present).sum();
        space::check(&fetch.repository.blobs(), missing)?;
        Ok(files)
    }

    /// Fetches and links `files`, until one fails.
    fn all(&self, fetch: &Fetch<'_>, snapshot: &Path, files: &[File]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let work = || {
            while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                if fetch.stop.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(error) =
                    fetch.blob(file).and_then(|()| link(fetch.repository, snapshot, file))
                {
                    // Before the others are stopped, whose errors say no more than that.
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    fetch.stop.store(true, Ordering::Relaxed);
                    return;
                }
                (fetch.report)(Event::Done { path: &file.path });
            }
        };
        thread::scope(|scope| {
            for _ in 0..self.connections.clamp(1, files.len().max(1)) {
                scope.spawn(work);
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

fn list(
    client: &Client,
    name: &Name,
    stop: &AtomicBool,
    report: &(dyn Fn(Event<'_>) + Sync),
) -> Result<Listing> {
    let url = client.listing_url(name);
    let path = "the list of files";
    let told = |reason: &str, wait| report(Event::Again { path, reason, wait });
    let answer = client.patiently(&url, stop, told, || client.text(name, &url))?;
    Listing::read(name, &answer)
}

fn planned(fetch: &Fetch<'_>, file: &File) -> Planned {
    let begun =
        || fs::metadata(fetch.repository.incomplete(&file.hash)).map_or(0, |file| file.len());
    let present = if fetch.is_there(file) { file.size } else { begun().min(file.size) };
    Planned { path: file.path.clone(), size: file.size, present }
}

/// Shows the blob of `file` in the snapshot, by a relative link, so that the cache can be moved.
fn link(repository: &Repository, snapshot: &Path, file: &File) -> Result<()> {
    let path = snapshot.join(&file.path);
    let shown = |path: &Path| fs::canonicalize(path).ok();
    if shown(&path).is_some() && shown(&path) == shown(&repository.blob(&file.hash)) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(snapshot);
    fs::create_dir_all(folder).map_err(Error::io(folder))?;
    let up = "../".repeat(2 + file.path.matches('/').count());
    let target = format!("{up}blobs/{}", file.hash.digits());
    let fresh = beside(&path);
    let _ = fs::remove_file(&fresh);
    std::os::unix::fs::symlink(target, &fresh).map_err(Error::io(&path))?;
    fs::rename(&fresh, &path).map_err(Error::io(&path))
}

/// Writes `text` in place of what `path` had, in one step.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let fresh = beside(path);
    fs::write(&fresh, text)?;
    fs::rename(&fresh, path)
}

/// A name next to `path` that no other process has.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}
