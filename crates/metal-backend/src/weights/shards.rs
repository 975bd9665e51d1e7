//! Which files hold the weights of a model, whatever an index beside them says.
//!
//! Files that `torch.save` wrote hold them in a folder without safetensors.
//!
//! A file's header says which tensors lie in it. An index only tells which files belong to the
//! model: people copy folders whose index is that of another save, and the files themselves are
//! right.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use super::pickled;
use super::source::TensorHeader;
use crate::error::{Error, Result, load};
use crate::files::ModelFiles;

/// The beginnings of weight files' names: in a model's folder, and in those of diffusers'
/// components.
const STEMS: [&str; 2] = ["model", "diffusion_pytorch_model"];
/// Their beginning in earlier programs (`weights.00.safetensors`).
const OLD_STEM: &str = "weight";
/// The beginning and the end of the names of pickled weights, and their index.
const PICKLED: [&str; 2] = ["pytorch_model", ".bin"];
const PICKLED_INDEX: &str = "pytorch_model.bin.index.json";
/// Beginnings of the names of files that hold something else.
const OTHERS: [&str; 3] = ["adapter", "consolidated", "optimizer"];

/// The file of each tensor, as an index has it.
pub(super) type Index = BTreeMap<String, String>;

impl ModelFiles {
    /// The headers of all tensors of a folder, by name.
    ///
    /// A file with all weights goes before parts, as in transformers. Files that an index names go
    /// before others, from which comes what these lack.
    ///
    /// # Errors
    /// No weight files; a damaged file; a tensor in two files of which the index names neither.
    pub(super) fn found_headers(&self) -> Result<BTreeMap<String, TensorHeader>> {
        let index = self.index();
        let files = self.weight_files(&index)?;
        let mut all: BTreeMap<String, TensorHeader> = BTreeMap::new();
        for name in &files {
            for (tensor, found) in self.headers_of(name)? {
                let before = all.get(&tensor).map(TensorHeader::file);
                let is_listed =
                    |file: &str| index.get(&tensor).is_some_and(|listed| listed == file);
                match before {
                    Some(other) if is_listed(other) => {}
                    Some(_) if !is_listed(name) => return Err(self.is_twice(&tensor, name)),
                    _ => drop(all.insert(tensor, found)),
                }
            }
        }
        if index.is_empty() || matches!(&files[..], [file] if is_whole(file)) {
            return Ok(all);
        }
        let mut of_others = BTreeMap::new();
        for name in self.names()?.iter().filter(|name| is_weights(name) && !files.contains(name)) {
            // What a model needs of a damaged one is missing then, and told by name.
            for (tensor, found) in self.headers_of(name).unwrap_or_default() {
                if all.contains_key(&tensor) {
                    continue;
                }
                if of_others.insert(tensor.clone(), found).is_some() {
                    return Err(self.is_twice(&tensor, name));
                }
            }
        }
        all.extend(of_others);
        Ok(all)
    }

    /// The headers of the tensors in one file of weights, of either form.
    fn headers_of(&self, name: &str) -> Result<BTreeMap<String, TensorHeader>> {
        match self {
            ModelFiles::Folder(_) if pickled::is_named(name) => {
                pickled::headers(&self.path(name), name)
            }
            _ => self.headers_in(name),
        }
    }

    fn is_twice(&self, tensor: &str, name: &str) -> Error {
        load(&self.path(name), format!("tensor `{tensor}` is in another file of the model too"))
    }

    /// Says that a tensor is missing, with the file in which the index has it.
    pub(super) fn missing(&self, tensor: &str) -> String {
        let index = self.index();
        match index.iter().find(|(name, _)| name.ends_with(tensor) || tensor.ends_with(*name)) {
            None => format!("tensor `{tensor}` is missing"),
            Some((_, file)) => {
                let state = match self.exists(file) {
                    true => "which does not have it: fetch the whole model again",
                    false => "which is not in the folder: fetch the rest of the model",
                };
                let index = self.index_name();
                format!("tensor `{tensor}` is missing: `{index}` names the file `{file}`, {state}")
            }
        }
    }

