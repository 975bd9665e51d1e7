//! Requests whose work failed.
//! For want of memory they begin again once, and the rest of a batch goes on with what fits.

use std::rc::Rc;

use inference_core::Error;
use mlx_ffi::memory;

use super::{Group, Prefill, Row, Scheduler};
use crate::engine::device::{self, out_of_memory};
use crate::engine::served::ServedEnd;

impl Scheduler<'_> {
    /// Ends the requests of a batch whose step failed, or lets them begin again.
    pub(super) fn fail_step(&mut self, at: usize, error: crate::error::Error) {
        let step = self.groups[at].rows().first().map_or(0, Row::generated);
        self.fail_group(at, error, &format!("decode step {step}"));
    }

    /// Ends the requests of a batch that failed in `phase`. For want of memory, all of them begin
    /// again; the youngest ends, where it did that already.
    pub(super) fn fail_group(&mut self, at: usize, error: crate::error::Error, phase: &str) {
        // What failed halfway is still computed with buffers that end with the batch.
        memory::wait_for_device();
        let mut rows = self.groups.remove(at).into_rows();
        let is_memory = error.is_out_of_memory();
        let error = self.told(error, phase);
        self.recover_from(&error);
        if is_memory && self.broken.is_none() {
            let youngest = (0..rows.len()).max_by_key(|at| rows[*at].started());
            let Some(youngest) = youngest else { return };
            if rows[youngest].was_retried {
                let row = rows.remove(youngest);
                self.end(row, Err(error.into()));
            } else {
                rows[youngest].was_retried = true;
            }
            return rows.into_iter().for_each(|row| self.begin_again(row));
        }
        for row in rows {
            self.end(row, Err(error.clone().into()));
        }
    }

    /// Ends the requests of a prefill that failed, or lets them begin again.
    pub(super) fn fail_prefill_at(&mut self, at: usize, error: crate::error::Error) {
        let rows = self.prefills.remove(at).into_rows().collect();
        self.fail_prefills(rows, error);
    }

    /// Ends requests whose prefill failed, or lets them begin again. Their keys and values are
    /// freed already.
    pub(super) fn fail_prefills(&mut self, rows: Vec<Row>, error: crate::error::Error) {
        let is_memory = error.is_out_of_memory();
        let error = self.told(error, "prefill");
        self.recover_from(&error);
        for row in rows {
            self.give_up_prefill(row, is_memory, error.clone());
        }
    }

    /// Ends a request whose prefill failed, or lets it begin again, once, where it wants memory.
    fn give_up_prefill(&mut self, mut row: Row, is_memory: bool, error: Error) {
        // What was told of a prompt would be told twice.
        let may_retry = is_memory && !row.was_retried && row.prompt_logprobs.is_none();
        if may_retry && self.broken.is_none() {
            row.was_retried = true;
            return self.begin_again(row);
        }
        self.end(row, Err(error.into()));
    }

    /// Puts a row where those wait that begin again from their ids.
    fn begin_again(&mut self, mut row: Row) {
        row.begin_again();
        self.set_back(row);
    }

    /// The error as it is told: with the phase, and with who holds the memory that was not there.
    fn told(&self, error: crate::error::Error, phase: &str) -> Error {
        let device = self.served.device;
        if let Some(why) = self.served.ranks.why() {
            return Error::Engine(format!("{phase}: {why}"));
        }
        match error {
            crate::error::Error::Mlx(error) if error.is_out_of_memory() => {
                out_of_memory(device, phase, &error.to_string())
            }
            error => error.in_phase(phase).into(),
        }
    }

    /// After an error of the engine: makes the device usable again, and gives back what is not
    /// needed.
    pub(super) fn recover_from(&mut self, error: &Error) {
        let ranks = &self.served.ranks;
        match error {
            _ if self.broken.is_some() => return,
            // A request's failure that all ranks know of leaves nothing behind, and all must go on
            // alike.
            Error::OutOfMemory { .. } | Error::Engine(_) if ranks.are_several() => {
                if !ranks.failed_together() {
                    let reason = ranks.why().unwrap_or_else(|| error.to_string());
                    self.broken = Some(Error::Unusable(reason));
                }
                return;
            }
            Error::OutOfMemory { .. } | Error::Engine(_) => {}
            _ => {
                ranks.failed_together();
                return;
            }
        }
        // Copies that were in flight may have no values, and nothing tells which.
        memory::wait_for_device();
        self.dispatcher.forget();
        while self.prefixes.cache.evict(u64::MAX) {}
        if let Err(reason) = device::recover(self.served.device) {
            self.broken = Some(Error::Unusable(format!(
                "the device cannot be used by this process any more, start it again: {reason} (after: {error})"
            )));
        }
    }

    /// Ends every request with `error`, also those that come, until told to close.
    pub(super) fn refuse_all(mut self, error: &Error) -> ServedEnd {
        let ranks = Rc::clone(&self.served.ranks);
        self.shared.set_fault(error);
        match ranks.are_several() {
            true => ranks.end(error),
            // What is freed from now on stays with the allocator: to ask the device may end the
            // process.
            false => drop(memory::set_cache_limit(usize::MAX)),
        }
        let prefills = self.prefills.drain(..).flat_map(Prefill::into_rows);
        let groups = self.groups.drain(..).flat_map(Group::into_rows);
        let rows: Vec<Row> = prefills.chain(groups).chain(self.preempted.drain(..)).collect();
        for row in rows {
            self.end(row, Err(error.clone().into()));
        }
        while !self.closing && !ranks.follow() {
            self.refuse_waiting(error);
            match self.inbox.recv() {
                Ok(command) => self.take_in(command),
                Err(_) => break,
            }
        }
        if ranks.are_several() { ServedEnd::Closed } else { ServedEnd::Broken }
    }

    /// Ends what waits, and what is not generated.
    fn refuse_waiting(&mut self, error: &Error) {
        for job in self.queue.drain(..) {
            self.shared.leave();
            job.output.into_inner().fail(error.clone());
        }
        while self.classifications.next_queued().is_some() {
            self.classifications.begin_next();
        }
        while self.classifications.running() > 0 {
            self.classifications.fail(error.clone());
            self.shared.leave();
        }
        while self.inspections.running() > 0 || self.inspections.next_queued().is_some() {
            self.inspections.fail(error.clone());
            self.shared.leave();
        }
        self.beat();
    }
}
