//! Finding model folders on disk.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// A folder that looks like a model: `config.json` and at least one safetensors file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredModel {
    /// The folder.
    pub path: PathBuf,
    /// How many safetensors files it holds.
    pub num_files: usize,
    /// Their sizes in bytes, added up.
    pub weight_bytes: u64,
}

/// The model folders at and directly under `dir`, sorted by path.
///
/// Entries that cannot be read are passed over: one unreadable folder hides no other.
///
/// # Errors
/// [`Error::Load`] when `dir` itself cannot be listed.
pub fn discover(dir: &Path) -> Result<Vec<DiscoveredModel>> {
    let entries = fs::read_dir(dir).map_err(|error| Error::Load {
        path: dir.display().to_string(),
        reason: error.to_string(),
    })?;
    let children = entries.filter_map(|entry| entry.ok().map(|e| e.path()));
    let mut found: Vec<_> =
        std::iter::once(dir.to_owned()).chain(children).filter_map(|path| inspect(&path)).collect();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn inspect(path: &Path) -> Option<DiscoveredModel> {
    if !path.join("config.json").is_file() {
        return None;
    }
    let sizes: Vec<u64> = fs::read_dir(path)
        .ok()?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|file| file.extension().is_some_and(|ext| ext == "safetensors"))
        .filter_map(|file| fs::metadata(file).ok())
        .filter(|meta| meta.is_file())
        .map(|meta| meta.len())
        .collect();
    (!sizes.is_empty()).then(|| DiscoveredModel {
        path: path.to_owned(),
        num_files: sizes.len(),
        weight_bytes: sizes.iter().sum(),
    })
}
