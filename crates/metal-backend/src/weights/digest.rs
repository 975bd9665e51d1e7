//! By what ranks know that they have the same model.

use sha2::{Digest, Sha256};

use super::source::{Checkpoint, TensorHeader};
use crate::error::Result;

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
            let TensorHeader { dtype, shape, .. } = header;
            digest.update(format!("{name} {dtype:?} {shape:?}"));
            for word in self.files.read_tensor(&header.first_words(SAMPLE))?.to_vec_u32()? {
                digest.update(word.to_ne_bytes());
            }
        }
        Ok(digest.finalize().into())
    }
}
