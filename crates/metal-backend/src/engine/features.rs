//! The vectors of the pictures and sounds that were seen and heard last.

use std::cell::RefCell;
use std::collections::VecDeque;

use mlx_ffi::{Array, Result};

/// The vectors of the pictures and sounds that were seen and heard last.
pub(super) struct Features {
    kept: RefCell<VecDeque<([u8; 32], Array)>>,
}

/// The most bytes of vectors that are kept.
const MOST_BYTES: u64 = 64 << 20;

impl Features {
    /// Nothing yet.
    pub fn new() -> Features {
        Features { kept: RefCell::default() }
    }

    /// The vectors of a picture or a sound, by its digest.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn find(&self, digest: &[u8; 32]) -> Result<Option<Array>> {
        let mut kept = self.kept.borrow_mut();
        let Some(at) = kept.iter().position(|(known, _)| known == digest) else { return Ok(None) };
        let found = kept.remove(at);
        let shared = found.as_ref().map(|(_, features)| features.share()).transpose();
        kept.extend(found);
        shared
    }

    /// Keeps the vectors of one; those that were not seen for the longest time go.
    pub fn keep(&self, digest: [u8; 32], features: Array) {
        let mut kept = self.kept.borrow_mut();
        kept.push_back((digest, features));
        let bytes = |kept: &VecDeque<([u8; 32], Array)>| {
            kept.iter().map(|(_, features)| features.nbytes() as u64).sum::<u64>()
        };
        while bytes(&kept) > MOST_BYTES {
            kept.pop_front();
        }
    }
}
