//! Requests that end: what they cost, and what is given back.

use inference_core::{Error, FinishReason};
use mlx_ffi::{Device, memory};

use super::{Group, Inspections, Lane, Prefill, Row, Scheduler};
use crate::error::Result;

impl Scheduler<'_> {
    /// Ends a request whose keys and values are freed already.
    pub(super) fn end(&mut self, mut row: Row, result: Result<FinishReason>) {
        let (peak, active) = self.settle();
        row.peak_bytes = row.peak_bytes.max(peak);
        let metrics = row.metrics(active);
        self.shared.finished(&metrics);
        self.shared.leave();
        self.beat();
        row.finish(result.map_err(|error| self.shared.told(error.into())), metrics);
    }

    /// After a request's end: gives back what nothing needs any more, and tells those that go on
    /// what was in use until now. The most bytes until now, and those in use.
    pub(super) fn settle(&mut self) -> (u64, u64) {
        if self.running() == 0 {
            // A step that was queued ahead may still run and hold memory.
            let _ = mlx_ffi::synchronize();
            if self.served.device == Device::Cpu {
                let _ = memory::clear_cache();
            }
        }
        let bytes = |figure: mlx_ffi::Result<usize>| figure.unwrap_or(0) as u64;
        let peak = bytes(memory::peak());
        self.note_peak(peak);
        (peak, bytes(memory::active()))
    }

    /// Tells the requests that go on what was in use until now.
    pub(super) fn note_peak(&mut self, peak: u64) {
        self.classifications.note_peak(peak);
        self.inspections.note_peak(peak);
        let prefills = self.prefills.iter_mut().flat_map(|prefill| prefill.rows_mut());
        let groups = self.groups.iter_mut().flat_map(|group| group.rows_mut());
        for row in prefills.chain(groups) {
            row.peak_bytes = row.peak_bytes.max(peak);
        }
    }

    /// Ends everything that runs or waits.
    pub(super) fn close(&mut self) {
        let prefills = self.prefills.drain(..).flat_map(Prefill::into_rows);
        let groups = self.groups.drain(..).flat_map(Group::into_rows);
        let rows: Vec<Row> = prefills.chain(groups).chain(self.preempted.drain(..)).collect();
        for row in rows {
            self.end(row, Err(Error::Closed.into()));
        }
        // Dropped with their senders, which tell.
        self.queue.clear();
        self.classifications = Lane::default();
        self.inspections = Inspections::default();
        while self.inbox.try_recv().is_ok() {}
    }
}
