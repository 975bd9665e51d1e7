//! By what ranks know that they have the same model.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::adapter::Adapter;
use super::checkpoint::Checkpoint;
use super::source::TensorHeader;
use crate::error::Result;
use crate::files::ModelFiles;

/// Words of each tensor that count: all of them would take as long as a load.
const SAMPLE: i32 = 1024;
/// Files beside the weights that decide what a model computes.
const FILES: [&str; 3] = ["config.json", "tokenizer.json", "generation_config.json"];

impl Checkpoint {
    /// The digest of `options`, the configs, the tokenizer, and the names, types, shapes and first bytes of all tensors.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn digest(&self, options: &str) -> Result<[u8; 32]> {
        let mut digest = Sha256::new();
        digest.update(options);
        for name in FILES {
            digest.update(name);
            digest.update(self.files.text(name)?.unwrap_or_default());
        }
        for (name, header) in &self.headers {
            add(&mut digest, &self.files, name, header)?;
        }
        Ok(digest.finalize().into())
    }
}

impl Adapter {
    /// The digest of an adapter's config, and of the names, types, shapes and first bytes of its tensors.
    ///
    /// # Errors
    /// A file that cannot be read, or that no adapter has.
    pub fn digest(folder: &Path) -> Result<[u8; 32]> {
        let adapter = Adapter::open(folder)?;
        let mut digest = Sha256::new();
        digest.update(adapter.config_text()?);
        for (name, header) in adapter.headers() {
            add(&mut digest, &adapter.files, &name, &header)?;
        }
        Ok(digest.finalize().into())
    }
}

/// Adds a tensor of `files`.
fn add(digest: &mut Sha256, files: &ModelFiles, name: &str, header: &TensorHeader) -> Result<()> {
    let TensorHeader { dtype, shape, .. } = header;
    digest.update(format!("{name} {dtype:?} {shape:?}"));
    for word in files.read_tensor(&header.first_words(SAMPLE))?.to_vec_u32()? {
        digest.update(word.to_ne_bytes());
    }
    Ok(())
}
