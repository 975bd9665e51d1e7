//! Finished folders: made under another name, marked last, moved into place whole.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::Error;

/// A folder that is either finished, for a stated content, or to be made again.
#[derive(Debug)]
pub struct Stamped {
    /// The folder.
    pub dir: PathBuf,
}

impl Stamped {
    /// The file that marks the folder as finished and says what is in it.
    pub fn stamp(&self) -> PathBuf {
        self.dir.join(".finished")
    }

    /// What the folder holds, or `None` when it is not finished.
    pub fn content(&self) -> Option<String> {
        fs::read_to_string(self.stamp()).ok()
    }

    /// Makes the folder: `fill` writes into an empty one beside it, which takes its place.
    ///
    /// The stamp is dated `since`, a time before the work began: cargo runs a build
    /// script again when a file is younger than the script's last start.
    ///
    /// # Errors
    /// Those of `fill`, and of the file system.
    pub fn make(
        &self,
        content: &str,
        since: SystemTime,
        fill: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let partial = self.partial();
        remove(&partial)?;
        fs::create_dir_all(&partial).map_err(Error::io("create", &partial))?;
        fill(&partial)?;

        let stamp = partial.join(".finished");
        fs::write(&stamp, content).map_err(Error::io("write", &stamp))?;
        let file = File::options().write(true).open(&stamp).map_err(Error::io("open", &stamp))?;
        file.set_modified(since).map_err(Error::io("date", &stamp))?;
        remove(&self.dir)?;
        fs::rename(&partial, &self.dir).map_err(Error::io("move into place", &partial))
    }

    /// Where the folder is made; what an interrupted build left there is thrown away.
    pub fn partial(&self) -> PathBuf {
        self.dir.with_extension("partial")
    }
}

fn remove(dir: &Path) -> Result<(), Error> {
    if dir.exists() { fs::remove_dir_all(dir).map_err(Error::io("remove", dir)) } else { Ok(()) }
}
