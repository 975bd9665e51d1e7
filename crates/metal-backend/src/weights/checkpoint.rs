//! A model's files, with what they hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mlx_ffi::{Dtype, Quantization};

use super::source::TensorHeader;
use super::vendors::as_of_mlx;
use crate::error::Result;
use crate::files::ModelFiles;

/// A model's files with what the headers of its weights say; they are read once.
pub(crate) struct Checkpoint {
    pub files: ModelFiles,
    /// By the tensor's name.
    pub headers: BTreeMap<String, TensorHeader>,
    /// Nobody waits for the weights any more.
    pub is_unwanted: Arc<AtomicBool>,
}

impl Checkpoint {
    /// Reads and checks the headers.
    ///
    /// # Errors
    /// As [`ModelFiles::headers`]; a vendor's packing that is not read, or does not fit.
    pub fn open(files: &ModelFiles) -> Result<Checkpoint> {
        let headers = as_of_mlx(files, files.headers()?);
        let headers = headers.map_err(|error| error.at(&files.folder()))?;
        Ok(Checkpoint { files: files.clone(), headers, is_unwanted: Arc::default() })
    }

    /// The type of most floats of 16 and more bits; BF16 where there are none.
    pub fn float_dtype(&self) -> Dtype {
        let count = |dtype: Dtype| -> u64 {
            let is_stored = |header: &TensorHeader| !header.is_fp8 && !header.has_any_dtype();
            let of = self.headers.values();
            let of = of.filter(|header| header.dtype == dtype && is_stored(header));
            of.map(TensorHeader::elements).sum()
        };
        // Of equals the last one.
        let known = [Dtype::F32, Dtype::F16, Dtype::Bf16];
        known.into_iter().max_by_key(|dtype| count(*dtype)).unwrap_or(Dtype::Bf16)
    }

    /// The names of all tensors changed by `rename`.
    pub fn renamed(self, rename: impl Fn(String) -> String) -> Checkpoint {
        let headers = self.headers.into_iter();
        Checkpoint {
            headers: headers.map(|(name, header)| (rename(name), header)).collect(),
            ..self
        }
    }

    /// The tensors under the names that `named` gives them; those without one are left aside.
    pub fn named(self, named: impl Fn(&str, &TensorHeader) -> Option<String>) -> Checkpoint {
        let headers = self.headers.into_iter();
        let under = |(name, header): (String, TensorHeader)| Some((named(&name, &header)?, header));
        Checkpoint { headers: headers.filter_map(under).collect(), ..self }
    }

    /// The packings of modules whose codes are a vendor's, by their paths.
    pub fn of_vendors(&self) -> impl Iterator<Item = (&str, Quantization)> {
        self.headers.iter().filter_map(|(name, header)| {
            Some((name.strip_suffix(".weight")?, header.quantization()?))
        })
    }

    /// Stops reading weights with an error once the flag says that nobody waits for them.
    pub fn unless(self, is_unwanted: Arc<AtomicBool>) -> Checkpoint {
        Checkpoint { is_unwanted, ..self }
    }
}
