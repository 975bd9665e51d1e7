//! Finding model folders on disk.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The kind of a model in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelKind {
    /// It has a `config.json`, or is a file of GGUF, or has one: [`load_model`](crate::load_model).
    Text,
    /// It has a `model_index.json`, or the folders of mflux, and a folder for each component:
    /// [`load_image_model`](crate::load_image_model).
    Image,
}

/// Returns the kind of the model at `path`, by its files.
///
/// They are `model_index.json` (diffusers' layout), `config.json`, or neither and the folders
/// `transformer`, `text_encoder` and `vae` (mflux's layout), or one file of GGUF. Such a file is a
/// model by itself too.
pub fn model_kind(path: &Path) -> Option<ModelKind> {
    folder_kind(path).or_else(|| {
        let count = match is_gguf(path) {
            true => 1,
            false => children(path)?.filter(|path| is_gguf_model(path)).count(),
        };
        (count == 1).then_some(ModelKind::Text)
    })
}

/// Returns the kind of a folder by the files that describe it.
fn folder_kind(path: &Path) -> Option<ModelKind> {
    const COMPONENTS: [&str; 3] = ["transformer", "text_encoder", "vae"];
    if path.join("model_index.json").is_file() {
        Some(ModelKind::Image)
    } else if path.join("config.json").is_file() {
        Some(ModelKind::Text)
    } else {
        COMPONENTS.iter().all(|name| path.join(name).is_dir()).then_some(ModelKind::Image)
    }
}

/// Returns true when `path` is a file with a name of GGUF. One that follows another
/// (`NAME-00002-of-00003.gguf`) does not count.
pub fn is_gguf(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    is_named_gguf(path) && part(stem).is_none_or(|(_, number, _)| number == 1) && path.is_file()
}

/// Returns true when a file in a folder is a model in GGUF: [`is_gguf`], and no file beside models.
/// Such are projectors of pictures (`mmproj`), statistics of quantising (`imatrix`), and drafters
/// of a model (`mtp-`, `dflash-`, `eagle3-`).
pub fn is_gguf_model(path: &Path) -> bool {
    const DRAFTS: [&str; 3] = ["mtp-", "dflash-", "eagle3-"];
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let small = stem.to_ascii_lowercase();
    let stands_beside = small.contains("mmproj")
        || small.starts_with("imatrix")
        || small.ends_with("imatrix")
        || DRAFTS.iter().any(|start| small.starts_with(start));
    is_gguf(path) && !stands_beside
}

fn is_named_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"))
}

/// Of `NAME-00001-of-00003`, the name, the number of the file, and that of all.
fn part(stem: &str) -> Option<(&str, usize, usize)> {
    let (rest, of) = stem.rsplit_once("-of-")?;
    let (whole, number) = rest.rsplit_once('-')?;
    let has_form = [number, of].iter().all(|number| number.len() == 5);
    if has_form { Some((whole, number.parse().ok()?, of.parse().ok()?)) } else { None }
}

/// The sizes of a model in GGUF, whose first file is at `path`.
fn gguf_sizes(path: &Path) -> Option<Vec<u64>> {
    let size = |path: &Path| Some(fs::metadata(path).ok()?.len());
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let Some((whole, _, count)) = part(stem) else { return Some(vec![size(path)?]) };
    let parts = (1..=count).map(|at| format!("{whole}-{at:05}-of-{count:05}.gguf"));
    // Its loading tells of a part that is missing.
    Some(parts.filter_map(|name| size(&path.with_file_name(name))).collect())
}

/// A model found on disk, by the names of its files.
///
/// It is `config.json` and at least one safetensors file, or a file of GGUF or a folder with one.
/// Or it is folders of components, of which at least one has a safetensors file (see
/// [`model_kind`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredModel {
    /// The folder, or the file.
    pub path: PathBuf,
    /// The kind of the model.
    pub kind: ModelKind,
    /// How many files of weights it holds.
    pub num_files: usize,
    /// Their sizes in bytes, added up.
    pub weight_bytes: u64,
}

/// The models at and directly under `dir`, sorted by path. Where a folder under it has several
/// files of GGUF and nothing else that says what it is, each of these is a model.
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
    // A file of GGUF is told itself, not the folder that it lies in.
    let own = folder_kind(dir).and_then(|kind| inspect(dir, kind));
    let children = entries.filter_map(|entry| entry.ok().map(|e| e.path()));
    let children = children.filter(|path| !is_gguf(path) || is_gguf_model(path));
    let children = children.filter(|path| !is_unfinished(path));
    let mut found: Vec<_> = children.flat_map(|path| inspect_each(&path)).chain(own).collect();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// The folders directly under `dir` in which a model grows, or grew until its process was killed:
/// `.NAME.NUMBER.partial`. They are no models.
pub fn unfinished(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> =
        children(dir).into_iter().flatten().filter(|path| is_unfinished(path)).collect();
    found.sort();
    found
}

fn is_unfinished(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let own = name.strip_prefix('.').and_then(|name| name.strip_suffix(".partial"));
    let number = own.and_then(|own| own.rsplit_once('.')).map_or("", |(_, number)| number);
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    !number.is_empty() && is_number && path.is_dir()
}

/// The model at `path`, or each of a folder's files of GGUF.
fn inspect_each(path: &Path) -> Vec<DiscoveredModel> {
    if let Some(kind) = model_kind(path) {
        return inspect(path, kind).into_iter().collect();
    }
    let files = children(path).into_iter().flatten().filter(|file| is_gguf_model(file));
    files.filter_map(|file| inspect(&file, ModelKind::Text)).collect()
}

fn inspect(path: &Path, kind: ModelKind) -> Option<DiscoveredModel> {
    let sizes: Vec<u64> = match kind {
        ModelKind::Image => {
            let components = children(path)?.filter(|child| child.is_dir());
            components.filter_map(|child| weights(&child, is_safetensors)).flatten().collect()
        }
        ModelKind::Text if is_gguf(path) => gguf_sizes(path)?,
        ModelKind::Text if folder_kind(path).is_none() => {
            gguf_sizes(&children(path)?.find(|path| is_gguf_model(path))?)?
        }
        // Pickled weights count where there are no others, as at the load.
        ModelKind::Text => match weights(path, is_safetensors)? {
            none if none.is_empty() => weights(path, is_pickled)?,
            sizes => sizes,
        },
    };
    (!sizes.is_empty()).then(|| DiscoveredModel {
        path: path.to_owned(),
        kind,
        num_files: sizes.len(),
        weight_bytes: sizes.iter().sum(),
    })
}

fn is_safetensors(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "safetensors")
}

fn is_pickled(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("pytorch_model") && name.ends_with(".bin")
}

/// The sizes of a folder's files of weights.
fn weights(path: &Path, is_weight: fn(&Path) -> bool) -> Option<Vec<u64>> {
    let sizes = children(path)?
        .filter(|file| is_weight(file))
        .filter_map(|file| fs::metadata(file).ok())
        .filter(|meta| meta.is_file())
        .map(|meta| meta.len());
    Some(sizes.collect())
}

fn children(path: &Path) -> Option<impl Iterator<Item = PathBuf>> {
    Some(fs::read_dir(path).ok()?.filter_map(|entry| entry.ok().map(|entry| entry.path())))
}
