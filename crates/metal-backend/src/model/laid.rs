//! A prompt as the engine takes it.

use std::sync::Arc;

use crate::sight::Scene;

/// A prompt, laid out.
pub(super) struct Laid {
    /// Those of the vocabulary; in the place of a picture's vector, an id that is there.
    pub ids: Vec<u32>,
    pub scene: Option<Arc<Scene>>,
    /// The id in the place of a picture's vector.
    pub image: u32,
}

impl Laid {
    /// The ids with the model's own in the places of pictures' vectors.
    pub fn shown_ids(mut self) -> Vec<u32> {
        let shown = self.scene.iter().flat_map(|scene| &scene.shown);
        for run in shown.flat_map(|one| &one.runs) {
            self.ids[run.clone()].fill(self.image);
        }
        self.ids
    }
}
