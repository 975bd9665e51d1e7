//! Which files are those of prefixes, and which of them are in use: all others are left alone.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::cache::lineage::{Lineage, Use, uses};
use crate::cache::stored::Origin;

/// How the names of whole files end.
pub(super) const END: &str = ".prefix";
/// How the names of files end that are being written.
const PARTIAL: &str = ".partial";
/// A file that was written for longer than that was left by a process that ended.
const STALE: Duration = Duration::from_secs(600);
/// Of the files that this process began to write: two loads of a model write beside each other.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// A file of a part of a prefix.
pub(super) struct Listed {
    pub path: PathBuf,
    pub name: String,
    pub bytes: u64,
    /// The owner of the store wrote it.
    pub is_own: bool,
    modified: SystemTime,
    pub last_use: Use,
}

/// The lineages of files that were looked at, by their paths: what a name stands for does not
/// change.
pub(super) type Lineages = HashMap<PathBuf, Lineage>;

/// A name that no other writer of the file `name` has.
pub(super) fn partial(name: &str) -> String {
    let (process, count) = (std::process::id(), BEGUN.fetch_add(1, Ordering::Relaxed));
    format!(".{name}.{process}.{count}{PARTIAL}")
}

pub(super) fn is_own(about: &Metadata, owner: u32) -> bool {
    about.is_file() && about.uid() == owner
}

/// The folders of all models below `root`.
pub(super) fn folders(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let is_folder = |entry: &fs::DirEntry| {
        let is_of_model = entry.file_name().to_str().is_some_and(is_digest);
        is_of_model && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    entries.filter(is_folder).map(|entry| entry.path()).collect()
}

/// The whole files of a model's folder, those first that are missed the least. What processes of
/// `owner` left that ended as they wrote is removed.
pub(super) fn listed(folder: &Path, owner: u32, lineages: &mut Lineages) -> Vec<Listed> {
    let mut listed = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().into_string());
        let Some(about) = entry.metadata().ok().filter(Metadata::is_file) else { continue };
        let (Ok(name), Ok(modified)) = (name, about.modified()) else { continue };
        let is_own = is_own(&about, owner);
        if is_whole(&name) {
            let (bytes, last_use) = (about.len(), Use::NONE);
            if !lineages.contains_key(&path) {
                let file = File::open(&path).ok().filter(|_| is_own);
                let origin = file.and_then(|mut file| Origin::read(&mut file, bytes));
                lineages.extend(origin.map(|origin| (path.clone(), Lineage::new(&origin))));
            }
            listed.push(Listed { path, name, bytes, is_own, modified, last_use });
        } else if is_own && is_partial(&name) && modified.elapsed().is_ok_and(|age| age > STALE) {
            let _ = fs::remove_file(&path);
        }
    }
    let known = listed.iter().map(|file| (lineages.get(&file.path), file.modified));
    let known: Vec<_> = known.collect();
    let uses = uses(&known);
    for (file, last_use) in listed.iter_mut().zip(uses) {
        file.last_use = last_use;
    }
    listed.sort_by_key(|file| file.last_use);
    listed
}

/// Returns true for a name that [`hex`](crate::cache::hex) can make of half a digest.
fn is_digest(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_whole(name: &str) -> bool {
    name.strip_suffix(END).is_some_and(is_digest)
}

/// Returns true for a name that [`partial`] can make.
fn is_partial(name: &str) -> bool {
    let inner = name.strip_prefix('.').and_then(|name| name.strip_suffix(PARTIAL));
    let Some((inner, count)) = inner.and_then(|inner| inner.rsplit_once('.')) else { return false };
    let Some((whole, process)) = inner.rsplit_once('.') else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(count) && is_number(process) && is_whole(whole)
}
