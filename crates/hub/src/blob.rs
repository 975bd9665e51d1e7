//! One file's way into the cache: under a lock, from where an earlier try was cut off, and checked.

use std::fs::{self, File as Handle, TryLockError};
use std::io::{BufReader, Read, Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ureq::Body;
use ureq::http::Response;

use crate::cache::Repository;
use crate::client::{Client, Trouble};
use crate::event::Event;
use crate::hash::Hasher;
use crate::listing::File;
use crate::{Error, Name, Result, own};

/// How often a lock that another process holds is tried.
const LOOK: Duration = Duration::from_millis(100);
const CHUNK: usize = 1 << 17;
/// How often a file is fetched from its beginning again, counted in bytes that came for nothing,
/// beside these.
const AGAIN: u64 = 3;
const AGAIN_BESIDE: u64 = 1 << 20;

/// Context that all files of a pull share.
pub struct Fetch<'a> {
    pub client: &'a Client,
    pub name: &'a Name,
    pub commit: &'a str,
    pub repository: &'a Repository,
    /// Set when another file failed.
    pub stop: &'a AtomicBool,
    pub report: &'a (dyn Fn(Event<'_>) + Sync),
}

/// The beginning of a file, on the disk and in the hash.
struct Partial {
    handle: Handle,
    hasher: Hasher,
    done: u64,
    /// The most that `done` was.
    reached: u64,
    /// Bytes that came and were thrown away.
    in_vain: u64,
    /// Set once the hub gave another part than asked for: then the whole file is requested.
    whole: bool,
}

impl Fetch<'_> {
    /// Makes sure that the blob of `file` is in the cache.
    ///
    /// # Errors
    /// The hub's, the disk's, and [`Error::Damaged`].
    pub fn blob(&self, file: &File) -> Result<()> {
        if self.is_there(file) {
            return Ok(());
        }
        let _lock = self.lock(file)?;
        // Another process may have had it meanwhile.
        if self.is_there(file) {
            return Ok(());
        }
        let path = self.repository.incomplete(&file.hash);
        let mut partial = begin(&path, file)?;
        let resumed = partial.done > 0;
        let found = self.fill(file, &path, &mut partial)?;
        if found != file.hash.digits() && resumed {
            // What was there before may have been wrong, so it gets one try without it.
            partial.restart(&path, file)?;
            partial.reached = 0;
            let found = self.fill(file, &path, &mut partial)?;
            return self.place(file, &path, partial.handle, found);
        }
        self.place(file, &path, partial.handle, found)
    }

    /// A blob of the right size: it was checked when it got its name.
    pub fn is_there(&self, file: &File) -> bool {
        let blob = fs::metadata(self.repository.blob(&file.hash));
        blob.is_ok_and(|blob| blob.is_file() && blob.len() == file.size)
    }

    fn lock(&self, file: &File) -> Result<Handle> {
        let path = self.repository.lock(&file.hash);
        let lock = own::open(&path).map_err(Error::io(&path))?;
        let mut told = false;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::Error(error)) => return Err(Error::io(&path)(error)),
                Err(TryLockError::WouldBlock) => {}
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Busy { name: self.name.to_string() });
            }
            if !told {
                (self.report)(Event::Waiting { path: &file.path });
                told = true;
            }
            thread::sleep(LOOK);
        }
    }

    /// Fetches what is missing; the digits of the whole.
    fn fill(&self, file: &File, path: &Path, partial: &mut Partial) -> Result<String> {
        let url = self.client.file_url(self.name, self.commit, &file.path);
        let told = |reason: &str, wait| {
            (self.report)(Event::Again { path: &file.path, reason, wait });
        };
        (self.report)(Event::Bytes { path: &file.path, done: partial.done });
        self.client.patiently(&url, self.stop, told, || {
            if partial.done == file.size {
                return Ok(());
            }
            let from = if partial.whole { 0 } else { partial.done };
            let answer = self.client.ask(self.name, &url, from)?;
            match begins_at(&answer, from, file)? {
                Some(begin) if begin == partial.done => {}
                Some(0) => partial.restart(path, file).map_err(Trouble::Fatal)?,
                _ => {
                    partial.whole = true;
                    return Err(Trouble::passing("the hub gives another part of the file"));
                }
            }
            if partial.in_vain / AGAIN > file.size.saturating_add(AGAIN_BESIDE) {
                let reason = "the hub cuts the file off and begins it anew, again and again";
                let url = url.split('?').next().unwrap_or(&url).to_owned();
                return Err(Trouble::Fatal(Error::Network { url, reason: reason.to_owned() }));
            }
            self.receive(file, path, partial, answer)
        })?;
        Ok(std::mem::replace(&mut partial.hasher, file.hash.hasher(file.size)).digits())
    }

    fn receive(
        &self,
        file: &File,
        path: &Path,
        partial: &mut Partial,
        answer: Response<Body>,
    ) -> Result<(), Trouble> {
        let mut body = answer.into_body().into_reader();
        let mut buffer = vec![0; CHUNK];
        let mut progressed = false;
        loop {
            let count = match body.read(&mut buffer) {
                Ok(0) if partial.done == file.size => return Ok(()),
                Ok(0) => {
                    let reason = "the connection was cut".to_owned();
                    return Err(Trouble::Passing { reason, wait: None, progressed });
                }
                Ok(count) => count,
                Err(error) => {
                    let reason = error.to_string();
                    return Err(Trouble::Passing { reason, wait: None, progressed });
                }
            };
            if partial.done + count as u64 > file.size {
                let _ = fs::remove_file(path);
                let found = format!("{} or more", partial.done + count as u64);
                return Err(Trouble::Fatal(wrong_size(file, found)));
            }
            let bytes = &buffer[..count];
            partial.handle.write_all(bytes).map_err(Error::io(path)).map_err(Trouble::Fatal)?;
            partial.hasher.update(bytes);
            partial.done += count as u64;
            progressed |= partial.done > partial.reached;
            partial.reached = partial.reached.max(partial.done);
            (self.report)(Event::Bytes { path: &file.path, done: partial.done });
            if self.stop.load(Ordering::Relaxed) {
                return Err(Trouble::passing("another file failed"));
            }
        }
    }

    /// Puts a file of which all bytes are in memory into the cache.
    ///
    /// # Errors
    /// The disk's, and [`Error::Damaged`].
    pub fn keep(&self, file: &File, bytes: &[u8]) -> Result<()> {
        let _lock = self.lock(file)?;
        if self.is_there(file) {
            return Ok(());
        }
        let path = self.repository.incomplete(&file.hash);
        let mut partial = begin(&path, file)?;
        partial.restart(&path, file)?;
        partial.handle.write_all(bytes).map_err(Error::io(&path))?;
        partial.hasher.update(bytes);
        self.place(file, &path, partial.handle, partial.hasher.digits())
    }

    /// Gives the file its name, now that it is whole; a wrong one is removed.
    fn place(&self, file: &File, path: &Path, handle: Handle, found: String) -> Result<()> {
        if found != file.hash.digits() {
            let _ = fs::remove_file(path);
            return Err(Error::Damaged {
                file: file.path.clone(),
                what: "hash",
                expected: file.hash.digits().to_owned(),
                found,
            });
        }
        // The name promises that the content is on the disk.
        handle.sync_data().map_err(Error::io(path))?;
        let blob = self.repository.blob(&file.hash);
        fs::rename(path, &blob).map_err(Error::io(&blob))
    }
}

