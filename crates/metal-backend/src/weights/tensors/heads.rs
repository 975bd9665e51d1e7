//! Layers that draft, which a model may take or leave aside.

use std::rc::Rc;

use super::super::takes_heads::TakesHeads;
use super::Weights;
use crate::error::Result;

impl Weights {
    /// Lets a model take these layers that draft for it.
    pub fn with_heads(mut self, heads: TakesHeads) -> Weights {
        let shared = Rc::get_mut(&mut self.shared);
        shared.expect("heads are set before cursors are handed out").heads = heads;
        self
    }

    /// The cursor of layers that draft, from the beginning of all names or from here, which have
    /// the projection `project`. `None`: there are none, or they are left aside.
    pub fn heads_at(&self, prefix: &str, project: &str) -> Option<Weights> {
        let from_here = self.at(prefix);
        let from_start = Weights { prefix: prefix.to_owned(), ..self.clone() };
        let has = |w: &Weights| !w.is_random() && !w.at(project).is_empty();
        let is_taken = self.shared.heads != TakesHeads::No;
        [from_here, from_start].into_iter().find(|w| is_taken && has(w))
    }

    /// A layer that drafts, by `build`. `None` where parts of it are missing and it is
    /// only taken whole: nothing counts as taken then.
    ///
    /// # Errors
    /// Those of `build`, where the layer has to be taken.
    pub fn heads<T>(&self, build: impl FnOnce(&Weights) -> Result<T>) -> Result<Option<T>> {
        let (left, totals) = (&self.shared.left, &self.shared.totals);
        let before = (left.borrow().clone(), totals.borrow().clone());
        match build(self) {
            Err(_) if self.shared.heads == TakesHeads::Whole => {
                (*left.borrow_mut(), *totals.borrow_mut()) = before;
                Ok(None)
            }
            built => {
                // It counts for memory, and is no part of the model.
                totals.borrow_mut().parameters = before.1.parameters;
                built.map(Some)
            }
        }
    }
}
