//! The engine thread's own code: load, then serve jobs until told to close.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::sync::{Mutex, PoisonError};

use inference_core::{Error, FinishReason, GenerateMetrics, ModelInfo, Outcome};
use mlx_ffi::{Device, memory};

use super::memory::Budget;
use super::sequence::{Sequence, Signal};
use super::{Command, Job};
use crate::cache::CacheSpec;
use crate::config::Config;
use crate::error::Result;
use crate::files::ModelFiles;
use crate::layers::Decoder;
use crate::load::{self, LoadedModel};
use crate::sampling::Sampler;

/// Prompt ids computed at once where the load options say nothing.
const DEFAULT_CHUNK: usize = 2048;
/// MLX's quantised kernels are right up to this many rows.
const MAX_CHUNK: usize = 32_768;

/// What the engine thread needs to load a model.
pub(crate) struct EngineOptions {
    pub files: ModelFiles,
    pub config: Config,
    pub device: Device,
    pub load: inference_core::LoadOptions,
}

/// The state of the engine thread.
struct Worker<'a> {
    model: Decoder,
    specs: Vec<CacheSpec>,
    budget: Budget,
    context_length: usize,
    chunk: usize,
    queue: VecDeque<Box<Job>>,
    inbox: Receiver<Command>,
    closing: bool,
    last_metrics: &'a Mutex<Option<GenerateMetrics>>,
}

/// The body of the engine thread.
pub(super) fn run(
    options: EngineOptions,
    ready: &Sender<Result<ModelInfo, Error>>,
    inbox: Receiver<Command>,
    last_metrics: &Mutex<Option<GenerateMetrics>>,
) {
    let loaded = catch_unwind(AssertUnwindSafe(|| load_model(&options)))
        .unwrap_or_else(|panic| Err(panicked("the load", &*panic).into()));
    let (loaded, limit) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            clean_up();
            // The caller waits for this answer; where it is gone, nobody needs it.
            let _ = ready.send(Err(error.into()));
            return;
        }
    };
    let LoadedModel { model, specs, info, dtype_size } = loaded;
    let budget = Budget::new(&model, &specs, dtype_size, limit);
    let worker = Worker {
        specs,
        budget,
        context_length: info.context_length,
        chunk: options.load.prefill_chunk.unwrap_or(DEFAULT_CHUNK).min(MAX_CHUNK),
        queue: VecDeque::new(),
        inbox,
        closing: false,
        last_metrics,
        model,
    };
    if ready.send(Ok(info)).is_ok() {
        worker.serve();
    }
    clean_up();
}

/// Gives back what the allocator kept once the model is gone.
fn clean_up() {
    // The stream goes to the next engine thread: nothing may still run on it.
    let _ = mlx_ffi::synchronize();
    let _ = memory::clear_cache();
}

/// Loads the model on this thread; with it, the bytes that everything may take together.
fn load_model(options: &EngineOptions) -> Result<(LoadedModel, u64)> {
    mlx_ffi::use_device(options.device)?;
    if let Some(threads) = options.load.threads {
        mlx_ffi::cpu::set_threads(threads);
    }
    if let Some(limit) = options.load.cache_limit {
        memory::set_cache_limit(limit as usize)?;
    }
    let device_limit = memory::limit()? as u64;
    let limit = options.load.memory_limit.unwrap_or(device_limit).min(device_limit);
    let needed = load::describe(options)?.info.weight_bytes;
    let available = limit.saturating_sub(memory::active()? as u64);
    if needed > available {
        return Err(Error::Memory {
            what: "loading the weights".into(),
            needed,
            available,
            remedy: "take a smaller model or one with fewer bits, or raise the memory limit".into(),
        }
        .into());
    }
    let loaded = load::load(options)?;
    memory::clear_cache()?;
    Ok((loaded, limit))
}

