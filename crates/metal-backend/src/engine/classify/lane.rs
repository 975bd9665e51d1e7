//! The classifications that wait and run. They take turns batch by batch, so that only one has
//! caches at a time.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use inference_core::{Error, GenerateMetrics};

use super::batch::Batch;
use super::classification::Classification;
use super::job::ClassifyJob;
use crate::engine::served::Served;
use crate::error::panicked;
use crate::plan::Pace;

/// All classifications of an engine.
#[derive(Default)]
pub(in crate::engine) struct Lane {
    waiting: VecDeque<Box<ClassifyJob>>,
    /// The first one computes.
    running: VecDeque<Classification>,
    /// The next batch waits for memory.
    waits: bool,
    pace: Pace,
}

impl Lane {
    /// Takes a job in.
    pub fn push(&mut self, job: Box<ClassifyJob>) {
        self.waiting.push_back(job);
    }

    /// When the job that begins next was queued.
    pub fn next_queued(&self) -> Option<Instant> {
        self.waiting.front().map(|job| job.queued_at)
    }

    /// Begins the next job, where one waits.
    pub fn begin_next(&mut self) {
        let next = self.waiting.pop_front().map(|job| Classification::new(*job));
        self.running.extend(next);
    }

    /// Classifications that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns true while the next batch waits for memory.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Bytes that the batch under way has set aside.
    pub fn set_aside(&self) -> u64 {
        self.batch().map_or(0, |batch| batch.needed)
    }

    /// Bytes of its caches.
    pub fn kv_bytes(&self) -> u64 {
        self.batch().map_or(0, Batch::kv_bytes)
    }

    fn batch(&self) -> Option<&Batch> {
        self.running.front().and_then(|first| first.batch.as_ref())
    }

    /// Bytes that the next batch takes at least, where one must begin before anything can be
    /// computed.
    pub fn next_needs(&self, served: &Served) -> Option<u64> {
        let first = self.running.front()?;
        (first.batch.is_none() && !first.is_done()).then(|| first.least(served))
    }

    /// Takes note that the next batch waits for memory.
    pub fn wait(&mut self) {
        self.waits = true;
    }

    /// Begins a batch within `room` bytes.
    ///
    /// # Errors
    /// [`Error::Memory`] where they do not hold one; those of MLX.
    pub fn begin_batch(&mut self, served: &Served, room: u64) -> Result<(), Error> {
        self.waits = false;
        let Some(first) = self.running.front_mut() else { return Ok(()) };
        Ok(first.begin(served, room)?)
    }

    /// Computes for about a quantum, where a batch is under way.
    ///
    /// # Errors
    /// Those of MLX; a panic.
    pub fn advance(&mut self, served: &Served) -> Result<(), Error> {
        let Some(first) = self.running.front_mut() else { return Ok(()) };
        let Some(batch) = &first.batch else { return Ok(()) };
        let (ids, n_layers) = (batch.part(), served.model.layers.len());
        let pace = || self.pace.layers(ids, n_layers);
        let layers = served.ranks.agree("layers", pace).map_err(Error::from)?;
        let started = Instant::now();
        let part = || first.advance(served, layers);
        catch_unwind(AssertUnwindSafe(part))
            .unwrap_or_else(|panic| Err(panicked("the classification", &*panic).into()))
            .map_err(|error| error.in_phase("classification"))?;
        if ids > 0 {
            self.pace = Pace::of(started.elapsed(), ids, layers);
        }
        if first.batch.is_none() && !first.is_done() {
            self.running.rotate_left(1);
        }
        Ok(())
    }

    /// Notes what was in use until now.
    pub fn note_peak(&mut self, bytes: u64) {
        self.running.iter_mut().for_each(|one| one.peak_bytes = one.peak_bytes.max(bytes));
    }

    /// Takes out the first classification if it is done, with what it cost.
    pub fn take_done(&mut self) -> Option<Done> {
        if !self.running.front()?.is_done() {
            return None;
        }
        self.running.pop_front().map(|done| Done { done })
    }

    /// Ends the first classification with an error.
    pub fn fail(&mut self, error: Error) {
        self.waits = false;
        if let Some(failed) = self.running.pop_front() {
            failed.job.answer(Err(error));
        }
    }

    /// The numbers of those that were cancelled.
    pub fn cancelled(&self) -> impl Iterator<Item = u64> {
        let running = self.running.iter().map(|one| &one.job);
        let all = self.waiting.iter().map(|job| &**job).chain(running);
        all.filter(|job| job.cancel.is_cancelled()).map(|job| job.number)
    }

    /// Ends those with these numbers; how many that were.
    pub fn end(&mut self, numbers: &[u64]) -> usize {
        let before = self.waiting.len() + self.running.len();
        let goes_on = |job: &ClassifyJob| {
            let cancelled = numbers.contains(&job.number);
            if cancelled {
                job.answer(Err(Error::Cancelled));
            }
            !cancelled
        };
        self.waiting.retain(|job| goes_on(job));
        self.running.retain(|one| goes_on(&one.job));
        self.waits &= !self.running.is_empty();
        before - self.waiting.len() - self.running.len()
    }
}

/// A classification that is done, whose caches are freed already.
pub(in crate::engine) struct Done {
    done: Classification,
}

impl Done {
    /// Metrics of the classification, with `active_bytes` in use now.
    pub fn metrics(&self, active_bytes: u64) -> GenerateMetrics {
        self.done.metrics(active_bytes)
    }

    /// Hands the result over.
    pub fn answer(self) {
        let Classification { job, scores, .. } = self.done;
        job.answer(Ok(scores));
    }
}
