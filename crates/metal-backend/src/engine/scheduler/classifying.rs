//! The scheduler's dealings with classifications: beside prefills, a part at a time.

use inference_core::Error;

use super::{EVICT, InUse, QUANTUM, Scheduler};

impl Scheduler<'_> {
    /// Whether a classification came before what else waits.
    pub(super) fn classification_is_next(&self) -> bool {
        let Some(queued_at) = self.classifications.next_queued() else { return false };
        let came_first = self.queue.front().is_none_or(|job| queued_at < job.queued_at);
        came_first && self.set_back.is_empty()
    }

    /// Computes a part of a classification.
    pub(super) fn classify(&mut self) {
        let limit = self.watch.within(self.served.budget.limit);
        let mut result = Ok(());
        while self.classifications.wants_batch() && result.is_ok() {
            let room = |InUse { fixed, rows }| limit.saturating_sub(fixed + rows);
            let others = self.running() > self.classifications.running();
            let room = self.in_use().map_err(Error::from).map(room);
            let lane = &mut self.classifications;
            result = room.and_then(|room| lane.begin_batch(self.served, room, others));
            let no_room =
                self.classifications.waits() || matches!(result, Err(Error::Memory { .. }));
            if no_room && self.prefixes.evict(EVICT) {
                result = Ok(());
            } else if no_room {
                break;
            }
        }
        let begins = |()| match self.classifications.running() {
            0 => Ok(()),
            _ => self.watch.check("classification"),
        };
        let result = result.and_then(begins);
        let result = result.and_then(|()| self.classifications.advance(self.served, QUANTUM));
        if let Err(error) = result {
            self.classifications.fail(error.clone());
            self.recover_from(&error);
            self.shared.leave();
        }
        if let Some(done) = self.classifications.take_done() {
            let (_, active) = self.settle();
            let metrics = done.metrics(active);
            self.shared.finished(&metrics);
            self.shared.leave();
            self.beat();
            done.answer();
        }
    }
}
