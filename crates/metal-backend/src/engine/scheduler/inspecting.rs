//! The scheduler's dealings with inspections: beside prefills, some layers at a time.

use inference_core::Error;

use super::{EVICT, InUse, QUANTUM, Scheduler};

impl Scheduler<'_> {
    /// Whether an inspection may begin that came before what else waits.
    pub(super) fn inspection_is_next(&self) -> bool {
        let Some(queued_at) = self.inspections.next_queued() else { return false };
        let others =
            [self.queue.front().map(|job| job.queued_at), self.classifications.next_queued()];
        let came_first = others.iter().flatten().all(|other| queued_at < *other);
        came_first && self.set_back.is_empty() && self.inspections.running() == 0
    }

    /// Begins it, or ends it with an error. False where it waits for memory.
    pub(super) fn begin_inspection(&mut self) -> bool {
        self.note_start();
        let others = self.running() > 0;
        loop {
            let limit = self.watch.within(self.served.budget.limit);
            let room = |InUse { fixed, rows }| limit.saturating_sub(fixed + rows);
            let room = self.in_use().map_err(Error::from).map(room);
            let begun =
                room.and_then(|room| self.inspections.begin_next(self.served, room, others));
            let no_room = matches!(begun, Ok(false) | Err(Error::Memory { .. }));
            // What is kept of earlier requests makes room.
            if no_room && self.prefixes.evict(EVICT) {
                continue;
            }
            let error = match begun {
                Ok(begun) => return begun,
                Err(error) => error,
            };
            self.inspections.fail(error);
            self.shared.leave();
            return true;
        }
    }

    /// Computes a part of an inspection.
    pub(super) fn inspect(&mut self) {
        if let Err(error) = self.inspections.advance(self.served, QUANTUM) {
            self.inspections.fail(error.clone());
            self.recover_from(&error);
            self.shared.leave();
        }
        if let Some(done) = self.inspections.take_done() {
            let (peak, active) = self.settle();
            let metrics = done.metrics(peak, active);
            self.shared.finished(&metrics);
            self.shared.leave();
            self.beat();
            done.answer();
        }
    }
}
