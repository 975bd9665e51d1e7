//! The state that the handlers of one server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::ignored::Logged;
use super::metrics::Metrics;
use crate::batches::store::Store;
use crate::config::Config;
use crate::error::{ApiError, Result};
use crate::pool::keeper::Pool;
use crate::pool::models::Models;
use crate::traces::queue::Queue;

/// Sounds that are decoded at once: a short file may be hundreds of megabytes of samples.
const SOUNDS: usize = 2;

/// Bytes of a text that takes milliseconds to read and to tokenize.
const LONG: usize = 64 << 10;

/// The state that all handlers share.
pub struct State {
    /// The server's configuration.
    pub config: Config,
    /// Counts and times.
    pub metrics: Metrics,
    /// Files and batches, where the server keeps any.
    pub batches: Option<Arc<Store>>,
    /// The models.
    pub pool: Arc<Pool>,
    /// Which fields of which clients were logged as ignored.
    pub ignored: Logged,
    /// Spans that wait to be sent, where the server sends any.
    pub traces: Option<Arc<Queue>>,
    /// When the server was started, in seconds since 1970.
    pub created: u64,
    /// How many texts are tokenized or rendered at once.
    text_work: Arc<Semaphore>,
    /// How many of them are long, so that short ones need not wait for all of those.
    long_work: Arc<Semaphore>,
    /// How many sounds are held as samples at once.
    sounds: Arc<Semaphore>,
    /// Becomes `true` when generations must end, whatever they are at.
    cut: watch::Sender<bool>,
    /// Told when a request ends the server.
    end: Notify,
    ids: AtomicU64,
    /// Tells one server's ids from another's.
    salt: u64,
}

impl State {
    /// The state of a server that has `models`, and `batches` where it keeps any. Must be called
    /// within a tokio runtime.
    pub fn new(config: Config, models: Models, batches: Option<Arc<Store>>) -> Arc<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let metrics = Metrics::default();
        let queue = || Queue::new(metrics.spans_sent.clone(), metrics.spans_lost.clone());
        Arc::new(State {
            traces: config.traces.as_ref().map(|_| Arc::new(queue())),
            pool: Pool::new(models, (config.slots, config.limits.waiting), config.tools),
            config,
            batches,
            metrics,
            ignored: Logged::default(),
            created: now.as_secs(),
            text_work: Arc::new(Semaphore::new(cores.max(2))),
            long_work: Arc::new(Semaphore::new((cores / 2).max(1))),
            sounds: Arc::new(Semaphore::new(SOUNDS)),
            cut: watch::Sender::new(false),
            end: Notify::new(),
            ids: AtomicU64::new(0),
            salt: now.as_nanos() as u64,
        })
    }

    /// Waits until one more sound may be held as samples; it is until the permit is dropped.
    ///
    /// # Errors
    /// None: the semaphore is never closed.
    pub async fn sound(&self) -> Result<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.sounds).acquire_owned().await;
        permit.map_err(|_| ApiError::internal("the semaphore of sounds is closed"))
    }

    /// Ends every generation.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Lets the server end, as a signal does.
    pub fn end(&self) {
        self.end.notify_one();
    }

    /// Waits until a request ends the server.
    pub async fn ended(&self) {
        self.end.notified().await;
    }

    /// Tells when every generation must end.
    pub fn cuts(&self) -> watch::Receiver<bool> {
        self.cut.subscribe()
    }

    /// Returns true when a text of so many bytes takes long to read or to tokenize.
    pub fn is_long(bytes: usize) -> bool {
        bytes >= LONG
    }

    /// Runs `work` that reads a text of so many bytes: here where that is short, else away from the
    /// threads that serve.
    ///
    /// # Errors
    /// The work's own; 500 where it panics.
    pub async fn read_text<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if State::is_long(bytes) { self.text_work(bytes, work).await } else { work() }
    }

    /// Runs `work` on a text of so many bytes, which may take a core for a while, away from the
    /// threads that serve.
    ///
    /// # Errors
    /// The work's own; 500 where it panics.
    pub async fn text_work<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let long = match State::is_long(bytes) {
            true => Some(Arc::clone(&self.long_work).acquire_owned().await),
            false => None,
        };
        let permit = Arc::clone(&self.text_work).acquire_owned().await;
        // With the work, so that it counts until it is done, even where the client has left.
        let work = move || {
            let _permits = (long, permit);
            work()
        };
        blocking(work).await
    }

    /// An id such as `chatcmpl-…`, which no other answer of this server has.
    pub fn id(&self, prefix: &str) -> String {
        let count = self.ids.fetch_add(1, Ordering::Relaxed);
        // The finaliser of SplitMix64: neighbouring counts look unlike.
        let mut mixed = self.salt.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        format!("{prefix}{:016x}{count:08x}", mixed ^ (mixed >> 31))
    }
}

/// Runs `work` on a thread that may wait.
///
/// # Errors
/// The work's own; 500 where it panics.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(ApiError::panicked()),
    }
}

/// The result of `work`; an error where the server ends first.
///
/// # Errors
/// Those of `work`.
pub async fn cut_off<T>(state: &State, work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut cuts = state.cuts();
    tokio::select! {
        made = work => made,
        _ = cuts.wait_for(|is_cut| *is_cut) => {
            Err(ApiError::from(inference_core::Error::Cancelled))
        }
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    since_1970().as_secs()
}

/// The time since the beginning of 1970.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