    /// Which file each tensor lies in, as the index has it; nothing where there is none, or one
    /// that is damaged. Names that lead out of the folder are left aside.
    fn index(&self) -> Index {
        let text = self.text(&self.index_name()).ok().flatten();
        text.map(|text| parse_index(&text)).unwrap_or_default()
    }

    /// The name of the index: the first one that is there.
    fn index_name(&self) -> String {
        let mut names = STEMS.map(|stem| format!("{stem}.safetensors.index.json")).into_iter();
        let first = names.next().unwrap_or_default();
        if self.exists(&first) {
            return first;
        }
        let is_pickled = !self.has_safetensors() && self.exists(PICKLED_INDEX);
        let pickled = is_pickled.then(|| PICKLED_INDEX.to_owned());
        names.find(|name| self.exists(name)).or(pickled).unwrap_or(first)
    }

    /// The names of the files that hold the model.
    fn weight_files(&self, index: &Index) -> Result<Vec<String>> {
        let names = self.names()?;
        let listed: BTreeSet<&String> = index.values().filter(|name| self.exists(name)).collect();
        let is_pickled_whole = |name: &str| name == PICKLED.concat() && !self.has_safetensors();
        let whole = names.iter().find(|name| is_whole(name) || is_pickled_whole(name));
        if let Some(whole) = whole.filter(|whole| !listed.contains(whole)) {
            return Ok(vec![whole.clone()]);
        }
        if !listed.is_empty() {
            return Ok(listed.into_iter().cloned().collect());
        }
        let of = |is: &dyn Fn(&str) -> bool| -> Vec<String> {
            names.iter().filter(|name| is(name)).cloned().collect()
        };
        let known = of(&is_weights);
        if !known.is_empty() {
            return Ok(known);
        }
        let old = of(&|name| is_safetensors(name) && name.starts_with(OLD_STEM));
        if !old.is_empty() {
            return Ok(old);
        }
        // One file of any name can be nothing else.
        match &of(&|name| {
            is_safetensors(name) && !OTHERS.iter().any(|other| name.starts_with(other))
        })[..]
        {
            [only] => return Ok(vec![only.clone()]),
            [] => {}
            _ => return Err(load(&self.folder(), LACK)),
        }
        let pickled = of(&is_pickled);
        if !pickled.is_empty() {
            return Ok(pickled);
        }
        let pickled =
            of(&|name| name.ends_with(".pth") || name.ends_with(".pt") || name == "model.bin");
        match &pickled[..] {
            [only] => Ok(vec![only.clone()]),
            [] => Err(load(&self.folder(), LACK)),
            several => Err(load(
                &self.folder(),
                format!("{LACK}; `{}` is one of {} pickled ones", several[0], several.len()),
            )),
        }
    }
}

/// The lack of weights in a folder.
const LACK: &str = "no file `model*.safetensors` or `pytorch_model*.bin` is in the folder";

/// Returns true for the name of a file of pickled weights.
fn is_pickled(name: &str) -> bool {
    let [start, end] = PICKLED;
    name.starts_with(start) && name.ends_with(end)
}

/// Returns true for the name of a file that holds all weights of a model.
fn is_whole(name: &str) -> bool {
    STEMS.iter().any(|stem| name.strip_prefix(stem) == Some(".safetensors"))
}

fn is_safetensors(name: &str) -> bool {
    name.ends_with(".safetensors")
}

fn is_weights(name: &str) -> bool {
    is_safetensors(name) && STEMS.iter().any(|stem| name.starts_with(stem))
}

/// The file of each tensor; only plain names in the model's own folder.
fn parse_index(text: &str) -> Index {
    let index: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let map = index.get("weight_map").and_then(serde_json::Value::as_object);
    let plain = |(tensor, file): (&String, &serde_json::Value)| {
        let file = file.as_str()?;
        let mut parts = Path::new(file).components();
        let is_plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
            && !file.contains(['\\', '/']);
        is_plain.then(|| (tensor.clone(), file.to_owned()))
    };
    map.into_iter().flatten().filter_map(plain).collect()
}
