//! A prompt as the engine takes it.

use std::sync::Arc;

use crate::sight::Scene;

/// A prompt, laid out.
pub(super) struct Laid {
    /// Those of the vocabulary; in the place of a picture's or a sound's vector, an id that is
    /// there.
    pub ids: Vec<u32>,
    pub scene: Option<Arc<Scene>>,
}

impl Laid {
    /// The ids with the model's own in the places of these vectors.
    pub fn shown_ids(mut self) -> Vec<u32> {
        for one in self.scene.iter().flat_map(|scene| &scene.shown) {
            self.ids[one.places.clone()].copy_from_slice(&one.prepared.ids);
        }
        self.ids
    }
}
