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

    /// The content of the stamp, or `None` when the folder is not finished.
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

    /// The path at which the folder is made; leftovers of an interrupted build are thrown away.
    pub fn partial(&self) -> PathBuf {
        self.dir.with_extension("partial")
    }
}

fn remove(dir: &Path) -> Result<(), Error> {
    if dir.exists() { fs::remove_dir_all(dir).map_err(Error::io("remove", dir)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn fill(text: &'static str) -> impl FnOnce(&Path) -> Result<(), Error> {
        move |out| {
            let file = out.join("file");
            assert!(!file.exists(), "the folder to fill is empty");
            fs::write(&file, text).map_err(Error::io("write", &file))
        }
    }

    #[test]
    fn a_finished_folder_says_what_it_holds_and_can_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Stamped { dir: dir.path().join("dist") };
        assert_eq!(folder.content(), None);
        for text in ["one", "two"] {
            folder.make(text, SystemTime::now(), fill(text)).unwrap();
            assert_eq!(folder.content().as_deref(), Some(text));
            assert_eq!(fs::read_to_string(folder.dir.join("file")).unwrap(), text);
        }
        assert!(!folder.partial().exists());
    }

    #[test]
    fn what_an_interrupted_build_left_is_thrown_away() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Stamped { dir: dir.path().join("dist") };
        for left in [&folder.dir, &folder.partial()] {
            fs::create_dir(left).unwrap();
            fs::write(left.join("file"), "half").unwrap();
        }
        assert_eq!(folder.content(), None);
        folder.make("whole", SystemTime::now(), fill("whole")).unwrap();
        assert_eq!(fs::read_to_string(folder.dir.join("file")).unwrap(), "whole");
    }

    #[test]
    fn a_failure_keeps_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Stamped { dir: dir.path().join("dist") };
        folder.make("one", SystemTime::now(), fill("one")).unwrap();
        let failing = |_: &Path| Err(Error::NotABuildScript { name: "X" });
        folder.make("two", SystemTime::now(), failing).unwrap_err();
        assert_eq!(folder.content().as_deref(), Some("one"));
    }

    #[test]
    fn the_stamp_is_as_old_as_it_was_told_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Stamped { dir: dir.path().join("dist") };
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        folder.make("one", since, fill("one")).unwrap();
        assert_eq!(fs::metadata(folder.stamp()).unwrap().modified().unwrap(), since);
    }
}
