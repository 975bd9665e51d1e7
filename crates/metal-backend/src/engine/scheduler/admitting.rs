//! Requests that begin: the queue's dealings with the plan of admission.

use inference_core::Error;
use mlx_ffi::memory;

use super::{Job, Row, Scheduler};
use crate::engine::device::out_of_memory;
use crate::engine::speculation::Drafts;
use crate::kernels::Kernels;
use crate::plan::{self, Admission, Kind, Memory, Running, Spare};
use crate::sampling::{Sampler, fresh_seed};

/// Bytes of earlier requests that are forgotten at once where memory is short.
pub(super) const FORGOTTEN: u64 = 64 << 20;

impl Scheduler<'_> {
    /// Lets waiting requests begin while there are slots and memory.
    pub(super) fn admit(&mut self) {
        // What was asked for once and gave nothing is not asked for again.
        let mut may = Spare { prefixes: true, slots: true };
        while self.anything_waits() {
            let running = Running {
                count: self.running(),
                slots: self.shared.slots,
                is_inspecting: self.inspections.running() > 0,
                batch_waits: self.classifications.waits(),
            };
            if running.count >= running.slots {
                return;
            }
            let memory = self.memory();
            let decided = self.agree("admission", |own| {
                let next = plan::admission(&own.waits(), running, memory, own.spare().of(may));
                let wanted = own.queue.front().map(|job| own.wanted(job));
                let budget = &own.served.budget;
                Some((next, wanted.map(|wanted| budget.new_tokens(wanted, memory.alone()))))
            });
            let Some((next, max_tokens)) = decided else { return };
            match next {
                Admission::Begin(Kind::Preempted) => {
                    let Some(row) = self.preempted.pop_front() else { return };
                    self.begin_prefill(row);
                }
                Admission::Begin(Kind::Request) => {
                    let Some(job) = self.queue.pop_front() else { return };
                    self.begin(*job, max_tokens.unwrap_or(0));
                }
                Admission::Begin(Kind::Classification) => {
                    self.note_start();
                    self.classifications.begin_next();
                }
                // Where it does not fit, it ends with the numbers.
                Admission::Begin(Kind::Inspection) | Admission::Refuse(Kind::Inspection) => {
                    self.begin_inspection(memory.room());
                }
                Admission::Refuse(Kind::Request) => {
                    let Some(job) = self.queue.pop_front() else { return };
                    self.refuse(*job, memory);
                }
                Admission::ForgetPrefixes => may.prefixes = self.forget_prefixes(),
                Admission::GiveUpSlots => may.slots = self.give_up_slots(),
                _ => return,
            }
        }
    }

    /// Copies have what is free while they are made, and what is kept of earlier requests leaves
    /// room for passes of prompts that wait.
    pub(super) fn share_room(&mut self) {
        let memory = self.memory();
        self.dispatcher.hold(memory.room());
        // Ranks see different memory.
        if self.served.ranks.are_several() || !self.prefixes.cache.is_on() {
            return;
        }
        let unbegun = self.unbegun().len();
        let Memory { left, fixed, rows, .. } = memory;
        let left = left + self.prefixes.cache.bytes();
        let allowed = match unbegun {
            _ if unbegun > 1 || self.anything_waits() => {
                left.saturating_sub(fixed + rows + self.served.budget.passes)
            }
            0 => u64::MAX,
            _ => left.saturating_sub(fixed + rows),
        };
        if self.prefixes.cache.allow(allowed) {
            self.read_memory();
        }
    }

    /// Forgets some of what is kept of earlier requests, captured passes first. False where nothing
    /// is left to forget.
    pub(super) fn forget_prefixes(&mut self) -> bool {
        let any = self.dispatcher.keeps_any() || self.prefixes.cache.evict(FORGOTTEN);
        self.dispatcher.forget();
        self.read_memory();
        any
    }

    /// Ends a request that does not fit.
    fn refuse(&mut self, job: Job, memory: Memory) {
        let (budget, wanted) = (&self.served.budget, self.wanted(&job));
        let error = match budget.refusal(wanted, memory.alone()) {
            // It is not the request that asks for too much.
            Error::Memory { what, needed, available, .. }
                if memory.would_fit(budget.need(wanted, |bytes| bytes)) =>
            {
                let (needed, left) = (needed >> 20, available >> 20);
                let reason = format!("{what} needs {needed} MiB, others leave {left} for it");
                out_of_memory(self.served.device, "admission", &reason)
            }
            error => error,
        };
        self.shared.leave();
        job.output.into_inner().fail(error);
    }

    /// Begins to measure, where nothing else is measured at this time.
    pub(super) fn note_start(&self) {
        if self.running() == 0 {
            let _ = memory::reset_peak();
        }
    }

    /// Lets a request begin that was admitted with so many tokens.
    fn begin(&mut self, mut job: Job, max_tokens: usize) {
        let total = job.ids.len() + max_tokens;
        let drafts = self.served.draft_tokens(job.options.draft_tokens, total);
        if drafts > 0 && !self.served.can_go_back(total) {
            self.shared.leave();
            job.output.into_inner().fail(Error::Unsupported {
                what: "draft_tokens".into(),
                reason: format!(
                    "{total} tokens may outgrow the `context_length` of the load, and drafts cannot be taken back \
                     there; set a smaller `max_tokens`"
                ),
            });
            return;
        }
        self.note_start();
        let seed = job.options.seed.unwrap_or_else(fresh_seed);
        let (options, vocab_size) = (job.options.clone(), self.served.model.vocab_size);
        let sampler = Sampler::new(options, seed, &job.ids, &job.protected_ids, vocab_size)
            .and_then(|sampler| sampler.going_on(&job.eos_token_ids));
        match self.served.ranks.agree_on(sampler.map_err(crate::error::Error::from)) {
            Ok(sampler) => {
                let mut sampler = sampler
                    .by_kernel(self.served.kernels == Kernels::Cuda)
                    .against(job.repeats.take());
                if let Some(guide) = job.guide.take() {
                    sampler.follow(guide);
                }
                let by_model = self.served.model.drafter.is_some();
                let drafts = Drafts::new(drafts, by_model);
                self.begin_prefill(Row::new(job, sampler, max_tokens).drafting(drafts));
            }
            Err(error) => {
                if !self.served.ranks.failed_together() {
                    self.recover_from(&Error::Engine(error.to_string()));
                }
                self.shared.leave();
                job.output.into_inner().fail(Error::Engine(error.to_string()));
            }
        }
    }
}
