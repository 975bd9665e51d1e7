//! The plan's inputs, gathered as plain data.
//! The clock, the memory in use and the watch are read here, once in each scheduling step. The
//! memory is read again after what changes it meanwhile.

use std::time::Instant;

use mlx_ffi::memory;

use super::{Group, Job, Prefill, Reading, Row, Scheduler};
use crate::engine::memory::{Budget, Wanted};
use crate::engine::prompt_logprobs::PromptLogprobs;
use crate::plan::{self, Batch, Decoding, Memory, Spare, Waits};

impl Scheduler<'_> {
    /// Reads the time, what others leave of the device, and what is in use.
    pub(super) fn read(&mut self) {
        if let Err(error) = self.watch.look(Instant::now()) {
            self.recover_from(&error.into());
        }
        self.read_memory();
        let matters = self.anything_waits() || self.memory().room() == 0;
        if matters && self.dispatcher.lets_go_of_written() {
            self.read_memory();
        }
    }

    /// Reads what is in use.
    pub(super) fn read_memory(&mut self) {
        match memory::active() {
            Ok(active) => {
                let fixed = (active as u64).saturating_sub(self.kv_bytes());
                let runs = self.set_aside() > 0;
                self.reading.fixed = fixed;
                self.reading.idle = if runs { fixed.min(self.reading.idle) } else { fixed };
            }
            Err(error) => self.recover_from(&crate::error::Error::from(error).into()),
        }
    }

    /// The memory, with what is set aside at this point of the turn.
    pub(super) fn memory(&self) -> Memory {
        let limit = self.served.budget.limit;
        let left = self.watch.within(limit);
        let Reading { fixed, idle, .. } = self.reading;
        Memory { limit, left, fixed, idle, rows: self.set_aside() }
    }

    /// Returns true when anything waits to begin.
    pub(super) fn anything_waits(&self) -> bool {
        let lanes = [self.classifications.next_queued(), self.inspections.next_queued()];
        !self.queue.is_empty() || !self.preempted.is_empty() || lanes.iter().any(Option::is_some)
    }

    /// Returns true when anything runs that holds memory, which it gives up once it ends.
    pub(super) fn anything_goes_on(&self) -> bool {
        let lanes = self.classifications.set_aside() + self.inspections.set_aside();
        let begun = self.prefills.iter().any(|prefill| !prefill.holds_nothing());
        begun || lanes > 0 || !self.groups.is_empty()
    }

    /// The first one of each kind that waits to begin.
    pub(super) fn waits(&self) -> Waits {
        let (budget, since) = (&self.served.budget, |at| self.reading.since(at));
        let (batches, unbegun) = (self.batches(), self.unbegun());
        let beside = |bytes: u64| {
            let with = [&unbegun[..], &[bytes]].concat();
            plan::beside_slots(&batches, &with) - plan::beside_slots(&batches, &unbegun)
        };
        // Others do not take slots, or hold something before they do.
        let need = |wanted: Wanted| match wanted {
            Wanted { report: 0, sight: 0, draft: 0, .. } => budget.need(wanted, beside),
            _ => budget.need(wanted, |bytes| bytes),
        };
        let of_job = |job: &Job| (since(job.queued_at), need(self.wanted(job)));
        let of_row = |row| need(self.wanted_again(row));
        let inspection = self.inspections.next_queued().map(since);
        Waits {
            preempted: self.preempted.front().map(of_row),
            request: self.queue.front().map(|job| of_job(job)),
            classification: self.classifications.next_queued().map(since),
            inspection: inspection.zip(self.inspections.next_needs(self.served)),
        }
    }

    /// Memory that can be freed without taking anything from a request that runs.
    pub(super) fn spare(&self) -> Spare {
        let vacant = |group: &Group| group.caches().slots() - group.rows().len();
        Spare {
            prefixes: self.prefixes.cache.bytes() > 0 || self.dispatcher.keeps_any(),
            // Prompts that have begun to wait take the others.
            slots: self.groups.iter().map(vacant).sum::<usize>() > self.unbegun().len(),
        }
    }

    /// The batches, with what their rows take soon.
    pub(super) fn batches(&self) -> Vec<Batch> {
        let budget = &self.served.budget;
        let of_group = |group: &Group| {
            let draft = group.rows().iter().map(|row| row.most_drafts()).max().unwrap_or(0);
            let ahead = |row: &Row| Scheduler::ahead(row) + draft;
            let of_row = |row: &Row| Decoding {
                started: self.reading.since(row.started()),
                soon: budget.caches(1, ahead(row)),
            };
            let longest = group.rows().iter().map(ahead).max().unwrap_or(0);
            Batch {
                slots: group.caches().slots(),
                rows: group.rows().iter().map(of_row).collect(),
                drafts: budget.drafts(group.rows().len(), draft, longest),
            }
        };
        self.groups.iter().map(of_group).collect()
    }

    /// Bytes set aside for what runs.
    fn set_aside(&self) -> u64 {
        let budget = &self.served.budget;
        let begun = self.prefills.iter().filter(|prefill| !prefill.holds_nothing());
        let prefills = begun.map(|prefill| {
            let longest = prefill.rows().map(Scheduler::ahead).max().unwrap_or(0);
            let reports = prefill.rows().map(|row| self.report_bytes(row.prompt_logprobs.as_ref()));
            let sights = prefill.rows().map(|row| self.served.sight_bytes(row.scene.as_deref()));
            budget.caches(prefill.rows().count(), longest)
                + reports.sum::<u64>()
                + sights.sum::<u64>()
        });
        let batches = self.batches();
        let prompts = plan::beside_slots(&batches, &self.unbegun());
        let lanes = [self.classifications.set_aside(), self.inspections.set_aside()];
        prompts + prefills.chain(batches.iter().map(Batch::set_aside)).chain(lanes).sum::<u64>()
    }

    /// Bytes that each of the prompts takes which hold nothing yet.
    pub(super) fn unbegun(&self) -> Vec<u64> {
        let unbegun = self.prefills.iter().filter(|prefill| prefill.holds_nothing());
        let rows = unbegun.flat_map(Prefill::rows);
        rows.map(|row| self.served.budget.caches(1, Scheduler::ahead(row))).collect()
    }

    /// Positions that are set aside for a row.
    pub(super) fn ahead(row: &Row) -> usize {
        Budget::ahead(row.ids.len(), row.max_tokens - row.generated())
    }

    /// The size of a request.
    pub(super) fn wanted(&self, job: &Job) -> Wanted {
        Wanted {
            prompt: job.ids.len(),
            new: job.options.max_tokens,
            context: self.served.context_length,
            report: self.report_bytes(job.prompt_logprobs.as_ref()),
            sight: self.served.sight_bytes(job.scene.as_deref()),
            draft: self.served.draft_tokens(job.options.draft_tokens, 0),
        }
    }

    /// The size of a row that begins again.
    fn wanted_again(&self, row: &Row) -> Wanted {
        Wanted {
            prompt: row.ids.len(),
            new: Some(row.max_tokens - row.generated()),
            context: self.served.context_length,
            report: 0,
            sight: self.served.sight_bytes(row.scene.as_deref()),
            draft: row.most_drafts(),
        }
    }

    fn report_bytes(&self, report: Option<&PromptLogprobs>) -> u64 {
        report.map_or(0, |report| self.served.budget.report(report.sizes()))
    }

    pub(super) fn kv_bytes(&self) -> u64 {
        let prefills = self.prefills.iter().map(|prefill| prefill.caches.nbytes());
        let groups = self.groups.iter().map(|group| group.caches().nbytes());
        let lanes = [self.classifications.kv_bytes(), self.inspections.kv_bytes()];
        prefills.chain(groups).chain(lanes).sum()
    }
}