/// Opens what an earlier try left, and hashes it.
fn begin(path: &Path, file: &File) -> Result<Partial> {
    let handle = own::open(path).map_err(Error::io(path))?;
    let done = handle.metadata().map_err(Error::io(path))?.len();
    let hasher = file.hash.hasher(file.size);
    let mut partial = Partial { handle, hasher, done, reached: 0, in_vain: 0, whole: false };
    if partial.done > file.size {
        partial.restart(path, file)?;
    }
    partial.reached = partial.done;
    partial.hasher.read(BufReader::new(&partial.handle)).map_err(Error::io(path))?;
    Ok(partial)
}

impl Partial {
    fn restart(&mut self, path: &Path, file: &File) -> Result<()> {
        self.handle.set_len(0).map_err(Error::io(path))?;
        self.handle.rewind().map_err(Error::io(path))?;
        self.hasher = file.hash.hasher(file.size);
        self.in_vain = self.in_vain.saturating_add(self.done);
        self.done = 0;
        Ok(())
    }
}

/// The byte at which an answer to a question for those `from` on begins; `None` where it does not
/// say, or has no such part.
///
/// # Errors
/// A file of another size.
fn begins_at(answer: &Response<Body>, from: u64, file: &File) -> Result<Option<u64>, Trouble> {
    match answer.status().as_u16() {
        206 => {}
        416 => return Ok(None),
        _ => return Ok(Some(0)),
    }
    let range = answer.headers().get("content-range").and_then(|range| range.to_str().ok());
    let Some((first, rest)) = range.and_then(|range| range.strip_prefix("bytes ")?.split_once('-'))
    else {
        return Ok(None);
    };
    let size = rest.split_once('/').and_then(|(_, size)| size.trim().parse::<u64>().ok());
    match size.filter(|size| *size != file.size) {
        Some(found) => Err(Trouble::Fatal(wrong_size(file, found.to_string()))),
        None => Ok(first.trim().parse().ok().filter(|first| [0, from].contains(first))),
    }
}

fn wrong_size(file: &File, found: String) -> Error {
    let expected = file.size.to_string();
    Error::Damaged { file: file.path.clone(), what: "size", expected, found }
}
