//! The engine thread: it loads the model, owns every array and computes.
//!
//! Callers hand it jobs through a channel and read tokens from their own
//! [`Generation`](inference_core::Generation); no array ever leaves the thread.

mod memory;
mod output;
mod sequence;
mod worker;

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use inference_core::{Error, GenerateMetrics, GenerateOptions, GenerationSender, ModelInfo};

use crate::constraint::Matcher;

pub(crate) use output::TextState;
pub(crate) use worker::EngineOptions;

/// One request, ready to run: validated options and ids, and where its tokens go.
pub(crate) struct Job {
    /// The prompt; not empty, every id below the vocabulary's size.
    pub ids: Vec<u32>,
    /// Validated, with the model's own defaults filled in.
    pub options: GenerateOptions,
    /// Ids that end the generation.
    pub eos_token_ids: Vec<u32>,
    /// Ids that XTC never drops.
    pub protected_ids: Vec<u32>,
    /// What the text must conform to, at its beginning.
    pub constraint: Option<Matcher>,
    /// From ids to text.
    pub text: TextState,
    /// Where tokens and the outcome go.
    pub output: GenerationSender,
    /// When the caller asked.
    pub queued_at: Instant,
}

/// What the engine thread is told.
enum Command {
    Run(Box<Job>),
    Close,
}

/// The handle of an engine thread; any thread may use it.
pub(crate) struct Engine {
    commands: Sender<Command>,
    thread: Mutex<Option<JoinHandle<()>>>,
    last_metrics: std::sync::Arc<Mutex<Option<GenerateMetrics>>>,
}

impl Engine {
    /// Starts a thread, loads the model on it and waits until it is ready.
    ///
    /// # Errors
    /// Why the model cannot be loaded.
    pub fn start(options: EngineOptions) -> Result<(Engine, ModelInfo), Error> {
        let (commands, inbox) = mpsc::channel();
        let (ready, loaded) = mpsc::channel();
        let last_metrics = std::sync::Arc::new(Mutex::new(None));
        let metrics = std::sync::Arc::clone(&last_metrics);
        let thread = std::thread::Builder::new()
            .name("ml-engine".into())
            .spawn(move || worker::run(options, &ready, inbox, &metrics))
            .map_err(|error| Error::Engine(format!("cannot start the engine thread: {error}")))?;
        let info = receive(&loaded)?;
        Ok((Engine { commands, thread: Mutex::new(Some(thread)), last_metrics }, info))
    }

    /// Whether the engine takes requests.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn check_open(&self) -> Result<(), Error> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_some() { Ok(()) } else { Err(Error::Closed) }
    }

    /// Queues a job.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn submit(&self, job: Job) -> Result<(), Error> {
        self.check_open()?;
        self.commands.send(Command::Run(Box::new(job))).map_err(|_| Error::Closed)
    }

    /// The metrics of the request that finished last.
    pub fn last_metrics(&self) -> Option<GenerateMetrics> {
        self.last_metrics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends every request, frees the model and waits for the thread.
    pub fn close(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread may have ended already; then there is nobody to tell.
            let _ = self.commands.send(Command::Close);
            // A consumer's waker runs on the engine thread and may drop the model there.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

fn receive(loaded: &Receiver<Result<ModelInfo, Error>>) -> Result<ModelInfo, Error> {
    loaded
        .recv()
        .unwrap_or_else(|_| Err(Error::Engine("the engine thread ended during the load".into())))
}
