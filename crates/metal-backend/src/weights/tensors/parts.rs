//! Parts of a model, of which a rank may have some alone.

use super::Weights;
use crate::error::Result;
use crate::layers::{ModelPart, Stage};

impl Weights {
    /// Has this rank read what it has of the layers alone.
    pub fn with_stage(mut self, stage: Option<Stage>) -> Weights {
        let shared = std::rc::Rc::get_mut(&mut self.shared);
        shared.expect("it is set before cursors are handed out").stage = stage;
        self
    }

    /// The layers of this rank, where ranks have some each.
    pub fn stage(&self) -> Option<&Stage> {
        self.shared.stage.as_ref()
    }

    /// Calls `build` with a cursor here for a part of the model. Where another rank has the part,
    /// shapes are checked, and every tensor is an empty placeholder.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn part<T>(&self, part: ModelPart, build: impl FnOnce(&Weights) -> Result<T>) -> Result<T> {
        let before = self.shared.totals.borrow().bytes;
        let built = build(&Weights { part, ..self.clone() })?;
        let mut totals = self.shared.totals.borrow_mut();
        let bytes = totals.bytes - before;
        totals.parts.add(part, bytes);
        if !self.has_part(part) {
            totals.bytes = before;
        }
        Ok(built)
    }

    fn has_part(&self, part: ModelPart) -> bool {
        self.stage().is_none_or(|stage| stage.has(part))
    }

    /// Returns true when tensors below this cursor are empty placeholders.
    pub fn describes(&self) -> bool {
        self.shared.only_describe || !self.has_part(self.part)
    }
}
