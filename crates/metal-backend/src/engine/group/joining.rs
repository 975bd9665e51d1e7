//! Steps that are taken in a pass of prompts.

use super::super::dispatcher::Dispatcher;
use super::super::served::Served;
use super::super::step_clock::StepClock;
use super::stepping::logits_of;
use super::{Group, Stepped};
use crate::cache::{Caches, PrefixCache, Storage};
use crate::error::Result;
use crate::layers::{JoiningRows, LeavingRows};

impl Group {
    /// Returns true when the next step can be taken in a pass of prompts.
    ///
    /// # Errors
    /// Those of MLX, which end the whole group.
    pub fn can_join_pass(&mut self, served: &Served, dispatcher: &mut Dispatcher) -> Result<bool> {
        if !self.caches.can_join() || !self.any_goes_on(&served.model) {
            return Ok(false);
        }
        self.make_longer(dispatcher)?;
        Ok(served.model.takes_rows(&mut self.caches)?)
    }

    /// Hands the rows over to a pass of prompts. Until they are given [back](Self::leave_pass), the
    /// group has no caches.
    ///
    /// # Errors
    /// Those of MLX, which end the whole group.
    pub fn join_pass(&mut self) -> Result<JoiningRows> {
        let slots = self.caches.slots();
        let ids = self.next_ids.of(slots, self.drawn.as_ref(), &self.fresh)?;
        let ids = ids.reshape(&[slots as i32, 1])?;
        let caches = std::mem::replace(&mut self.caches, Caches::new(&[], Storage::Plain, 0, 0));
        Ok(JoiningRows { ids, caches, places: self.capture.places() })
    }

    /// Takes the rows back from a pass of prompts, which is in flight, and ends their step.
    /// The next scheduling step takes the next one.
    ///
    /// # Errors
    /// Those of MLX before a row left, which end the whole group.
    pub fn leave_pass(
        &mut self,
        leaving: LeavingRows,
        served: &Served,
        prefixes: &mut PrefixCache,
        clock: &mut StepClock,
    ) -> Result<Stepped> {
        self.caches = leaving.caches;
        self.has_stepped = true;
        let unread = self.drawn.take();
        clock.count();
        let logits = logits_of(&served.model, &leaving.hidden)?;
        self.end_step(served, (unread, Some(logits)), (prefixes, None), clock)
    }

    /// Returns true when the batch has stepped already in this scheduling step, and resets that.
    /// It did so in a pass of prompts, or behind one.
    pub fn take_has_stepped(&mut self) -> bool {
        std::mem::take(&mut self.has_stepped)
    }
}
