//! State that callers and the engine thread share: who waits, who runs, the last metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use inference_core::{
    EngineStatus, Error, GenerateMetrics, GenerationSender, LastMetrics, LoadOptions, StepTimes,
};
use mlx_ffi::Device;
use mlx_ffi::distributed::Group;

use crate::error::of_f16_for_bf16;

/// Requests that run together where the load options say nothing: a GPU takes as many as its memory
/// holds.
pub(crate) const fn default_slots(device: Device) -> usize {
    match device {
        Device::Gpu => 256,
        Device::Cpu => 16,
    }
}

/// Counts that the engine keeps and callers read.
pub(super) struct Shared {
    device: Device,
    /// Requests that may run together.
    pub slots: usize,
    queue_limit: Option<usize>,
    /// Requests that were submitted and have not ended.
    present: AtomicUsize,
    running: AtomicUsize,
    kv_bytes: AtomicU64,
    prefix_cache_bytes: AtomicU64,
    born: Instant,
    /// Milliseconds since `born` when the engine last finished a step, plus one; 0 while idle.
    beat: AtomicU64,
    last_metrics: LastMetrics,
    step_times: Mutex<StepTimes>,
    /// Notices to users that were not taken yet.
    notices: Mutex<Vec<String>>,
    /// Why nothing can be computed any more.
    fault: Mutex<Option<Error>>,
    /// The model is computed in f16 in place of bf16.
    is_f16_for_bf16: AtomicBool,
    /// The processes that compute the model together.
    ranks: OnceLock<Group>,
    closing: AtomicBool,
    ended: (Mutex<bool>, Condvar),
}

impl Shared {
    pub fn new(options: &LoadOptions, device: Device) -> Shared {
        Shared {
            device,
            slots: options.parallel_slots.unwrap_or(default_slots(device)),
            queue_limit: options.queue_limit,
            present: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            kv_bytes: AtomicU64::new(0),
            prefix_cache_bytes: AtomicU64::new(0),
            born: Instant::now(),
            beat: AtomicU64::new(0),
            last_metrics: LastMetrics::default(),
            step_times: Mutex::default(),
            notices: Mutex::default(),
            fault: Mutex::default(),
            is_f16_for_bf16: AtomicBool::new(false),
            ranks: OnceLock::new(),
            closing: AtomicBool::new(false),
            ended: Default::default(),
        }
    }

    /// Takes note of the processes that compute the model together.
    pub fn joined(&self, ranks: &Group) {
        let _ = self.ranks.set(ranks.clone());
    }

    /// Which rank of several this process is, where it is not the first one.
    pub fn follows(&self) -> Option<usize> {
        self.ranks.get().map(Group::rank).filter(|rank| *rank > 0)
    }

    /// Takes note that everything ends. What is ordered by another rank ends with that.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        if let Some(ranks) = self.ranks.get().filter(|ranks| ranks.rank() > 0) {
            ranks.leave();
        }
    }

    /// Returns true once everything ends.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Takes note that the model is computed in f16 in place of bf16.
    pub fn is_f16_for_bf16(&self) {
        self.is_f16_for_bf16.store(true, Ordering::Release);
    }

    /// `error` of a request as callers are told it.
    pub fn told(&self, error: Error) -> Error {
        match self.is_f16_for_bf16.load(Ordering::Acquire) {
            true => of_f16_for_bf16(error),
            false => error,
        }
    }

    /// Takes note that nothing can be computed any more. The first reason stays.
    pub fn set_fault(&self, error: &Error) {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.get_or_insert_with(|| error.clone());
    }

    /// Adds what users are to be told.
    pub fn notice(&self, notices: Vec<String>) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).extend(notices);
    }

    /// Returns the notices to users since the last call.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why nothing can be computed any more.
    pub fn fault(&self) -> Option<Error> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes note that the engine serves nothing any more.
    pub fn end(&self) {
        *self.ended.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.1.notify_all();
    }

    /// Waits until the engine serves nothing any more.
    pub fn wait_for_end(&self) {
        let ended = self.ended.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ended.1.wait_while(ended, |ended| !*ended));
    }

    /// Counts a request in.
    ///
    /// # Errors
    /// [`Error::QueueFull`] where as many wait as may.
    pub fn enter(&self) -> Result<(), Error> {
        let most = self.queue_limit.map_or(usize::MAX, |limit| limit.saturating_add(self.slots));
        let one_more = |present| (present < most).then_some(present + 1);
        self.present
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .map(drop)
            .map_err(|_| Error::QueueFull { limit: self.queue_limit.unwrap_or(usize::MAX) })
    }

    /// Counts a request out.
    pub fn leave(&self) {
        self.present.fetch_sub(1, Ordering::AcqRel);
    }

    /// Takes note of a finished step, after which so many rows run.
    pub fn beat(&self, running: usize, kv_bytes: u64, prefix_cache_bytes: u64) {
        self.running.store(running, Ordering::Release);
        self.kv_bytes.store(kv_bytes, Ordering::Release);
        self.prefix_cache_bytes.store(prefix_cache_bytes, Ordering::Release);
        let now = self.born.elapsed().as_millis() as u64 + 1;
        self.beat.store(if running > 0 { now } else { 0 }, Ordering::Release);
    }

    /// Takes note of where the time of decode steps went until now.
    pub fn stepped(&self, times: StepTimes) {
        *self.step_times.lock().unwrap_or_else(PoisonError::into_inner) = times;
    }

    /// The metrics of the call that finished last.
    pub fn last_metrics(&self) -> &LastMetrics {
        &self.last_metrics
    }

    /// Keeps the metrics of a request that finished.
    pub fn finished(&self, metrics: &GenerateMetrics) {
        self.last_metrics.set(metrics.clone());
    }

    /// Returns the engine's status at this moment.
    pub fn status(&self) -> EngineStatus {
        let running = self.running.load(Ordering::Acquire);
        let now = self.born.elapsed().as_millis() as u64 + 1;
        let age = match self.beat.load(Ordering::Acquire) {
            0 => 0,
            beat => now.saturating_sub(beat),
        };
        EngineStatus {
            running,
            waiting: self.present.load(Ordering::Acquire).saturating_sub(running),
            kv_bytes: self.kv_bytes.load(Ordering::Acquire),
            prefix_cache_bytes: self.prefix_cache_bytes.load(Ordering::Acquire),
            held_bytes: mlx_ffi::memory::held(self.device),
            heartbeat_age: Duration::from_millis(age),
            step_times: *self.step_times.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// A job's way to its consumer. Dropped with a job that never ran, it tells that the model closed.
pub(crate) struct Sender(Option<GenerationSender>);

impl Sender {
    pub fn new(output: GenerationSender) -> Sender {
        Sender(Some(output))
    }

    /// Returns true when the request's token fired or its consumer is gone.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(GenerationSender::is_cancelled)
    }

    /// The contract's own sender, for a job that runs.
    pub fn into_inner(mut self) -> GenerationSender {
        self.0.take().expect("it is taken by value, once")
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let Some(output) = self.0.take() {
            output.fail(Error::Closed);
        }
    }
}
