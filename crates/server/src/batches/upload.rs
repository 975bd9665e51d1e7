//! A file that comes.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use super::record::{FileRecord, Purpose};
use super::store::{Refused, Store};

/// A file that comes. Unless it is kept at the end, nothing of it stays.
pub struct Upload {
    store: Arc<Store>,
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Upload {
    /// A file that is put into `store`.
    ///
    /// # Errors
    /// The system's.
    pub async fn begin(store: &Arc<Store>, name: &str) -> io::Result<Upload> {
        let path = store.partial(name);
        let file = File::create(&path).await?;
        Ok(Upload { store: Arc::clone(store), path, file, bytes: 0 })
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// There is no room for them; the system's.
    pub async fn add(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        let count = bytes.len() as u64;
        if self.bytes + count > self.store.bounds().file_bytes {
            return Err(Refused::FileTooLong);
        }
        self.store.reserve(count)?;
        self.bytes += count;
        self.file.write_all(bytes).await.map_err(Refused::Disk)
    }

    /// Keeps the file under the id and the labels of `record`.
    ///
    /// # Errors
    /// Too many files; the system's.
    pub async fn keep(mut self, record: FileRecord) -> Result<FileRecord, Refused> {
        self.file.flush().await.map_err(Refused::Disk)?;
        self.file.sync_all().await.map_err(Refused::Disk)?;
        let record = FileRecord { bytes: self.bytes, purpose: Purpose::Batch, ..record };
        let record = self.store.keep(&self.path, record)?;
        // They are the file's from now on.
        self.bytes = 0;
        Ok(record)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.store.release(self.bytes);
        // It is not there any more where it was kept.
        let _ = std::fs::remove_file(&self.path);
    }
}
