//! Who computes next: admission, prefill between decode steps, batches that rows join and leave.

mod classifying;
mod failing;
mod inbox;
mod inspecting;
mod prefilling;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use inference_core::{Error, FinishReason};
use mlx_ffi::{Device, memory};

use super::classify::Lane;
use super::device::{Watch, out_of_memory};
use super::dispatcher::Dispatcher;
use super::group::{Exit, Group, Stepped};
use super::inspect::Inspections;
use super::job::{Command, Job};
use super::memory::{Admission, Budget, InUse, Wanted};
use super::prefill::Prefill;
use super::prompt_logprobs::PromptLogprobs;
use super::row::Row;
use super::served::{Served, ServedEnd};
use super::shared::Shared;
use super::step_clock::{Part, StepClock};
use crate::cache::{Caches, PrefixCache};
use crate::error::{Result, panicked};
use crate::kernels::Kernels;
use crate::sampling::{Sampler, fresh_seed};

/// How long a part of a prefill may take before others are served.
const QUANTUM: Duration = Duration::from_millis(20);
/// Bytes of earlier requests that are forgotten at once where memory is short.
const EVICT: u64 = 64 << 20;
/// Steps between two clean-ups of the allocator's cache.
const CLEAR_CACHE_EVERY: usize = 256;
/// Padding that a batch may have, in bytes, however much that is of it.
const FREE_PADDING: u64 = 64 << 20;

/// The engine thread's state between steps.
pub(super) struct Scheduler<'a> {
    served: &'a Served,
    shared: &'a Shared,
    inbox: Receiver<Command>,
    queue: VecDeque<Box<Job>>,
    prefills: Vec<Prefill>,
    groups: Vec<Group>,
    classifications: Lane,
    inspections: Inspections,
    /// Rows that begin again: they made room for others, or their positions are encoded otherwise.
    set_back: VecDeque<Row>,
    prefixes: PrefixCache,
    closing: bool,
    /// Parts of prefills that were served.
    turns: usize,
    steps: usize,
    clock: StepClock,
    /// Of prompts' layers.
    dispatcher: Dispatcher,
    /// Seconds that one id takes in one layer of a prefill; 0 before any was measured.
    pace: f64,
    watch: Watch,
    /// Why nothing can be computed any more.
    broken: Option<Error>,
}

