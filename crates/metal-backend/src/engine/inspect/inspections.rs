//! All inspections of an engine: the one under way, and those that wait.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use inference_core::{Error, GenerateMetrics, LayerAttention};

use super::job::InspectJob;
use super::run::Inspection;
use crate::cache::Caches;
use crate::engine::served::Served;
use crate::error::panicked;

/// All inspections of an engine.
#[derive(Default)]
pub(in crate::engine) struct Inspections {
    waiting: VecDeque<Box<InspectJob>>,
    running: Option<Inspection>,
}

impl Inspections {
    /// Takes a job in.
    pub fn push(&mut self, job: Box<InspectJob>) {
        self.waiting.push_back(job);
    }

    /// When the job that begins next was queued.
    pub fn next_queued(&self) -> Option<Instant> {
        self.waiting.front().map(|job| job.queued_at)
    }

    /// Inspections that run.
    pub fn running(&self) -> usize {
        usize::from(self.running.is_some())
    }

    /// Bytes that the one under way has set aside.
    pub fn set_aside(&self) -> u64 {
        self.running.as_ref().map_or(0, |one| one.needed)
    }

    /// Bytes of its caches.
    pub fn kv_bytes(&self) -> u64 {
        self.running.as_ref().map_or(0, |one| one.caches.nbytes())
    }

    /// Bytes that the job takes that begins next; none where it ends with an error at once.
    pub fn next_needs(&self, served: &Served) -> Option<u64> {
        let job = self.waiting.front()?;
        Some(if caches(job, served).can_join() { job.needs(served) } else { 0 })
    }

    /// Begins the next job within `room` bytes.
    ///
    /// # Errors
    /// [`Error::Memory`] where they do not hold it; a context that the prompt outgrows.
    pub fn begin_next(&mut self, served: &Served, room: u64) -> Result<(), Error> {
        let Some(job) = self.waiting.front() else { return Ok(()) };
        let (n, needed) = (job.ids.len(), job.needs(served));
        let caches = caches(job, served);
        if !caches.can_join() {
            return Err(Error::Unsupported {
                what: format!("inspecting {n} tokens"),
                reason:
                    "they outgrow the context length, so that keys are dropped: set a longer one"
                        .into(),
            });
        }
        if needed <= room {
            let Some(job) = self.waiting.pop_front() else { return Ok(()) };
            let caches = caches.with_rope_factors(served.model.rope_factors(n));
            self.running = Some(Inspection::new(*job, caches, served, needed));
            return Ok(());
        }
        let weights = if job.weights { " with its weights" } else { "" };
        Err(Error::Memory {
            what: format!("the attention of {n} tokens{weights}"),
            needed,
            available: room,
            remedy:
                "ask for fewer layers, a shorter prompt or no weights, or raise the memory limit"
                    .into(),
        })
    }

    /// Computes for about `quantum`, at least one layer of a chunk.
    ///
    /// # Errors
    /// Those of MLX, with the layer; a panic.
    pub fn advance(&mut self, served: &Served, quantum: Duration) -> Result<(), Error> {
        let Some(one) = &mut self.running else { return Ok(()) };
        let started = Instant::now();
        while !one.is_done() && started.elapsed() < quantum {
            let part = || one.advance(served);
            catch_unwind(AssertUnwindSafe(part))
                .unwrap_or_else(|panic| Err(panicked("the inspection", &*panic).into()))?;
        }
        Ok(())
    }

    /// Notes what was in use until now.
    pub fn note_peak(&mut self, bytes: u64) {
        if let Some(one) = &mut self.running {
            one.peak_bytes = one.peak_bytes.max(bytes);
        }
    }

    /// Takes out the inspection under way if it is done.
    pub fn take_done(&mut self) -> Option<Done> {
        self.running.take_if(|one| one.is_done()).map(Done::from)
    }

    /// Ends the one under way, or where there is none the next one, with an error.
    pub fn fail(&mut self, error: Error) {
        match self.running.take() {
            Some(one) => one.job.answer(Err(error)),
            None => drop(self.waiting.pop_front().map(|job| job.answer(Err(error)))),
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
        let before = self.waiting.len() + self.running();
        let goes_on = |job: &InspectJob| {
            let cancelled = numbers.contains(&job.number);
            if cancelled {
                job.answer(Err(Error::Cancelled));
            }
            !cancelled
        };
        self.waiting.retain(|job| goes_on(job));
        self.running.take_if(|one| !goes_on(&one.job));
        before - self.waiting.len() - self.running()
    }
}

/// Empty caches of a job's prompt.
fn caches(job: &InspectJob, served: &Served) -> Caches {
    Caches::new(&served.specs, served.storage, 1, job.ids.len())
}

/// An inspection that is done, whose caches are freed already.
pub(in crate::engine) struct Done {
    job: InspectJob,
    layers: Vec<LayerAttention>,
    metrics: GenerateMetrics,
}

impl From<Inspection> for Done {
    fn from(done: Inspection) -> Done {
        let metrics = done.metrics();
        Done { job: done.job, layers: done.layers, metrics }
    }
}

impl Done {
    /// Metrics of the inspection, with `active_bytes` in use now and `peak_bytes` at most so far.
    pub fn metrics(&self, peak_bytes: u64, active_bytes: u64) -> GenerateMetrics {
        GenerateMetrics {
            peak_memory_bytes: self.metrics.peak_memory_bytes.max(peak_bytes),
            active_memory_bytes: active_bytes,
            ..self.metrics.clone()
        }
    }

    /// Hands the result over.
    pub fn answer(self) {
        self.job.answer(Ok(self.layers));
    }
}
