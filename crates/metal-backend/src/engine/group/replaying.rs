//! Rows that are computed to the bit as they were: the steps that a preempted row took are taken
//! again, with the ids that it drew.

use mlx_ffi::{Indices, eval_all};

use super::super::dispatcher::Dispatcher;
use super::super::memory::Budget;
use super::super::served::Served;
use super::Group;
use crate::error::Result;

impl Group {
    /// Returns true when the row, which is computed by itself, has ids to replay.
    /// A step computed them before the row was preempted, and its caches do not hold them yet.
    pub(super) fn replays(&self, served: &Served) -> bool {
        let [row] = &self.rows[..] else { return false };
        served.alone && self.held() + 1 < row.ids.len() && !row.is_cancelled()
    }

    /// Ids that the caches of the only row hold.
    fn held(&self) -> usize {
        let offset = self.slots.first().and_then(|slot| self.caches.offsets().get(*slot).copied());
        offset.unwrap_or(0) as usize
    }

    /// One step that the row took before, whose draws are known. Steps with drafts compute as many
    /// positions as they did.
    ///
    /// # Errors
    /// Those of MLX, which end the row.
    pub(super) fn replay(&mut self, served: &Served, dispatcher: &mut Dispatcher) -> Result<()> {
        if self.drafts() {
            return self.replay_with_draft(served);
        }
        self.make_longer(dispatcher)?;
        let id = self.rows[0].ids[self.held()];
        let ids = Indices::from_u32(&[id], &[1, 1])?;
        let hidden = served.model.hidden(&ids, &mut self.caches, &mut self.capture)?;
        Ok(eval_all([&hidden])?)
    }

    fn replay_with_draft(&mut self, served: &Served) -> Result<()> {
        let (model, held) = (&served.model, self.held());
        let factors = self.caches.rope_factors();
        let row = &self.rows[0];
        let (known, taken) = row.ids.split_at(held + 1);
        let fits = |length| model.rope_factors(length) == factors;
        let draft = row.draft_behind(known, Budget::most_drafts(1), fits).to_vec();
        let accepted = draft.iter().zip(taken).take_while(|(draft, taken)| draft == taken).count();
        let ids = [&known[held..], &draft].concat();
        let ids = Indices::from_u32(&ids, &[1, 1 + draft.len() as i32])?;
        let mut pass = model.begin(&ids, &self.caches)?;
        model.advance(&mut pass, &mut self.caches, usize::MAX)?;
        eval_all(self.caches.arrays().chain([pass.h()]))?;
        Ok(self.caches.truncate(&[(draft.len() - accepted) as i32])?)
    }
}
