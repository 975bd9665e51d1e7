//! The part of caches that a drafter needs of the model that it drafts for.

use mlx_ffi::{Array, Result};

use super::caches::Caches;
use super::state::State;
use super::trail::Trail;

impl Caches {
    /// The caches of rows whose ids a drafter takes in, if so.
    pub fn with_followed(mut self, is_followed: bool) -> Caches {
        self.is_followed = is_followed;
        self
    }

    /// The arrays of all layers from the one with this index on.
    pub fn arrays_from(&self, first: usize) -> impl Iterator<Item = &Array> {
        self.layers[first.min(self.layers.len())..].iter().flat_map(State::arrays)
    }

    /// Layers, those of a drafter included.
    pub fn depth(&self) -> usize {
        self.layers.len()
    }

    /// Returns true when a drafter takes in what passes.
    pub fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// Lets a drafter take in what passes from now on, or not.
    pub fn set_followed(&mut self, is_followed: bool) {
        self.is_followed = is_followed;
    }

    /// The hidden states from which heads go on.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }

    /// Takes the hidden states of the last pass.
    pub fn set_trail(&mut self, trail: Trail) {
        self.trail = trail;
    }

    /// Takes the last `count` positions of all rows back from the layers from `first` on, which
    /// alone were given them.
    ///
    /// # Errors
    /// A layer whose state cannot be cut back.
    pub fn take_back_from(&mut self, first: usize, count: i32) -> Result<()> {
        let counts = vec![count; self.offsets.len()];
        self.layers[first..].iter_mut().try_for_each(|layer| layer.truncate(&counts))
    }
}
