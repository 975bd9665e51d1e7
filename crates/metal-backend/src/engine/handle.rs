//! The handle of an engine thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, ThreadId};

use inference_core::{EngineStatus, Error, LastMetrics, LayerAttention};

use super::classify::{ClassifyJob, Scores};
use super::device::EndOfThread;
use super::inspect::InspectJob;
use super::job::{Command, Job};
use super::shared::Shared;
use super::worker::{self, ThreadEnd};
use crate::load::Description;
use crate::load::EngineOptions;

/// The handle of an engine thread; any thread may use it.
pub(crate) struct Engine {
    commands: Sender<Command>,
    shared: Arc<Shared>,
    closed: AtomicBool,
    thread_id: ThreadId,
    thread: Mutex<Option<EngineThread>>,
}

impl Engine {
    /// Starts a thread, loads the model on it, does `meanwhile` and waits until the model is ready.
    ///
    /// # Errors
    /// That of `meanwhile`, which ends the load; why the model cannot be loaded.
    pub fn start<T>(
        options: EngineOptions,
        meanwhile: impl FnOnce() -> Result<T, Error>,
    ) -> Result<(Engine, Description, T), Error> {
        let (commands, inbox) = mpsc::channel();
        let (ready, loaded) = mpsc::channel();
        let shared = Arc::new(Shared::new(&options.load, options.device));
        let engine_side = Arc::clone(&shared);
        let is_unwanted = Arc::new(AtomicBool::new(false));
        let unless = Arc::clone(&is_unwanted);
        let (stays, has_ended) = mpsc::channel();
        let own_commands = commands.clone();
        let work = move || {
            let _end = EndOfThread;
            match worker::run(options, unless, &ready, (own_commands, inbox), &engine_side) {
                ThreadEnd::Now => drop(stays),
                ThreadEnd::Never => {
                    let _ = stays.send(Stays);
                    loop {
                        std::thread::park();
                    }
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("ml-engine".into())
            .spawn(work)
            .map_err(|error| Error::Engine(format!("cannot start the engine thread: {error}")))?;
        let done = match meanwhile() {
            Ok(done) => done,
            Err(error) => {
                is_unwanted.store(true, Ordering::Relaxed);
                // Nobody waits for what it has to say.
                drop((commands, loaded));
                wait_for((thread, has_ended));
                return Err(error);
            }
        };
        let description = receive(&loaded)?;
        let engine = Engine {
            commands,
            shared,
            closed: AtomicBool::new(false),
            thread_id: thread.thread().id(),
            thread: Mutex::new(Some((thread, has_ended))),
        };
        Ok((engine, description, done))
    }

    /// Checks that the engine was not closed.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Checks that the engine takes requests.
    ///
    /// # Errors
    /// [`Error::Closed`]; another rank that takes them; why nothing can be computed any more.
    fn check_takes(&self) -> Result<(), Error> {
        self.check_open()?;
        if let Some(rank) = self.shared.follows() {
            return Err(Error::Unsupported {
                what: format!("a request to rank {rank}"),
                reason: "rank 0 takes the requests, and the others follow it".into(),
            });
        }
        self.fault().map_or(Ok(()), Err)
    }

    /// Takes note that the model is computed in f16 in place of bf16, which errors name then.
    pub fn is_f16_for_bf16(&self) {
        self.shared.is_f16_for_bf16();
    }

    /// Tells users something.
    pub fn notice(&self, notice: String) {
        self.shared.notice(vec![notice]);
    }

    /// Returns the notices to users since the last call.
    pub fn notices(&self) -> Vec<String> {
        self.shared.take_notices()
    }

    /// Why nothing can be computed any more.
    pub fn fault(&self) -> Option<Error> {
        self.shared.fault()
    }

    /// In another rank than the first: waits until that one has ended.
    ///
    /// # Errors
    /// A rank that is lost.
    pub fn follow(&self) -> Result<(), Error> {
        if self.shared.follows().is_none() {
            return Ok(());
        }
        self.shared.wait_for_end();
        self.fault().map_or(Ok(()), Err)
    }

    /// Queues a job.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::QueueFull`].
    pub fn submit(&self, job: Job) -> Result<(), Error> {
        self.check_takes()?;
        self.shared.enter()?;
        self.commands.send(Command::Run(Box::new(job))).map_err(|_| Error::Closed)
    }

    /// Queues a classification and waits for it.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::QueueFull`]; what ended it.
    pub fn classify(
        &self,
        job: impl FnOnce(Sender<Result<Vec<Scores>, Error>>) -> ClassifyJob,
    ) -> Result<Vec<Scores>, Error> {
        let scores = self.ask(|reply| Command::Classify(Box::new(job(reply))));
        scores.map_err(|error| self.shared.told(error))
    }

    /// Queues an inspection and waits for it.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::QueueFull`]; what ended it.
    pub fn inspect(
        &self,
        job: impl FnOnce(Sender<Result<Vec<LayerAttention>, Error>>) -> InspectJob,
    ) -> Result<Vec<LayerAttention>, Error> {
        self.ask(|reply| Command::Inspect(Box::new(job(reply))))
    }

    /// Gives freed memory back between two steps, and waits for that.
    ///
    /// # Errors
    /// [`Error::Closed`]; why nothing can be computed any more; what the device says.
    pub fn clear_cache(&self) -> Result<(), Error> {
        self.check_takes()?;
        let (reply, answer) = mpsc::channel();
        self.commands.send(Command::ClearCache(reply)).map_err(|_| Error::Closed)?;
        answer.recv().unwrap_or(Err(Error::Closed))
    }

    /// Queues what answers once, and waits for the answer.
    fn ask<T>(
        &self,
        command: impl FnOnce(Sender<Result<T, Error>>) -> Command,
    ) -> Result<T, Error> {
        self.check_takes()?;
        self.shared.enter()?;
        let (reply, answer) = mpsc::channel();
        self.commands.send(command(reply)).map_err(|_| Error::Closed)?;
        answer.recv().unwrap_or(Err(Error::Closed))
    }

    /// The metrics of the request that finished last.
    pub fn last_metrics(&self) -> &LastMetrics {
        self.shared.last_metrics()
    }

    /// Returns the engine's status at this moment.
    pub fn status(&self) -> EngineStatus {
        self.shared.status()
    }

    /// Ends every request, frees the model and waits for the thread. A second caller waits too.
    pub fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.shared.close();
            // The thread may have ended already; then there is nobody to tell.
            let _ = self.commands.send(Command::Close);
        }
        // A consumer's waker runs on the engine thread and may drop the model there.
        if self.thread_id == std::thread::current().id() {
            return;
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            wait_for(thread);
        }
    }
}

/// Says that a thread has nothing to do any more and will not end.
struct Stays;

/// A thread, and where it says that it stays.
type EngineThread = (JoinHandle<()>, Receiver<Stays>);

/// Waits until a thread has ended, or has nothing more to do.
fn wait_for((thread, stays): EngineThread) {
    if stays.recv().is_err() {
        let _ = thread.join();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

fn receive(loaded: &Receiver<Result<Description, Error>>) -> Result<Description, Error> {
    loaded
        .recv()
        .unwrap_or_else(|_| Err(Error::Engine("the engine thread ended during the load".into())))
}
