//! An image model as the contract sees it, and the thread that makes its pictures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use inference_core::{
    CancelToken, EngineStatus, Error, GeneratedImage, ImageEvent, ImageGeneration,
    ImageLoadOptions, ImageModel, ImageModelInfo, ImageRequest, ImageSender, Result,
};
use mlx_ffi::{Device, memory};

use super::folder::PipelineFolder;
use super::painter::{Painter, Watcher};
use super::pipeline::Pipeline;
use super::plan::Plan;
use super::planner::Planner;
use crate::engine::device;
use crate::error::panicked;
use crate::kernels::Kernels;

/// An image model on a thread of its own, which alone owns its arrays.
pub(crate) struct MlxImageModel {
    planner: Planner,
    shared: Arc<Shared>,
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<(JoinHandle<()>, Receiver<Stays>)>>,
    queue_limit: Option<usize>,
}

/// A picture that waits for its turn.
struct Job {
    plan: Plan,
    sender: ImageSender,
    queued: Instant,
}

/// What callers and the thread both see.
#[derive(Default)]
struct Shared {
    /// Pictures that were asked for and are not done.
    present: AtomicUsize,
    is_running: AtomicBool,
    /// Ends what runs when the model is closed.
    closing: CancelToken,
}

/// Says that a thread has nothing to do any more and will not end.
struct Stays;

