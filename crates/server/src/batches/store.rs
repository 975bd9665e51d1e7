//! The folder with files and batches.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, Semaphore};

use super::record::{Batch, FileRecord, Form, Status};
use crate::config::Batches;

/// The most files and the most batches.
const MOST_FILES: usize = 10_000;
const MOST_BATCHES: usize = 1000;

/// Batches that are over stay so long, in seconds.
const BATCH_STAYS: u64 = 30 * 24 * 3600;

/// Large bodies that come at once.
const UPLOADS: usize = 2;

/// The reason why nothing is kept.
#[derive(Debug)]
pub enum Refused {
    /// A file is longer than one may be.
    FileTooLong,
    /// All files together would take more than they may.
    Full,
    /// There are as many as may be.
    TooMany(&'static str),
    /// A batch reads the file.
    InUse(String),
    /// There is none of the id.
    Absent,
    /// The server ends.
    Ending,
    /// The disk's.
    Disk(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Refused::Disk(error)
    }
}

/// The folder with files and batches. One server has it at a time.
#[derive(Debug)]
pub struct Store {
    bounds: Batches,
    kept: Mutex<Kept>,
    /// Told when a batch is new or is to end.
    pub changed: Notify,
    /// How many large bodies come at once.
    pub uploads: Semaphore,
    /// The server ends.
    ends: AtomicBool,
    /// Locked as long as the folder is this server's.
    lock: File,
}

#[derive(Debug, Default)]
struct Kept {
    files: BTreeMap<String, FileRecord>,
    batches: BTreeMap<String, Batch>,
    /// Bytes of all contents.
    bytes: u64,
    last: u64,
}

impl Store {
    /// Opens the folder that `bounds` name, and makes it where it is not there.
    ///
    /// # Errors
    /// It cannot be used; another server has it.
    pub fn open(bounds: Batches) -> io::Result<Arc<Store>> {
        let folder = &bounds.folder;
        let mut maker = DirBuilder::new();
        maker.recursive(true).mode(0o700);
        maker.create(folder.join("files"))?;
        maker.create(folder.join("batches"))?;
        let lock = File::create(folder.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::other("another server has it"),
            TryLockError::Error(error) => error,
        })?;
        let mut kept = Kept::default();
        for record in records::<FileRecord>(&folder.join("files"))? {
            let path = folder.join("files").join(&record.id);
            match path.metadata() {
                Ok(data) if is_id(&record.id) && data.len() == record.bytes => {
                    kept.last = kept.last.max(record.number);
                    kept.files.insert(record.id.clone(), record);
                }
                _ => tracing::warn!(
                    target: "batches", file = %path.display(), "is not as its record says: passed over"
                ),
            }
        }
        for record in records::<Batch>(&folder.join("batches"))? {
            if is_id(&record.id) {
                kept.last = kept.last.max(record.number);
                kept.batches.insert(record.id.clone(), record);
            }
        }
        for room in ["files", "batches"] {
            for entry in fs::read_dir(folder.join(room))? {
                let entry = entry?;
                let path = entry.path();
                match path.extension().and_then(|end| end.to_str()) {
                    // Of a server that was killed.
                    Some("partial") => fs::remove_file(path)?,
                    Some("json") => {}
                    _ => kept.bytes += entry.metadata()?.len(),
                }
            }
        }
        let uploads = Semaphore::new(UPLOADS);
        let (kept, changed) = (Mutex::new(kept), Notify::new());
        Ok(Arc::new(Store { bounds, kept, changed, uploads, ends: AtomicBool::new(false), lock }))
    }

