//! The engine thread's own code: load, then serve jobs until told to close.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender};

use inference_core::{Error, LoadOptions, Speculate};
use mlx_ffi::{Device, memory};

use super::chunks;
use super::device::{self, out_of_memory};
use super::due::Due;
use super::features::Features;
use super::job::Command;
use super::memory::Budget;
use super::prefixes::Prefixes;
use super::ranks::{Listener, Ranks};
use super::scheduler::Scheduler;
use super::served::{Served, ServedEnd};
use super::shared::Shared;
use super::wired::WiredShare;
use crate::error::{Result, panicked};
use crate::load::EngineOptions;
use crate::load::{self, Description, LoadedModel};
use crate::weights::Checkpoint;

/// The body of the engine thread. The load is given up once `is_unwanted`.
pub(super) fn run(
    options: EngineOptions,
    is_unwanted: Arc<AtomicBool>,
    ready: &Sender<Result<Description, Error>>,
    (commands, inbox): (Sender<Command>, Receiver<Command>),
    shared: &Arc<Shared>,
) -> ThreadEnd {
    let lost = move |reason| drop(commands.send(Command::Lost(reason)));
    let listener = Listener { engine: Box::new(lost), shared };
    let loaded = catch_unwind(AssertUnwindSafe(|| load_model(&options, is_unwanted, listener)))
        .unwrap_or_else(|panic| Err(panicked("the load", &*panic).into()));
    match loaded {
        Ok(Loaded { served, description, prefixes, wired }) => {
            if ready.send(Ok(description)).is_ok() {
                // Whoever follows another rank must not wait for an engine that a fault of ours
                // ended.
                let ends = Ends(shared);
                let end = Scheduler::new(&served, shared, inbox, (prefixes, wired)).serve();
                drop(ends);
                if matches!(end, ServedEnd::Broken) {
                    return ThreadEnd::Never;
                }
            }
        }
        Err(error) => {
            let is_broken = device::recover(options.device).is_err();
            // The caller waits for this answer; where it is gone, nobody needs it.
            let _ = ready.send(Err(told(error, options.device)));
            if is_broken {
                return ThreadEnd::Never;
            }
        }
    }
    // What the allocator kept is given back once the model is gone. The stream goes to the next
    // engine thread: nothing may still run on it.
    let _ = mlx_ffi::synchronize();
    let _ = memory::give_back();
    ThreadEnd::Now
}

/// Tells that the engine has ended, however it did.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set_fault(&Error::Unusable("the engine ended by a fault of its own".into()));
        }
        self.0.end();
    }
}

/// When the engine's thread may end, if ever.
pub(super) enum ThreadEnd {
    /// It may end now.
    Now,
    /// MLX would use the device for it, which has failed, and end the process.
    Never,
}

/// A load's error, with who holds the memory that was not there.
fn told(error: crate::error::Error, device: Device) -> Error {
    match error {
        crate::error::Error::Mlx(error) if error.is_out_of_memory() => {
            out_of_memory(device, "loading the weights", &error.to_string())
        }
        error => error.into(),
    }
}

/// The model of `ranks`, once its weights are known to fit into `limit` bytes. Nothing is exchanged
/// until it is there: each rank may refuse it by itself.
fn load_checked(
    options: &EngineOptions,
    checkpoint: &Checkpoint,
    ranks: &Ranks,
    limit: u64,
) -> Result<LoadedModel> {
    let described = load::describe(options, checkpoint, ranks.group())?;
    let needed = described.description.info.weight_bytes;
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
    if let Some(progress) = &options.load.progress {
        progress.begin(needed);
    }
    load::load(options, checkpoint, ranks.group())
}

/// Returns true when requests that say nothing of drafts have them. One that is computed by itself
/// verifies each draft, whether that pays or not: only where the load asks for that.
fn drafts(options: &LoadOptions, has_drafter: bool) -> bool {
    let is_asked = options.speculate != Speculate::Auto || options.draft_model.is_some();
    (has_drafter || options.speculate == Speculate::Ngram) && (is_asked || !options.batch_invariant)
}

/// A model that can serve.
struct Loaded {
    served: Served,
    description: Description,
    prefixes: Prefixes,
    wired: WiredShare,
}

/// Loads the model on this thread.
fn load_model(
    options: &EngineOptions,
    is_unwanted: Arc<AtomicBool>,
    listener: Listener<'_>,
) -> Result<Loaded> {
    let shared = Arc::clone(listener.shared);
    mlx_ffi::use_device(options.device)?;
    if let Some(threads) = options.load.threads {
        mlx_ffi::cpu::set_threads(threads);
    }
    let device_limit = device::limit(options.device)?;
    let limit = options.load.memory_limit.unwrap_or(device_limit).min(device_limit);
    device::bound(options.device, limit, options.load.cache_limit)?;
    let checkpoint = Checkpoint::open(&options.files)?.unless(is_unwanted);
    let ranks = Ranks::meet(options, &checkpoint, listener)?;
    let loaded = load_checked(options, &checkpoint, &ranks, limit);
    // The others wait for this rank.
    let LoadedModel { model, specs, heaviest, storage, description, dtype_size } =
        loaded.inspect_err(|error| ranks.end(error))?;
    // What begins is decided for all ranks, so the one with the least memory must have room for it.
    let limit = ranks.be_ready(limit)?;
    memory::give_back()?;
    let alone = options.load.batch_invariant;
    let budget_of = |chunk: usize| {
        let pass = if alone { 0 } else { chunks::pass(options.device, chunk) };
        let sizes = (limit, chunk, pass);
        Budget::new(&model, (&heaviest, storage), dtype_size, options.device, sizes)
    };
    let work = |chunk: usize, prompt: usize| budget_of(chunk).work(prompt, 0);
    let chunk = chunks::chunk(options, limit, &description.info, work)?;
    let (budget, pass) = (budget_of(chunk), chunks::pass(options.device, chunk));
    if options.load.cache_limit.is_none() && options.device == Device::Gpu {
        device::keep_of(budget.chunk_work(), limit)?;
    }
    let served = Served {
        device: options.device,
        features: Features::new(),
        due: Due::default(),
        specs,
        storage,
        budget,
        context_length: description.info.context_length,
        chunk,
        pass,
        alone,
        keeps_slots: options.kernels.is_on_cuda(),
        drafts: drafts(&options.load, model.drafter.is_some()),
        drafter_share: description.drafter_share,
        kernels: options.kernels,
        ranks: Rc::new(ranks),
        model,
    };
    // Activations come and go; weights and caches stay.
    let needs = limit.saturating_sub(served.budget.passes).max(description.info.weight_bytes);
    let wired = WiredShare::of(options.device, options.load.wired_limit, needs)?;
    shared.notice(wired.notice(options.load.wired_limit).into_iter().collect());
    let prefixes = Prefixes::open(options, &checkpoint, &served, (limit, &shared))?;
    Ok(Loaded { served, description, prefixes, wired })
}