impl<'a> Scheduler<'a> {
    /// A scheduler that keeps up to `prefix_cache` bytes of earlier requests.
    pub fn new(
        served: &'a Served,
        shared: &'a Shared,
        inbox: Receiver<Command>,
        prefix_cache: u64,
    ) -> Scheduler<'a> {
        Scheduler {
            served,
            shared,
            inbox,
            prefixes: PrefixCache::new(prefix_cache),
            queue: VecDeque::new(),
            prefills: Vec::new(),
            groups: Vec::new(),
            classifications: Lane::default(),
            inspections: Inspections::default(),
            set_back: VecDeque::new(),
            closing: false,
            turns: 0,
            steps: 0,
            clock: StepClock::start(),
            dispatcher: Dispatcher::default(),
            pace: 0.0,
            watch: Watch::new(served.device),
            broken: None,
        }
    }

    /// Serves requests until told to close.
    pub fn serve(mut self) -> ServedEnd {
        loop {
            if self.is_idle() {
                match self.wait_for_command() {
                    Some(command) => self.take_in(command),
                    None => break,
                }
            }
            self.look_at_inbox();
            if self.closing {
                break;
            }
            if let Err(error) = self.watch.look() {
                self.recover_from(&error.into());
            }
            self.admit();
            if !self.groups.is_empty() {
                self.clock.lap(Part::Rest);
            }
            self.wait_for_steps();
            self.prefill();
            self.classify();
            self.inspect();
            self.clock.skip();
            self.make_room();
            self.decode();
            self.beat();
            if let Some(error) = self.broken.take() {
                return self.refuse_all(&error);
            }
        }
        self.close();
        ServedEnd::Closed
    }

    fn running(&self) -> usize {
        let decoding = self.groups.iter().map(|group| group.rows().len()).sum::<usize>();
        let prefilling = self.prefills.iter().map(|prefill| prefill.rows().count()).sum::<usize>();
        prefilling + decoding + self.classifications.running() + self.inspections.running()
    }

    fn beat(&self) {
        self.shared.beat(self.running(), self.kv_bytes(), self.prefixes.bytes());
        self.shared.stepped(self.clock.times());
    }

    fn kv_bytes(&self) -> u64 {
        let prefills = self.prefills.iter().map(|prefill| prefill.caches.nbytes());
        let groups = self.groups.iter().map(|group| group.caches().nbytes());
        let lanes = [self.classifications.kv_bytes(), self.inspections.kv_bytes()];
        prefills.chain(groups).chain(lanes).sum()
    }

    /// Lets waiting requests begin while there are slots and memory.
    fn admit(&mut self) {
        // A batch of prompts that waits for memory came before what waits here.
        while self.running() < self.shared.slots && !self.classifications.waits() {
            if self.inspection_is_next() {
                if self.begin_inspection() {
                    continue;
                }
                return;
            }
            if self.classification_is_next() {
                self.note_start();
                self.classifications.begin_next();
                continue;
            }
            let wanted = match (self.set_back.front(), self.queue.front()) {
                (Some(row), _) => {
                    let new = Some(row.max_tokens - row.generated());
                    let sight = self.served.sight_bytes(row.scene.as_deref());
                    Wanted { prompt: row.ids.len(), new, report: 0, sight }
                }
                (None, Some(job)) => Wanted {
                    prompt: job.ids.len(),
                    new: job.options.max_tokens,
                    report: self.report_bytes(job.prompt_logprobs.as_ref()),
                    sight: self.served.sight_bytes(job.scene.as_deref()),
                },
                (None, None) => return,
            };
            let context_left = self.served.context_length.saturating_sub(wanted.prompt);
            let admission = match self.in_use() {
                Ok(in_use) => self.admission(wanted, context_left, in_use),
                Err(error) => Admission::Refuse(error.into()),
            };
            // What was admitted once is not refused: at the latest it goes on when it is alone.
            let begins_again = !self.set_back.is_empty();
            let waits = match admission {
                Admission::Wait => true,
                Admission::Refuse(_) => begins_again && self.running() > 0,
                Admission::Run(_) => false,
            };
            let refused = matches!(admission, Admission::Refuse(_)) && !begins_again;
            // What is kept of earlier requests makes room for new ones.
            if (waits || refused) && self.prefixes.evict(EVICT) {
                continue;
            }
            if (waits || refused) && self.give_up_slots() {
                continue;
            }
            if waits {
                return;
            }
            if let Some(row) = self.set_back.pop_front() {
                self.begin_prefill(row);
                continue;
            }
            let Some(job) = self.queue.pop_front() else { return };
            match admission {
                Admission::Run(max_tokens) => self.begin(*job, max_tokens),
                Admission::Refuse(error) => {
                    self.shared.leave();
                    job.output.into_inner().fail(error);
                }
                Admission::Wait => {}
            }
        }
    }

    /// Whether a request may begin, with what others leave of the device.
    fn admission(&self, wanted: Wanted, context_left: usize, in_use: InUse) -> Admission {
        let Served { budget, device, .. } = self.served;
        let admit = |limit| budget.admit(wanted, context_left, in_use, limit);
        match admit(self.watch.within(budget.limit)) {
            // It is not the request that asks for too much.
            Admission::Refuse(Error::Memory { what, needed, available, .. })
                if !matches!(admit(budget.limit), Admission::Refuse(_)) =>
            {
                let (needed, left) = (needed >> 20, available >> 20);
                let reason = format!("{what} needs {needed} MiB, others leave {left} for it");
                Admission::Refuse(out_of_memory(*device, "admission", &reason))
            }
            admission => admission,
        }
    }

    /// What is in use, and set aside for the rows that run.
    fn in_use(&self) -> Result<InUse> {
        let budget = &self.served.budget;
        let prefills = self.prefills.iter().map(|prefill| {
            let longest = prefill.rows().map(|row| row.ids.len()).max().unwrap_or(0);
            let reports = prefill.rows().map(|row| self.report_bytes(row.prompt_logprobs.as_ref()));
            let sights = prefill.rows().map(|row| self.served.sight_bytes(row.scene.as_deref()));
            budget.caches(prefill.rows().count(), longest)
                + reports.sum::<u64>()
                + sights.sum::<u64>()
        });
        let groups = self.groups.iter().map(|group| self.set_aside(group));
        let lanes = [self.classifications.set_aside(), self.inspections.set_aside()];
        let rows = prefills.chain(groups).chain(lanes).sum();
        Ok(InUse { fixed: (memory::active()? as u64).saturating_sub(self.kv_bytes()), rows })
    }

    fn report_bytes(&self, report: Option<&PromptLogprobs>) -> u64 {
        report.map_or(0, |report| self.served.budget.report(report.sizes()))
    }

    /// Bytes that a group's rows take soon.
    fn set_aside(&self, group: &Group) -> u64 {
        let ahead = |row: &Row| Budget::ahead(row.ids.len(), row.max_tokens - row.generated());
        let longest = group.rows().iter().map(ahead).max().unwrap_or(0);
        self.served.budget.caches(group.caches().slots(), longest)
    }

    /// Begins to measure, where nothing else is measured at this time.
    fn note_start(&self) {
        if self.running() == 0 {
            let _ = memory::reset_peak();
        }
    }

    fn begin(&mut self, mut job: Job, max_tokens: usize) {
        self.note_start();
        let seed = job.options.seed.unwrap_or_else(fresh_seed);
        let (options, vocab_size) = (job.options.clone(), self.served.model.vocab_size);
        let sampler = Sampler::new(options, seed, &job.ids, &job.protected_ids, vocab_size);
        match sampler {
            Ok(sampler) => {
                let mut sampler = sampler.by_kernel(self.served.kernels == Kernels::Cuda);
                if let Some(matcher) = job.constraint.take() {
                    sampler.constrain(matcher);
                }
                self.begin_prefill(Row::new(job, sampler, max_tokens));
            }
            Err(error) => {
                self.shared.leave();
                job.output.into_inner().fail(Error::Engine(error.to_string()));
            }
        }
    }

    /// Lets rows whose prompts are computed decode, in a batch where they can.
    fn place(&mut self, rows: Vec<Row>, mut caches: Caches) {
        let decodes = |row: &Row| row.max_tokens > 0;
        let stay: Vec<usize> = (0..rows.len()).filter(|at| decodes(&rows[*at])).collect();
        let (rows, ended): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(decodes);
        let kept = match (rows.is_empty(), ended.is_empty()) {
            (false, false) => caches.keep(&stay),
            _ => Ok(()),
        };
        let group = if rows.is_empty() { None } else { self.fitting_group(&rows, &caches) };
        let placed = match group {
            Some(at) if kept.is_ok() => {
                self.groups[at].join(rows, caches).map_err(|error| (at, error))
            }
            _ if rows.is_empty() => {
                drop(caches);
                Ok(())
            }
            _ => {
                self.groups.push(Group::new(rows, caches));
                kept.map_err(|error| (self.groups.len() - 1, error.into()))
            }
        };
        if let Err((at, error)) = placed {
            self.fail_group(at, error, "joining a batch");
        }
        for mut row in ended {
            let reason = row.end(FinishReason::Length);
            self.end(row, Ok(reason));
        }
    }

    /// A batch that the rows can join without much padding.
    fn fitting_group(&self, rows: &[Row], caches: &Caches) -> Option<usize> {
        if self.served.alone || !caches.can_join() {
            return None;
        }
        let budget = &self.served.budget;
        self.groups.iter().position(|group| {
            let held = group.rows().iter().chain(rows).map(|row| row.ids.len());
            let real: u64 = held.clone().map(|held| budget.caches(1, held)).sum();
            let padded = budget.caches(held.clone().count(), held.max().unwrap_or(0));
            let padding = padded.saturating_sub(real);
            group.caches().can_join()
                && group.caches().rope_factors() == caches.rope_factors()
                && (padding <= real || padding <= FREE_PADDING)
        })
    }

    /// Sets the youngest row back where the rows outgrow the memory; it begins again once there is
    /// room, and goes on where it was.
    fn make_room(&mut self) {
        let decoding = |groups: &[Group]| groups.iter().map(|g| g.rows().len()).sum::<usize>();
        while decoding(&self.groups) > 1 {
            let Ok(InUse { fixed, rows }) = self.in_use() else { return };
            if fixed + rows <= self.served.budget.limit {
                return;
            }
            if self.give_up_slots() {
                continue;
            }
            let all = self.groups.iter().enumerate().flat_map(|(group, rows)| {
                rows.rows().iter().enumerate().map(move |(at, row)| (row.started(), group, at))
            });
            let Some((_, group, at)) = all.max() else { return };
            match self.groups[group].remove(at) {
                Ok(row) => self.set_back.push_back(row),
                Err(error) => self.fail_group(group, error, "making room"),
            }
            self.groups.retain(|group| !group.rows().is_empty());
        }
    }

    /// Gives up slots that rows left, where memory is short. Returns whether there were any.
    fn give_up_slots(&mut self) -> bool {
        let mut any = false;
        let mut at = 0;
        while at < self.groups.len() {
            match self.groups[at].compact() {
                Ok(were_any) => {
                    any |= were_any;
                    at += 1;
                }
                Err(error) => self.fail_group(at, error, "making room"),
            }
        }
        any
    }

    /// One step of every batch.
    fn decode(&mut self) {
        let mut at = 0;
        while at < self.groups.len() {
            let (group, prefixes) = (&mut self.groups[at], &mut self.prefixes);
            let (served, clock) = (self.served, &mut self.clock);
            let step = catch_unwind(AssertUnwindSafe(|| group.step(served, prefixes, clock)))
                .unwrap_or_else(|panic| Err(panicked("the step", &*panic).into()));
            let Stepped { left, result } = match step {
                Ok(stepped) => stepped,
                Err(error) => {
                    self.fail_step(at, error);
                    continue;
                }
            };
            let kept = result.and_then(|()| {
                Ok(self.groups[at].keep_snapshots(self.served, &mut self.prefixes)?)
            });
            match kept {
                _ if self.groups[at].rows().is_empty() => drop(self.groups.remove(at)),
                Ok(()) => at += 1,
                Err(error) => self.fail_step(at, error),
            }
            for (row, exit) in left {
                match exit {
                    Exit::Ended(result) => self.end(row, result),
                    Exit::Outgrown => self.set_back.push_back(row),
                }
            }
        }
        if !self.groups.is_empty() {
            self.steps += 1;
            if self.steps.is_multiple_of(CLEAR_CACHE_EVERY) {
                let _ = memory::clear_cache();
            }
        }
    }

    /// Ends a request whose keys and values are freed already.
    fn end(&mut self, mut row: Row, result: Result<FinishReason>) {
        let (peak, active) = self.settle();
        row.peak_bytes = row.peak_bytes.max(peak);
        let metrics = row.metrics(active);
        self.shared.finished(&metrics);
        self.shared.leave();
        self.beat();
        row.finish(result.map_err(Error::from), metrics);
    }

    /// After a request's end: gives back what nothing needs any more, and tells those that go on
    /// what was in use until now. The most bytes until now, and those in use.
    fn settle(&mut self) -> (u64, u64) {
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
    fn note_peak(&mut self, peak: u64) {
        self.classifications.note_peak(peak);
        self.inspections.note_peak(peak);
        let prefills = self.prefills.iter_mut().flat_map(|prefill| prefill.rows_mut());
        let groups = self.groups.iter_mut().flat_map(|group| group.rows_mut());
        for row in prefills.chain(groups) {
            row.peak_bytes = row.peak_bytes.max(peak);
        }
    }

    /// Ends everything that runs or waits.
    fn close(mut self) {
        let prefills = self.prefills.drain(..).flat_map(Prefill::into_rows);
        let groups = self.groups.drain(..).flat_map(Group::into_rows);
        let rows: Vec<Row> = prefills.chain(groups).chain(self.set_back.drain(..)).collect();
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
