//! Voices: tables of styles, one for each number of phonemes, in files of their own.

use std::path::{Path, PathBuf};

use inference_core::{Error, Result};
use mlx_ffi::{Dtype, ops};

use crate::error::load;
use crate::files::ModelFiles;

/// The voice that is taken where none is asked for, if there is it.
const USUAL: &str = "af_heart";
/// The most voices that are mixed.
const MOST: usize = 8;
/// The most styles of a voice.
const MOST_ROWS: i32 = 1 << 12;

/// The voices beside a model.
#[derive(Clone, Debug)]
pub(super) struct Voices {
    folder: PathBuf,
    /// Sorted.
    names: Vec<String>,
}

/// A table of styles.
#[derive(Debug)]
pub(super) struct Voice {
    values: Vec<f32>,
    size: usize,
}

impl Voice {
    /// Numbers of phonemes that it has styles for.
    pub fn rows(&self) -> usize {
        self.values.len() / self.size
    }

    /// The style of a piece of so many phonemes.
    pub fn style(&self, phonemes: usize) -> &[f32] {
        let row = phonemes.clamp(1, self.rows()) - 1;
        &self.values[row * self.size..(row + 1) * self.size]
    }
}

impl Voices {
    /// Lists the voices of the model in `path`.
    ///
    /// # Errors
    /// No voices, or voices in files of torch.
    pub fn list(path: &Path) -> crate::error::Result<Voices> {
        let folder = path.join("voices");
        let files = std::fs::read_dir(&folder).map_err(|error| load(&folder, error))?;
        let files: Vec<String> =
            files.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let of = |end: &str| -> Vec<String> {
            let names = files.iter().filter_map(|name| name.strip_suffix(end));
            names.filter(|name| !name.starts_with('.')).map(str::to_owned).collect()
        };
        let mut names = of(".safetensors");
        names.sort();
        if names.is_empty() {
            let reason = match of(".pt").first() {
                None => "no file `*.safetensors` is in the folder: a voice is one".to_owned(),
                Some(name) => format!(
                    "voices are read from safetensors here; save `{name}.pt` anew with Python: \
                     `import torch, safetensors.torch as s; s.save_file({{'voice': \
                     torch.load('{name}.pt', weights_only=True).contiguous()}}, '{name}.safetensors')`"
                ),
            };
            return Err(load(&folder, reason));
        }
        Ok(Voices { folder, names })
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The voice that is taken where none is asked for.
    pub fn usual(&self) -> Option<&str> {
        let usual = self.names.iter().find(|name| *name == USUAL);
        usual.or(self.names.first()).map(String::as_str)
    }

    /// That each voice of `asked`, names with commas between them, is there.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with those that are.
    pub fn check(&self, asked: &str) -> Result<()> {
        let refused = |reason: String| Err(Error::InvalidOption { option: "voice", reason });
        if asked.split(',').count() > MOST {
            return refused(format!("more than {MOST} voices are not mixed"));
        }
        match asked.split(',').map(str::trim).find(|name| !self.names.iter().any(|n| n == name)) {
            None => Ok(()),
            Some(name) => refused(format!(
                "`{name}` is not one of the model's voices: {}",
                self.names.join(", ")
            )),
        }
    }

    /// The voice `asked`, or the mean of several, whose styles have `size` values. It is read anew
    /// each time: that takes a millisecond.
    ///
    /// # Errors
    /// A file that is damaged, or has another table.
    pub fn read(&self, asked: &str, size: usize) -> Result<Voice> {
        let all = asked.split(',').map(|name| self.table(name.trim(), size));
        let all: Vec<Vec<f32>> = all.collect::<crate::error::Result<_>>()?;
        let rows = all.iter().map(Vec::len).min().unwrap_or(0);
        let mean = |at: usize| all.iter().map(|table| table[at]).sum::<f32>() / all.len() as f32;
        Ok(Voice { values: (0..rows).map(mean).collect(), size })
    }

    fn table(&self, name: &str, size: usize) -> crate::error::Result<Vec<f32>> {
        let files = ModelFiles::Folder(self.folder.clone());
        let file = format!("{name}.safetensors");
        let path = files.path(&file);
        let headers = files.headers_in(&file)?;
        let found = headers.into_values().collect::<Vec<_>>();
        let [header] = &found[..] else {
            return Err(load(&path, format!("has {} tensors, expected one", found.len())));
        };
        let fits = match header.shape[..] {
            [rows, 1, width] | [rows, width] => {
                (1..=MOST_ROWS).contains(&rows) && width as usize == size
            }
            _ => false,
        };
        if !fits || !header.dtype.is_float() {
            let reason = format!("has a table of {:?}, expected [510, 1, {size}]", header.shape);
            return Err(load(&path, reason));
        }
        let values = ops::astype(&files.read_tensor(header)?, Dtype::F32)?.to_vec_f32()?;
        match values.iter().all(|value| value.is_finite()) {
            true => Ok(values),
            false => Err(load(&path, "has values that are no numbers")),
        }
    }
}