impl MlxImageModel {
    /// Reads the configs and headers in `path`, and starts the thread. Weights are read when they are
    /// needed.
    ///
    /// # Errors
    /// An option that is not honoured; what is wrong with the files.
    pub fn load(
        path: &Path,
        options: &ImageLoadOptions,
        device: Device,
        kernels: Kernels,
    ) -> Result<MlxImageModel> {
        let folder = PipelineFolder::open(path)?;
        let pipeline = Pipeline::open(&folder, options, kernels)?;
        let planner = Planner::new(&pipeline, &folder, device)?;
        let (jobs, inbox) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let (stays, has_ended) = mpsc::channel();
        let shared = Arc::<Shared>::default();
        let queue_limit = options.queue_limit;
        let (ours, options) = (Arc::clone(&shared), options.clone());
        let work = move || {
            if !serve(pipeline, &options, device, &ready, &inbox, &ours) {
                // MLX would use the device, which has failed, for the thread's end, and end the process.
                let _ = stays.send(Stays);
                loop {
                    std::thread::park();
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("ml-images".into())
            .spawn(work)
            .map_err(|error| Error::Engine(format!("cannot start the image thread: {error}")))?;
        let ended = || Err(Error::Engine("the image thread ended during the load".into()));
        is_ready.recv().unwrap_or_else(|_| ended())?;
        Ok(MlxImageModel {
            planner,
            shared,
            jobs: Mutex::new(Some(jobs)),
            thread: Mutex::new(Some((thread, has_ended))),
            queue_limit,
        })
    }

    /// What can be told of a folder without reading weights.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn describe(
        path: &Path,
        options: &ImageLoadOptions,
        device: Device,
        kernels: Kernels,
    ) -> Result<ImageModelInfo> {
        let folder = PipelineFolder::open(path)?;
        let pipeline = Pipeline::open(&folder, options, kernels)?;
        Ok(Planner::new(&pipeline, &folder, device)?.info)
    }
}

impl ImageModel for MlxImageModel {
    fn info(&self) -> &ImageModelInfo {
        &self.planner.info
    }

    fn generate(&self, request: &ImageRequest) -> Result<ImageGeneration> {
        let plan = self.planner.plan(request)?;
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = jobs.as_ref().ok_or(Error::Closed)?;
        let most = self.queue_limit.map_or(usize::MAX, |limit| limit.saturating_add(1));
        let one_more = |present: usize| (present < most).then_some(present + 1);
        self.shared
            .present
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .map_err(|_| Error::QueueFull { limit: self.queue_limit.unwrap_or(usize::MAX) })?;
        let (sender, generation) = ImageGeneration::new(&request.cancel);
        let job = Job { plan, sender, queued: Instant::now() };
        jobs.send(job).map_err(|_| Error::Closed)?;
        Ok(generation)
    }

    fn status(&self) -> EngineStatus {
        let present = self.shared.present.load(Ordering::Acquire);
        let running = usize::from(self.shared.is_running.load(Ordering::Acquire));
        EngineStatus {
            running,
            waiting: present.saturating_sub(running),
            ..EngineStatus::default()
        }
    }

    fn close(&self) {
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

impl Drop for MlxImageModel {
    fn drop(&mut self) {
        self.close();
    }
}

/// The body of the thread. False where the device cannot be used any more.
fn serve(
    pipeline: Pipeline,
    options: &ImageLoadOptions,
    device: Device,
    ready: &Sender<Result<()>>,
    inbox: &Receiver<Job>,
    shared: &Shared,
) -> bool {
    let limit = match prepare(options, device) {
        Ok(limit) => limit,
        Err(error) => {
            let _ = ready.send(Err(error.into()));
            return true;
        }
    };
    let _ = ready.send(Ok(()));
    let mut painter = Painter::new(pipeline, limit, options.keep_components);
    let mut is_broken = false;
    for Job { plan, sender, queued } in inbox {
        let waited = queued.elapsed();
        let result = if is_broken {
            Err(Error::Engine("the device failed; start the program again".into()))
        } else {
            shared.is_running.store(true, Ordering::Release);
            let mut watcher = Told { sender: &sender, closing: &shared.closing };
            let paint =
                AssertUnwindSafe(|| painter.paint(&plan, &mut watcher).map_err(Error::from));
            catch_unwind(paint).unwrap_or_else(|panic| Err(panicked("the picture", &*panic)))
        };
        let result = match result {
            Ok(mut image) => {
                image.facts.queue_duration = waited;
                image.facts.total_duration += waited;
                Ok(image)
            }
            Err(error) => {
                painter.clear();
                is_broken |= after(&error, device);
                Err(error)
            }
        };
        shared.is_running.store(false, Ordering::Release);
        shared.present.fetch_sub(1, Ordering::AcqRel);
        finish(sender, result, &shared.closing);
    }
    drop(painter);
    if !is_broken {
        // The stream goes to the next thread: nothing may still run on it.
        let _ = mlx_ffi::synchronize();
        let _ = memory::give_back();
    }
    !is_broken
}

/// Makes the device this thread's, and says how many bytes arrays may take on it.
fn prepare(options: &ImageLoadOptions, device: Device) -> crate::error::Result<u64> {
    mlx_ffi::use_device(device)?;
    if let Some(threads) = options.threads {
        mlx_ffi::cpu::set_threads(threads);
    }
    let of_device = device::limit(device)?;
    let limit = options.memory_limit.unwrap_or(of_device).min(of_device);
    device::bound(device, limit, None)?;
    Ok(limit)
}

/// Cleans up after an error. True where the device cannot be used any more.
fn after(error: &Error, device: Device) -> bool {
    let is_a_refusal = matches!(
        error,
        Error::Cancelled | Error::Memory { .. } | Error::InvalidOption { .. } | Error::Load { .. }
    );
    let is_broken = !is_a_refusal && device::recover(device).is_err();
    if !is_broken {
        let _ = memory::give_back();
    }
    is_broken
}

fn finish(sender: ImageSender, result: Result<GeneratedImage>, closing: &CancelToken) {
    match result {
        Err(Error::Cancelled) if closing.is_cancelled() => sender.finish(Err(Error::Closed)),
        result => sender.finish(result),
    }
}

/// Whoever waits for a picture.
struct Told<'a> {
    sender: &'a ImageSender,
    closing: &'a CancelToken,
}

impl Watcher for Told<'_> {
    fn is_cancelled(&self) -> bool {
        self.sender.is_cancelled() || self.closing.is_cancelled()
    }

    fn tell(&mut self, event: ImageEvent) {
        self.sender.send(event);
    }
}
