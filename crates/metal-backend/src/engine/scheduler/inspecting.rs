//! The scheduler's dealings with inspections: beside prefills, some layers at a time.

use super::Scheduler;
use crate::plan::QUANTUM;

impl Scheduler<'_> {
    /// Begins the next inspection within `room` bytes, or ends it with an error.
    pub(super) fn begin_inspection(&mut self, room: u64) {
        self.note_start();
        if let Err(error) = self.inspections.begin_next(self.served, room) {
            self.inspections.fail(error);
            self.shared.leave();
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
