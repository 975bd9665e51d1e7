//! Fetching a model: what is needed of it, several files at once, and the links that make it count.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::blob::Fetch;
use crate::cache::Repository;
use crate::client::{Client, Patience};
use crate::event::{Event, Planned};
use crate::hash::Hash;
use crate::listing::{File, Listed, Listing};
use crate::select::{INDEX, needed};
use crate::{Cache, Error, Name, Result, Settings, own, space};

/// The list of a repository's files is read up to so many bytes: those of the largest have some 10
/// MB.
const MOST_LISTED: u64 = 64 << 20;
/// Files that are fetched at once where nothing else is asked for.
const CONNECTIONS: usize = 4;

/// A model that was fetched, or was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Forty hexadecimal digits.
    pub commit: String,
    /// The folder with its files.
    pub folder: PathBuf,
    /// The path to load it from: that folder, or a GGUF file in it.
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
    /// The process may be killed at any time: what came is kept, and the next pull goes on from
    /// there. A branch means its new commit only once all files are there.
    ///
    /// # Errors
    /// The hub's refusals, a list that cannot be used, wrong files, and the disk's.
    pub fn run(&self, name: &Name, report: &(dyn Fn(Event<'_>) + Sync)) -> Result<Pulled> {
        if self.settings.offline {
            return Err(Error::Offline { name: name.to_string() });
        }
        let cache = Cache::new(&self.settings.cache);
        let client = Client::new(self.settings, self.patience.clone());
        let stop = AtomicBool::new(false);
        let listing = list(&client, name, &stop, report)?;
        let repository = cache.repository(name);
        let snapshot = repository.snapshots().join(&listing.commit);
        let commit = &listing.commit;
        let fetch =
            Fetch { client: &client, name, commit, repository: &repository, stop: &stop, report };
        let plan = plan(&fetch, &listing)?;
        let files = &plan.files;
        let was_there = repository.folder.exists();
        let fetched = self.fetch(&fetch, &snapshot, &plan);
        if fetched.is_err() && !was_there {
            // A repository that gave nothing leaves nothing.
            repository.remove_empty(&snapshot);
        }
        fetched?;
        if name.revision() != listing.commit {
            let reference = repository.reference(name.revision());
            replace(&reference, &listing.commit).map_err(Error::io(&reference))?;
        }
        let bytes = total(files.iter().map(|file| file.size));
        // Of a model in GGUF, nothing comes but its files, the first part first.
        let first = files.first().filter(|file| file.path.to_ascii_lowercase().ends_with(".gguf"));
        let model = first.map_or_else(|| snapshot.clone(), |file| snapshot.join(&file.path));
        Ok(Pulled { commit: listing.commit, folder: snapshot, model, bytes })
    }

    /// The files of `name` that [`run`](Self::run) would have in the cache. Nothing is written.
    ///
    /// # Errors
    /// The hub's refusals, a list that cannot be used, and a disk without room for them.
    pub fn plan(&self, name: &Name) -> Result<Vec<Planned>> {
        let report = |_: Event<'_>| {};
        let client = Client::new(self.settings, self.patience.clone());
        let stop = AtomicBool::new(false);
        let listing = list(&client, name, &stop, &report)?;
        let repository = &Cache::new(&self.settings.cache).repository(name);
        let commit = &listing.commit;
        let fetch =
            Fetch { client: &client, name, commit, repository, stop: &stop, report: &report };
        let plan = plan(&fetch, &listing)?;
        Ok(plan.files.iter().map(|file| planned(&fetch, file)).collect())
    }

    /// Makes the folders and fetches what is planned.
    fn fetch(&self, fetch: &Fetch<'_>, snapshot: &Path, plan: &Plan) -> Result<()> {
        let repository = fetch.repository;
        for folder in [&repository.blobs(), &repository.locks, &snapshot.to_owned()] {
            fs::create_dir_all(folder).map_err(Error::io(folder))?;
        }
        match &plan.index {
            Some((index, bytes)) if plan.files.contains(index) => fetch.keep(index, bytes)?,
            // Another program may have fetched an index that names what is not there.
            Some((index, _)) => {
                let _ = fs::remove_file(snapshot.join(&index.path));
            }
            None => {}
        }
        self.all(fetch, snapshot, &plan.files)
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

/// The files that a pull fetches.
struct Plan {
    /// The files that are needed.
    files: Vec<File>,
    /// The index of the weights with its content, which told of them.
    index: Option<(File, Vec<u8>)>,
}

/// Finds the files that are needed, by the index of the weights. Writes nothing for it.
fn plan(fetch: &Fetch<'_>, listing: &Listing) -> Result<Plan> {
    let has_index = |file: &&Listed| fetch.name.file().is_none() && file.path == INDEX;
    let index = match listing.files.iter().find(has_index) {
        Some(listed) => {
            let file = complete(fetch, listed)?;
            let bytes = content(fetch, &file)?;
            Some((file, bytes))
        }
        None => None,
    };
    let text = index.as_ref().map(|(_, bytes)| &**bytes);
    let files = needed(fetch.name, listing, text)?;
    let files = files.iter().map(|listed| complete(fetch, listed)).collect::<Result<Vec<_>>>()?;
    let planned: Vec<_> = files.iter().map(|file| planned(fetch, file)).collect();
    let missing = total(planned.iter().map(|file| file.size - file.present));
    // Sizes that no number holds are not told of: who adds them up would be wrong.
    let fits = space::check(&fetch.repository.blobs(), missing);
    if fits.is_ok() || total(files.iter().map(|file| file.size)) < u64::MAX {
        (fetch.report)(Event::Planned { files: &planned });
    }
    fits.map(|()| Plan { files, index })
}

/// The sum of sizes, at most the largest number.
fn total(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// The file with its size and hash, for which the hub is asked where its list has none.
fn complete(fetch: &Fetch<'_>, listed: &Listed) -> Result<File> {
    let path = listed.path.clone();
    if let (Some(size), Some(hash)) = (listed.size, listed.hash.clone()) {
        return Ok(File { path, size, hash });
    }
    let url = fetch.client.file_url(fetch.name, fetch.commit, &path);
    let told = |reason: &str, wait| (fetch.report)(Event::Again { path: &path, reason, wait });
    let facts =
        fetch.client.patiently(&url, fetch.stop, told, || fetch.client.facts(fetch.name, &url))?;
    let tagged = || Hash::of_etag(facts.etag.as_deref()?, &path);
    let (size, hash) = (listed.size.or(facts.size), listed.hash.clone().or_else(tagged));
    let (Some(size), Some(hash)) = (size, hash) else {
        let reason = format!(
            "{path} has no size or no hash, neither there nor in the headers of the file: set HF_ENDPOINT to another \
             mirror, or unset it"
        );
        return Err(Error::Listing { name: fetch.name.to_string(), reason });
    };
    Ok(File { path, size, hash })
}

/// The content of a small file, from the cache or from the hub.
fn content(fetch: &Fetch<'_>, file: &File) -> Result<Vec<u8>> {
    let too_large = |limit: u64| {
        let reason = format!("{} has {} bytes; at most {limit} are read", file.path, file.size);
        Error::Listing { name: fetch.name.to_string(), reason }
    };
    if file.size > own::MOST_INDEX {
        return Err(too_large(own::MOST_INDEX));
    }
    if fetch.is_there(file) {
        let blob = fetch.repository.blob(&file.hash);
        return own::read(&blob, own::MOST_INDEX).map_err(Error::io(&blob));
    }
    let url = fetch.client.file_url(fetch.name, fetch.commit, &file.path);
    let told = |reason: &str, wait| (fetch.report)(Event::Again { path: &file.path, reason, wait });
    let limit = file.size;
    let text = || fetch.client.text(fetch.name, &url, limit);
    let bytes = fetch.client.patiently(&url, fetch.stop, told, text)?;
    let mut hasher = file.hash.hasher(file.size);
    hasher.update(&bytes);
    let found = hasher.digits();
    let (what, expected, found) = match bytes.len() as u64 {
        length if length != file.size => ("size", file.size.to_string(), length.to_string()),
        _ if found != file.hash.digits() => ("hash", file.hash.digits().to_owned(), found),
        _ => return Ok(bytes),
    };
    Err(Error::Damaged { file: file.path.clone(), what, expected, found })
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
    let answer = client.patiently(&url, stop, told, || client.text(name, &url, MOST_LISTED))?;
    Listing::read(name, &answer)
}

fn planned(fetch: &Fetch<'_>, file: &File) -> Planned {
    let begun = || {
        fs::symlink_metadata(fetch.repository.incomplete(&file.hash)).map_or(0, |file| file.len())
    };
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
    let _ = fs::remove_file(&fresh);
    // Not through a link that somebody put there meanwhile.
    fs::File::create_new(&fresh)?.write_all(text.as_bytes())?;
    fs::rename(&fresh, path)
}

/// A name next to `path` that no other process has.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}
