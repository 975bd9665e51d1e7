//! Rows that are computed to the bit as they were: the steps that a preempted row took are taken
//! again, with the ids that it drew.

use mlx_ffi::{Indices, eval_all};

use super::super::dispatcher::Dispatcher;
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
        let drafts = self.rows[0].drafts.as_ref();
        if let Some(counts) = drafts.and_then(|drafts| drafts.pass_behind(self.held())) {
            return self.replay_with_draft(served, counts, dispatcher);
        }
        self.make_longer(dispatcher)?;
        let id = self.rows[0].ids[self.held()];
        let ids = Indices::from_u32(&[id], &[1, 1])?;
        let hidden = served.model.hidden(&ids, &mut self.caches, &mut self.capture)?;
        Ok(eval_all([&hidden])?)
    }

    /// The pass that verified so many draft tokens, of which so many were drawn. What the others
    /// were is nobody's business: nothing that stays depends on them.
    fn replay_with_draft(
        &mut self,
        served: &Served,
        (verified, accepted): (usize, usize),
        dispatcher: &mut Dispatcher,
    ) -> Result<()> {
        let held = self.held();
        // Recurrent states are what a pass over the drawn ones left.
        let repeats = self.caches.need_snapshots();
        let verified = if repeats { accepted } else { verified };
        let drawn = self.rows[0].ids[held..].iter().take(1 + accepted).copied();
        let ids: Vec<u32> = drawn.chain(std::iter::repeat_n(0, verified - accepted)).collect();
        let (hidden, _) = self.compute_several(&served.model, &ids, 1 + verified, dispatcher)?;
        eval_all(self.caches.arrays().chain([&hidden]))?;
        dispatcher.wait()?;
        dispatcher.rest();
        match verified - accepted {
            0 => Ok(()),
            count => Ok(self.caches.truncate(&[count as i32])?),
        }
    }
}
