//! The index of sharded weights (`*.safetensors.index.json`), which may be of other weights than
//! those beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::own;

const WEIGHTS: &str = ".safetensors";
/// Most bytes of the header of a file of weights, which is safetensors' own bound.
const MOST_HEADER: u64 = 100_000_000;

/// Which file has which tensor.
#[derive(Debug, Deserialize)]
pub struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Index {
    /// Reads an index.
    ///
    /// # Errors
    /// A text that is no index.
    pub fn read(text: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(text)
    }

    /// The names of the shards, each once.
    pub fn shards(&self) -> BTreeSet<&str> {
        self.weight_map.values().map(|shard| &**shard).collect()
    }
}

/// The shards that the index at `path` names and that are not in `folder`, unless other files there
/// have their tensors. An index that cannot be read names none.
pub fn lacking(path: &Path, folder: &Path) -> Vec<String> {
    let text = own::read(path, own::MOST_INDEX).unwrap_or_default();
    let Ok(index) = Index::read(&text) else { return Vec::new() };
    let is_absent = |shard: &&str| !folder.join(shard).is_file();
    let absent: BTreeSet<&str> = index.shards().into_iter().filter(is_absent).collect();
    if absent.is_empty() {
        return Vec::new();
    }
    let there = tensors_in(folder);
    let needed = index.weight_map.iter().filter(|(tensor, _)| !there.contains(*tensor));
    let needed: BTreeSet<&str> = needed.map(|(_, shard)| &**shard).collect();
    absent.intersection(&needed).map(|shard| (*shard).to_owned()).collect()
}

/// Returns true for the names of two shards of one set.
///
/// `model-00001-of-00002` and `model-00002-of-00002` are of one.
pub fn are_of_one_set(one: &str, other: &str) -> bool {
    let set = |name: &str| {
        let (rest, of) = name.strip_suffix(WEIGHTS)?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        (is_number(number) && is_number(of)).then(|| (stem.to_owned(), of.to_owned()))
    };
    set(one).is_some_and(|one| set(other) == Some(one))
}

/// The names of all tensors of the files of weights in a folder.
fn tensors_in(folder: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let weights = files.filter(|file| file.to_str().is_some_and(|file| file.ends_with(WEIGHTS)));
    weights.filter_map(|file| tensors(&file).ok()).flatten().collect()
}

fn tensors(file: &Path) -> io::Result<Vec<String>> {
    let mut file = own::open_to_read(file)?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    // The length is the file's own word: no more than that much is read, and no more than there is.
    if length > MOST_HEADER {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header)?;
    let header: BTreeMap<String, IgnoredAny> = serde_json::from_slice(&header)?;
    Ok(header.into_keys().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_of_one_set_differ_in_their_numbers_alone() {
        let one = "model-00001-of-00002.safetensors";
        assert!(are_of_one_set(one, "model-00002-of-00002.safetensors"));
        for other in [
            "model-00001-of-00003.safetensors",
            "x-00001-of-00002.safetensors",
            "model.safetensors",
        ] {
            assert!(!are_of_one_set(one, other) && !are_of_one_set(other, one), "{other}");
        }
    }
}
