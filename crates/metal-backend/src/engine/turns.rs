//! A thread that owns arrays and does one job after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use inference_core::{CancelToken, EngineStatus, Error, Result};
use mlx_ffi::{Device, memory};

use super::device::{self, EndOfThread};
use super::wired::WiredShare;
use crate::error::panicked;

/// A job of such a thread, and who waits for it.
pub(crate) trait Turn: Send + 'static {
    /// The state that the thread owns.
    type Worker;
    /// The result of the job.
    type Done;

    /// Does the job. `closing` fires when the model is closed.
    ///
    /// # Errors
    /// The error that ended it.
    fn work(&self, worker: &mut Self::Worker, closing: &CancelToken) -> Result<Self::Done>;

    /// Frees what a job that failed left behind.
    fn clear(worker: &mut Self::Worker) {
        let _ = worker;
    }

    /// Tells whoever waits; they may be gone.
    fn answer(self, result: Result<Self::Done>, closing: &CancelToken);
}

/// The state that callers and the thread share.
#[derive(Default)]
struct Shared {
    /// Jobs that were asked for and are not done.
    present: AtomicUsize,
    is_running: AtomicBool,
    closing: CancelToken,
}

/// Says that a thread has nothing to do any more and will not end.
struct Stays;

/// The callers' side of such a thread.
pub(crate) struct Turns<J> {
    shared: Arc<Shared>,
    jobs: Mutex<Option<Sender<J>>>,
    thread: Mutex<Option<(JoinHandle<()>, Receiver<Stays>)>>,
    queue_limit: Option<usize>,
}

impl<J: Turn> Turns<J> {
    /// Starts the thread `name`, which uses `device`; `begin` makes there what it owns.
    ///
    /// # Errors
    /// Those of `begin`.
    pub fn start(
        name: &str,
        device: Device,
        queue_limit: Option<usize>,
        begin: impl FnOnce() -> crate::error::Result<J::Worker> + Send + 'static,
    ) -> Result<Turns<J>> {
        let (jobs, inbox) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let (stays, has_ended) = mpsc::channel();
        let shared = Arc::<Shared>::default();
        let ours = Arc::clone(&shared);
        let work = move || {
            let _end = EndOfThread;
            if !serve(device, begin, &ready, &inbox, &ours) {
                // MLX would use the device, which has failed, for the thread's end, and end the
                // process.
                let _ = stays.send(Stays);
                loop {
                    std::thread::park();
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .map_err(|error| Error::Engine(format!("cannot start the thread `{name}`: {error}")))?;
        let ended = || Err(Error::Engine(format!("the thread `{name}` ended during the load")));
        is_ready.recv().unwrap_or_else(|_| ended())?;
        Ok(Turns {
            shared,
            jobs: Mutex::new(Some(jobs)),
            thread: Mutex::new(Some((thread, has_ended))),
            queue_limit,
        })
    }

    /// Queues a job.
    ///
    /// # Errors
    /// A full queue, a closed model.
    pub fn submit(&self, job: J) -> Result<()> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = jobs.as_ref().ok_or(Error::Closed)?;
        let most = self.queue_limit.map_or(usize::MAX, |limit| limit.saturating_add(1));
        let one_more = |present: usize| (present < most).then_some(present + 1);
        self.shared
            .present
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .map_err(|_| Error::QueueFull { limit: self.queue_limit.unwrap_or(usize::MAX) })?;
        jobs.send(job).map_err(|_| Error::Closed)
    }

    /// That the model was not closed.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn check_open(&self) -> Result<()> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.as_ref().map(|_| ()).ok_or(Error::Closed)
    }

    /// How many jobs run and wait.
    pub fn status(&self) -> EngineStatus {
        let present = self.shared.present.load(Ordering::Acquire);
        let running = usize::from(self.shared.is_running.load(Ordering::Acquire));
        EngineStatus {
            running,
            waiting: present.saturating_sub(running),
            ..EngineStatus::default()
        }
    }

    /// Cancels all jobs, and waits until the thread has freed what it owns.
    pub fn close(&self) {
        self.shared.closing.cancel();
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((thread, stays)) = thread.take()
            && stays.recv().is_err()
        {
            let _ = thread.join();
        }
    }
}

/// The body of the thread. False where the device cannot be used any more.
fn serve<J: Turn>(
    device: Device,
    begin: impl FnOnce() -> crate::error::Result<J::Worker>,
    ready: &Sender<Result<()>>,
    inbox: &Receiver<J>,
    shared: &Shared,
) -> bool {
    let begun = catch_unwind(AssertUnwindSafe(|| begin().map_err(Error::from)));
    let mut worker = match begun.unwrap_or_else(|panic| Err(panicked("the load", &*panic))) {
        Ok(worker) => worker,
        Err(error) => {
            let _ = ready.send(Err(error));
            return true;
        }
    };
    let weights = memory::active().unwrap_or(0) as u64;
    let mut wired = WiredShare::of(device, None, weights).ok();
    let _ = ready.send(Ok(()));
    let mut is_broken = false;
    for job in inbox {
        let result = if is_broken {
            Err(Error::Engine("the device failed; start the program again".into()))
        } else {
            shared.is_running.store(true, Ordering::Release);
            wired.iter_mut().for_each(WiredShare::begin);
            let work = AssertUnwindSafe(|| job.work(&mut worker, &shared.closing));
            catch_unwind(work).unwrap_or_else(|panic| Err(panicked("the request", &*panic)))
        };
        if let Err(error) = &result {
            J::clear(&mut worker);
            is_broken |= after(error, device);
        }
        wired.iter_mut().for_each(WiredShare::end);
        shared.is_running.store(false, Ordering::Release);
        shared.present.fetch_sub(1, Ordering::AcqRel);
        job.answer(result, &shared.closing);
    }
    drop(worker);
    if !is_broken {
        // The stream goes to the next thread: nothing may still run on it.
        let _ = mlx_ffi::synchronize();
        let _ = memory::give_back();
    }
    !is_broken
}

/// Cleans up after an error. True where the device cannot be used any more.
fn after(error: &Error, device: Device) -> bool {
    let is_a_refusal = matches!(
        error,
        Error::Cancelled
            | Error::Closed
            | Error::Memory { .. }
            | Error::InvalidOption { .. }
            | Error::Load { .. }
    );
    let is_broken = !is_a_refusal && device::recover(device).is_err();
    if !is_broken {
        let _ = memory::give_back();
    }
    is_broken
}