    /// Tells whoever answers batches to end.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Returns true when batches are answered no more.
    pub fn has_ended(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    /// Lets another server have the folder.
    pub fn unlock(&self) {
        // Where this fails, the end of the process does it.
        let _ = self.lock.unlock();
    }

    /// Its bounds.
    pub fn bounds(&self) -> &Batches {
        &self.bounds
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes room for so many bytes.
    ///
    /// # Errors
    /// There is none.
    pub fn reserve(&self, bytes: u64) -> Result<(), Refused> {
        let mut kept = self.kept();
        if kept.bytes.saturating_add(bytes) > self.bounds.bytes {
            return Err(Refused::Full);
        }
        kept.bytes += bytes;
        Ok(())
    }

    /// Counts bytes that are written whether there is room or not: a few for each request.
    pub fn count_bytes(&self, bytes: u64) {
        let mut kept = self.kept();
        kept.bytes = kept.bytes.saturating_add(bytes);
    }

    /// Gives room back.
    pub fn release(&self, bytes: u64) {
        let mut kept = self.kept();
        kept.bytes = kept.bytes.saturating_sub(bytes);
    }

    /// The place of a file that comes.
    pub fn partial(&self, name: &str) -> PathBuf {
        self.bounds.folder.join("files").join(format!("{name}.partial"))
    }

    /// The content of the file `id`, which must be of this store.
    pub fn content(&self, id: &str) -> PathBuf {
        self.bounds.folder.join("files").join(id)
    }

    /// The part `part` of the batch `id`, which must be of this store.
    pub fn part(&self, id: &str, part: &str) -> PathBuf {
        self.bounds.folder.join("batches").join(format!("{id}.{part}"))
    }

    /// The place of a batch's requests.
    pub fn requests(&self, batch: &Batch) -> PathBuf {
        match &batch.input {
            Some(file) => self.content(file),
            None => self.part(&batch.id, "input"),
        }
    }

    /// Keeps the file at `path`, whose bytes were reserved, as `record` says.
    ///
    /// # Errors
    /// Too many files; the disk's.
    pub fn keep(&self, path: &Path, record: FileRecord) -> Result<FileRecord, Refused> {
        let mut kept = self.kept();
        if kept.files.len() >= MOST_FILES {
            return Err(Refused::TooMany("files"));
        }
        kept.last += 1;
        let record = FileRecord { number: kept.last, ..record };
        // A record without a file is passed over at the start; a file without a record is not.
        self.write(&format!("files/{}.json", record.id), &record)?;
        fs::rename(path, self.content(&record.id))?;
        kept.files.insert(record.id.clone(), record.clone());
        Ok(record)
    }

    /// The file `id`, unless its time is over.
    pub fn file(&self, id: &str, now: u64) -> Option<FileRecord> {
        self.kept().files.get(id).filter(|file| file.expires > now).cloned()
    }

    /// All files, the oldest first.
    pub fn files(&self, now: u64) -> Vec<FileRecord> {
        let kept = self.kept();
        let mut files: Vec<_> =
            kept.files.values().filter(|file| file.expires > now).cloned().collect();
        files.sort_by_key(|file| file.number);
        files
    }

    /// Removes the file `id`.
    ///
    /// # Errors
    /// There is none; a batch reads it; the disk's.
    pub fn remove_file(&self, id: &str) -> Result<(), Refused> {
        let mut kept = self.kept();
        let Some(record) = kept.files.get(id) else { return Err(Refused::Absent) };
        let bytes = record.bytes;
        let reads = |batch: &&Batch| !batch.status.is_over() && batch.input.as_deref() == Some(id);
        if let Some(batch) = kept.batches.values().find(reads) {
            return Err(Refused::InUse(batch.id.clone()));
        }
        fs::remove_file(self.bounds.folder.join(format!("files/{id}.json")))?;
        kept.files.remove(id);
        fs::remove_file(self.content(id))?;
        kept.bytes = kept.bytes.saturating_sub(bytes);
        Ok(())
    }

    /// Keeps a new batch. Where there are too many, the oldest one that is over gives way.
    ///
    /// # Errors
    /// As many go on as may be; the disk's.
    pub fn add(&self, batch: Batch) -> Result<Batch, Refused> {
        let mut kept = self.kept();
        while kept.batches.len() >= MOST_BATCHES {
            let over = kept.batches.values().filter(|batch| batch.status.is_over());
            let oldest = over.min_by_key(|batch| batch.number).map(|batch| batch.id.clone());
            self.forget(&mut kept, &oldest.ok_or(Refused::TooMany("batches"))?)?;
        }
        kept.last += 1;
        let batch = Batch { number: kept.last, ..batch };
        self.write(&format!("batches/{}.json", batch.id), &batch)?;
        kept.batches.insert(batch.id.clone(), batch.clone());
        self.changed.notify_one();
        Ok(batch)
    }

    /// The batch `id`.
    pub fn batch(&self, id: &str) -> Option<Batch> {
        self.kept().batches.get(id).cloned()
    }

    /// All batches of `form`, the oldest first.
    pub fn batches(&self, form: Form) -> Vec<Batch> {
        let kept = self.kept();
        let mut batches: Vec<_> =
            kept.batches.values().filter(|batch| batch.form == form).cloned().collect();
        batches.sort_by_key(|batch| batch.number);
        batches
    }

    /// The oldest batch that is not over.
    pub fn next(&self) -> Option<Batch> {
        let kept = self.kept();
        let open = kept.batches.values().filter(|batch| !batch.status.is_over());
        open.min_by_key(|batch| batch.number).cloned()
    }

    /// Changes the batch `id`, also on the disk.
    ///
    /// # Errors
    /// There is none; the disk's.
    pub fn change(&self, id: &str, change: impl FnOnce(&mut Batch)) -> Result<Batch, Refused> {
        let mut kept = self.kept();
        let mut batch = kept.batches.get(id).cloned().ok_or(Refused::Absent)?;
        change(&mut batch);
        self.write(&format!("batches/{id}.json"), &batch)?;
        kept.batches.insert(batch.id.clone(), batch.clone());
        Ok(batch)
    }

    /// Counts answers and errors of the batch `id`, which its lines tell anew after a restart.
    pub fn count(&self, id: &str, completed: usize, failed: usize) {
        if let Some(batch) = self.kept().batches.get_mut(id) {
            (batch.completed, batch.failed) = (completed, failed);
        }
    }

    /// Asks the batch `id` to end, unless it is over.
    ///
    /// # Errors
    /// There is none; the disk's.
    pub fn cancel(&self, id: &str, now: u64) -> Result<Batch, Refused> {
        let batch = self.change(id, |batch| {
            if !batch.status.is_over() && batch.status != Status::Finalizing {
                batch.status = Status::Cancelling;
                batch.cancelling.get_or_insert(now);
            }
        })?;
        self.changed.notify_one();
        Ok(batch)
    }

    /// Removes the batch `id`, which must be over.
    ///
    /// # Errors
    /// There is none, it is not over, the disk's.
    pub fn remove(&self, id: &str) -> Result<(), Refused> {
        let mut kept = self.kept();
        match kept.batches.get(id).map(|batch| batch.status.is_over()) {
            None => Err(Refused::Absent),
            Some(false) => Err(Refused::InUse(id.to_owned())),
            Some(true) => self.forget(&mut kept, id),
        }
    }

    fn forget(&self, kept: &mut Kept, id: &str) -> Result<(), Refused> {
        fs::remove_file(self.part(id, "json"))?;
        kept.batches.remove(id);
        for part in ["input", "output", "errors"] {
            let path = self.part(id, part);
            if let Ok(data) = path.metadata() {
                fs::remove_file(path)?;
                kept.bytes = kept.bytes.saturating_sub(data.len());
            }
        }
        Ok(())
    }

    /// Removes what has had its time.
    pub fn sweep(&self, now: u64) {
        let (files, batches) = {
            let kept = self.kept();
            let files = kept.files.values().filter(|file| file.expires <= now);
            let over = |batch: &&Batch| {
                batch.status.is_over()
                    && batch.ended.is_some_and(|ended| ended + BATCH_STAYS <= now)
            };
            let batches = kept.batches.values().filter(over);
            let files: Vec<_> = files.map(|file| file.id.clone()).collect();
            (files, batches.map(|batch| batch.id.clone()).collect::<Vec<_>>())
        };
        for id in files {
            // One that a batch reads goes with a later look.
            let _ = self.remove_file(&id);
        }
        for id in batches {
            if let Err(error) = self.remove(&id) {
                tracing::warn!(target: "batches", id, ?error, "a batch that is over stays");
            }
        }
    }

    /// Writes a record so that it is there whole or not at all.
    fn write(&self, name: &str, record: &impl Serialize) -> io::Result<()> {
        let path = self.bounds.folder.join(name);
        let partial = path.with_extension("json.partial");
        let mut file = File::create(&partial)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(partial, path)
    }
}

/// The records in `folder`. One that cannot be read stays, and the log says so.
fn records<T: DeserializeOwned>(folder: &Path) -> io::Result<Vec<T>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != "json") {
            continue;
        }
        match serde_json::from_slice(&fs::read(&path)?) {
            Ok(record) => found.push(record),
            Err(error) => tracing::warn!(
                target: "batches", file = %path.display(), %error, "no record: passed over"
            ),
        }
    }
    Ok(found)
}

/// Returns true for ids that a store gives.
fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}
