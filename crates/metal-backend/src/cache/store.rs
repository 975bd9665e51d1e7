//! Prefixes on disk: what a prefix cache keeps, in files that the next load of the same model
//! reads.
//!
//! Each file holds the keys and values of consecutive blocks, or the state at the end of one, and
//! the ids from the root on. Its name is made of these ids, so that what is there already is not
//! written again. A file appears under its name once it is whole, and ends with a digest of all
//! before; what does not fit is left alone and told.

mod files;

use std::collections::HashSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use self::files::{END, Lineages, Listed, folders, is_own, listed, partial};
use super::prefix::PrefixCache;
use super::stored::{Stored, hex};
use crate::error::{Result, load};

/// Bytes of the files of all models where nothing is said of them.
const BUDGET: u64 = 8 << 30;
/// Bytes of the digest at the end of a file.
const DIGEST: usize = 32;
/// Who alone may read and write what lies here: prompts can be told from keys and values.
const PRIVATE: u32 = 0o700;

/// The files of one model's prefixes.
pub(crate) struct PrefixStore {
    /// Of all models.
    root: PathBuf,
    /// Of this one, as it was loaded.
    folder: PathBuf,
    /// Bytes that the files of all models may take.
    budget: u64,
    owner: u32,
    /// The names of this model's files.
    names: HashSet<String>,
    /// Of the files of all models.
    lineages: Lineages,
    /// Bytes of the files of all models, as far as this process knows.
    bytes: u64,
    /// Notices that users have not been shown yet.
    notices: Vec<String>,
    /// Nothing can be written any more.
    is_off: bool,
}

impl PrefixStore {
    /// The files below `root` of the model whose digest is `key`, within `budget` bytes for those
    /// of all models. Where none was given, what is there has room: another process may have been
    /// given more.
    ///
    /// # Errors
    /// A folder that cannot be made or written, or that others may write.
    pub fn open(root: &Path, key: &[u8; 32], budget: Option<u64>) -> Result<PrefixStore> {
        let folder = root.join(hex(&key[..16]));
        PrefixStore::prepare(root)?;
        let owner = PrefixStore::prepare(&folder)?;
        let mut store = PrefixStore {
            root: root.to_owned(),
            folder,
            budget: budget.unwrap_or(u64::MAX),
            owner,
            names: HashSet::new(),
            lineages: Lineages::new(),
            bytes: 0,
            notices: Vec::new(),
            is_off: false,
        };
        store.trim();
        store.budget = budget.unwrap_or(BUDGET.max(store.bytes));
        Ok(store)
    }

    /// Makes `folder` where it is not there, for the user alone; the owner.
    ///
    /// # Errors
    /// A folder that cannot be made or written, or that others may write.
    pub fn prepare(folder: &Path) -> Result<u32> {
        if !folder.is_dir() {
            fs::create_dir_all(folder).map_err(|error| load(folder, error))?;
            let private = Permissions::from_mode(PRIVATE);
            fs::set_permissions(folder, private).map_err(|error| load(folder, error))?;
        }
        let probe = folder.join(partial(&("0".repeat(32) + END)));
        let own = File::create(&probe).and_then(|file| file.metadata());
        let owner = own.map_err(|error| load(folder, error))?.uid();
        fs::remove_file(&probe).map_err(|error| load(&probe, error))?;
        let about = fs::metadata(folder).map_err(|error| load(folder, error))?;
        if about.uid() != owner || about.mode() & 0o022 != 0 {
            let reason = "others may write there, and so change answers: make it yours alone (`chmod 700`), or choose another folder";
            return Err(load(folder, reason));
        }
        Ok(owner)
    }

    /// Fills `prefixes` with what the files hold of so many `layers`, what was used last first,
    /// within `most` bytes.
    pub fn restore(&mut self, prefixes: &mut PrefixCache, layers: usize, most: u64) {
        let listed = listed(&self.folder, self.owner, &mut self.lineages);
        let (mut stored, mut bytes) = (Vec::new(), 0);
        for file in listed.into_iter().rev() {
            if file.last_use.is_orphan() {
                self.names.insert(file.name);
                continue;
            }
            bytes += file.bytes;
            if bytes > most {
                self.names.insert(file.name);
                continue;
            }
            match read(&file.path, self.owner) {
                Ok(one) if one.layers() == layers => {
                    self.names.insert(file.name);
                    stored.push((file.path, one));
                }
                // What it was to hold is written anew in its place.
                Ok(_) => self.leave(&file.path, "it has other layers"),
                Err(error) => self.leave(&file.path, &error.to_string()),
            }
        }
        // What follows a prefix comes behind it.
        stored.sort_by_key(|(_, one)| (one.ids.len(), one.is_state()));
        for (path, one) in stored {
            let name = one.name() + END;
            if let Err(error) = prefixes.restore(one) {
                self.names.remove(&name);
                self.leave(&path, &error.to_string());
            }
        }
    }