impl Worker<'_> {
    fn serve(mut self) {
        loop {
            let job = match self.queue.pop_front() {
                Some(job) => job,
                None => match self.inbox.recv() {
                    Ok(Command::Run(job)) => job,
                    Ok(Command::Close) | Err(_) => break,
                },
            };
            // What fails outside of a request's own guard ends that request only: its sender goes
            // with it and tells the consumer.
            let _ = catch_unwind(AssertUnwindSafe(|| self.serve_one(*job)));
            if self.closing {
                break;
            }
        }
        let waiting = self.queue.drain(..).map(|job| *job);
        let unread = std::iter::from_fn(|| match self.inbox.try_recv() {
            Ok(Command::Run(job)) => Some(Some(*job)),
            Ok(Command::Close) => Some(None),
            Err(_) => None,
        });
        for job in waiting.chain(unread.flatten()) {
            job.output.fail(Error::Closed);
        }
    }

    fn serve_one(&mut self, job: Job) {
        if job.output.is_cancelled() {
            return cancel(job);
        }
        let chunk = self.chunk;
        let context_left = self.context_length.saturating_sub(job.ids.len());
        let started = memory::reset_peak().map_err(crate::error::Error::from).and_then(|()| {
            let wanted = job.options.max_tokens;
            self.budget.admit(job.ids.len(), wanted, context_left, chunk)
        });
        let max_tokens = match started {
            Ok(max_tokens) => max_tokens,
            Err(error) => return job.output.fail(error.into()),
        };
        let seed = job.options.seed.unwrap_or_else(fresh_seed);
        let sampler = Sampler::new(
            job.options.clone(),
            seed,
            &job.ids,
            &job.protected_ids,
            self.model.vocab_size,
        );
        let sampler = match sampler {
            Ok(sampler) => sampler,
            Err(error) => return job.output.fail(Error::Engine(error.to_string())),
        };
        let mut sequence = Sequence::new(job, sampler, &self.model, &self.specs, max_tokens);
        let Worker { model, queue, inbox, closing, .. } = self;
        let mut between = || {
            *closing |= look_at_inbox(inbox, queue);
            if *closing { Signal::Closing } else { Signal::Continue }
        };
        let body = AssertUnwindSafe(|| sequence.run(model, chunk, &mut between));
        let result = match catch_unwind(body) {
            Ok(result) => result.map_err(Error::from),
            Err(panic) => Err(panicked("the request", &*panic)),
        };
        let (output, metrics, seed) = sequence.finish();
        // A step that was queued ahead may still run and hold memory.
        let _ = mlx_ffi::synchronize();
        let _ = memory::clear_cache();
        let bytes = |figure: mlx_ffi::Result<usize>| figure.unwrap_or(0) as u64;
        let metrics = GenerateMetrics {
            peak_memory_bytes: bytes(memory::peak()),
            active_memory_bytes: bytes(memory::active()),
            ..metrics
        };
        *self.last_metrics.lock().unwrap_or_else(PoisonError::into_inner) = Some(metrics.clone());
        match result {
            Ok(finish_reason) => output.finish(Outcome { finish_reason, metrics, seed }),
            Err(error) => output.fail(error),
        }
    }
}

/// Takes in what arrived; ends queued jobs that were cancelled. True when told to close.
fn look_at_inbox(inbox: &Receiver<Command>, queue: &mut VecDeque<Box<Job>>) -> bool {
    let closing = loop {
        match inbox.try_recv() {
            Ok(Command::Run(job)) => queue.push_back(job),
            Ok(Command::Close) | Err(TryRecvError::Disconnected) => break true,
            Err(TryRecvError::Empty) => break false,
        }
    };
    if queue.iter().any(|job| job.output.is_cancelled()) {
        for job in std::mem::take(queue) {
            if job.output.is_cancelled() {
                cancel(*job);
            } else {
                queue.push_back(job);
            }
        }
    }
    closing
}

/// Ends a job that never ran.
fn cancel(job: Job) {
    let waited = job.queued_at.elapsed();
    let metrics = GenerateMetrics {
        prompt_tokens: job.ids.len(),
        queue_duration: waited,
        total_duration: waited,
        ..GenerateMetrics::default()
    };
    let seed = job.options.seed.unwrap_or_default();
    job.output.finish(Outcome { finish_reason: FinishReason::Cancelled, metrics, seed });
}

fn panicked(what: &str, panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Error::Engine(format!("{what} failed unexpectedly: {text}"))
}

/// Entropy from the standard library's hash keys.
fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
