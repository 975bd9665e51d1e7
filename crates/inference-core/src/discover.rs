//! Finding model folders on disk.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// What a model folder is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelKind {
    /// It has a `config.json`: [`load_model`](crate::load_model).
    Text,
    /// It has a `model_index.json`, or the folders of mflux, and a folder for each component:
    /// [`load_image_model`](crate::load_image_model).
    Image,
}

/// What the folder at `path` is for, by the files that it has: `model_index.json` (diffusers' layout),
/// `config.json`, or neither and the folders `transformer`, `text_encoder` and `vae` (mflux's layout).
pub fn model_kind(path: &Path) -> Option<ModelKind> {
    const COMPONENTS: [&str; 3] = ["transformer", "text_encoder", "vae"];
    if path.join("model_index.json").is_file() {
        Some(ModelKind::Image)
    } else if path.join("config.json").is_file() {
        Some(ModelKind::Text)
    } else {
        COMPONENTS.iter().all(|name| path.join(name).is_dir()).then_some(ModelKind::Image)
    }
}

/// A folder that looks like a model: `config.json` and at least one safetensors file, or
/// folders of components of which at least one has such a file (see [`model_kind`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredModel {
    /// The folder.
    pub path: PathBuf,
    /// What it is for.
    pub kind: ModelKind,
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
    let kind = model_kind(path)?;
    let sizes: Vec<u64> = match kind {
        ModelKind::Image => {
            let components = children(path)?.filter(|child| child.is_dir());
            components.filter_map(|child| weights(&child)).flatten().collect()
        }
        ModelKind::Text => weights(path)?,
    };
    (!sizes.is_empty()).then(|| DiscoveredModel {
        path: path.to_owned(),
        kind,
        num_files: sizes.len(),
        weight_bytes: sizes.iter().sum(),
    })
}

/// The sizes of a folder's safetensors files.
fn weights(path: &Path) -> Option<Vec<u64>> {
    let sizes = children(path)?
        .filter(|file| file.extension().is_some_and(|ext| ext == "safetensors"))
        .filter_map(|file| fs::metadata(file).ok())
        .filter(|meta| meta.is_file())
        .map(|meta| meta.len());
    Some(sizes.collect())
}

fn children(path: &Path) -> Option<impl Iterator<Item = PathBuf>> {
    Some(fs::read_dir(path).ok()?.filter_map(|entry| entry.ok().map(|entry| entry.path())))
}