    /// Writes one thing that `prefixes` holds and no file does; false where there is none.
    pub fn write_one(&mut self, prefixes: &mut PrefixCache) -> bool {
        if self.is_off {
            return false;
        }
        let Some(unsaved) = prefixes.unsaved() else { return false };
        let written = unsaved.and_then(|one| self.write(&one));
        if let Err(error) = written {
            self.is_off = true;
            let folder = self.folder.display();
            self.notices.push(format!("{folder}: no more prefixes are written: {error}"));
        }
        !self.is_off
    }

    /// Writes all that `prefixes` holds, and notes that it is in use.
    pub fn finish(&mut self, prefixes: &mut PrefixCache) {
        while self.write_one(prefixes) {}
        let now = SystemTime::now();
        for name in prefixes.files() {
            let path = self.folder.join(format!("{name}{END}"));
            // A file that another process removed is no loss.
            let _ = File::open(path).and_then(|file| file.set_modified(now));
        }
    }

    /// Takes the notices for users since the last call.
    pub fn notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn write(&mut self, one: &Stored) -> Result<()> {
        let name = one.name() + END;
        if self.names.contains(&name) {
            return Ok(());
        }
        let path = self.folder.join(&name);
        let partial = self.folder.join(partial(&name));
        let bytes = write_whole(&partial, one).inspect_err(|_| {
            // What is left of it is removed once it is stale.
            let _ = fs::remove_file(&partial);
        })?;
        match fs::rename(&partial, &path) {
            // Another process removed it as a stale one: the prefix is computed anew.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            renamed => renamed.map_err(|error| load(&path, error))?,
        }
        self.names.insert(name);
        self.bytes += bytes;
        if self.bytes > self.budget {
            self.trim();
        }
        Ok(())
    }

    /// Removes the files that were used the longest time ago, and what follows a prefix before it,
    /// until the others fit the budget. What can never be used goes first.
    fn trim(&mut self) {
        let mut files: Vec<Listed> = Vec::new();
        for folder in folders(&self.root) {
            files.extend(listed(&folder, self.owner, &mut self.lineages));
        }
        files.retain(|file| file.is_own);
        let paths: HashSet<&Path> = files.iter().map(|file| &*file.path).collect();
        self.lineages.retain(|path, _| paths.contains(&**path));
        files.sort_by_key(|file| file.last_use);
        self.bytes = files.iter().map(|file| file.bytes).sum();
        for file in files {
            if self.bytes <= self.budget {
                break;
            }
            if fs::remove_file(&file.path).is_ok() {
                self.bytes -= file.bytes;
                if file.path.parent() == Some(&self.folder) {
                    self.names.remove(&file.name);
                }
            }
        }
    }

    /// Takes note that a file was not read, and why.
    fn leave(&mut self, path: &Path, why: &str) {
        self.notices.push(format!("{}: not read: {why}", path.display()));
    }
}

/// Writes a file with the digest at its end; its bytes. A power cut may leave it damaged, which the
/// digest tells.
fn write_whole(path: &Path, one: &Stored) -> Result<u64> {
    let mut file = File::create(path).map_err(|error| load(path, error))?;
    file.set_permissions(Permissions::from_mode(0o600)).map_err(|error| load(path, error))?;
    let (mut digest, mut bytes) = (Sha256::new(), 0);
    one.write(&mut |part| {
        digest.update(part);
        bytes += part.len() as u64;
        file.write_all(part).map_err(|error| load(path, error))
    })?;
    file.write_all(&digest.finalize()).map_err(|error| load(path, error))?;
    Ok(bytes + DIGEST as u64)
}

/// Reads a file that `owner` wrote.
fn read(path: &Path, owner: u32) -> Result<Stored> {
    let io = |error: io::Error| load(path, error);
    let mut file = File::open(path).map_err(io)?;
    if !is_own(&file.metadata().map_err(io)?, owner) {
        return Err(load(path, "another user wrote it"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(io)?;
    let damaged = || load(path, "is damaged: remove it");
    let (content, digest) =
        bytes.len().checked_sub(DIGEST).map(|at| bytes.split_at(at)).ok_or_else(damaged)?;
    if Sha256::digest(content).as_slice() != digest {
        return Err(damaged());
    }
    Stored::read(content).ok_or_else(damaged)
}
