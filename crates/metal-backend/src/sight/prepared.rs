//! A picture, ready for the tower.

use std::time::Duration;

use super::patches::Patches;

/// A picture, ready for the tower.
pub(crate) struct Prepared {
    pub patches: Patches,
    /// Of its encoded bytes.
    pub digest: [u8; 32],
    /// Its own ids in a prompt, the marks of its beginning and end included.
    pub ids: Vec<u32>,
    /// Squares of patches, each a vector of the language model: rows and columns.
    pub cells: [i32; 2],
    /// The time of its preparation.
    pub took: Duration,
}

impl PartialEq for Prepared {
    fn eq(&self, other: &Prepared) -> bool {
        self.digest == other.digest
    }
}
