//! A server: it listens, loads its models in the background, answers, and drains.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use inference_core::{LoadProgress, TextModel, WeightsRead};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use crate::batches::store::Store;
use crate::config::{
    Batches, Config, ConfigError, EmbeddingService, ImageService, SpeechService,
    TranscriptionService,
};
use crate::http::connection::{Connections, Ended};
use crate::pool::models::{Entry, LoadFailure, Loader, Makes, Model, Models};
use crate::protocol::batches::worker::Worker;
use crate::routes::{Routers, routers};
use crate::run::state::State;
use crate::traces::queue::Queue;
use crate::traces::sender::Sender;
use crate::traces::settings::Traces;
use crate::watchdog::watch;

/// For models to be closed once everything is answered, however little of the time for draining is
/// left.
const CLOSES: Duration = Duration::from_secs(1);

/// Connections that the system holds until they are taken. Where more come at once, a client tries
/// again only after a second. The system may allow fewer.
const BACKLOG: u32 = 4096;

/// Why a server did not start or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It was told something dangerous or meaningless.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It cannot listen.
    #[error("cannot listen on {address}: {reason}{}", remedy(reason))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        reason: io::Error,
    },
    /// The folder of files and batches cannot be used.
    #[error("{}: {reason}", folder.display())]
    Batches {
        /// The folder.
        folder: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// It has no runtime.
    #[error("cannot start the server's threads: {0}")]
    Runtime(io::Error),
    /// The model cannot be loaded.
    #[error(transparent)]
    Load(#[from] inference_core::Error),
    /// The code that loads the model panicked.
    #[error("loading the model failed")]
    LoadPanicked,
    /// Of several models, one cannot be loaded that is loaded at the start.
    #[error("the model `{model}` cannot be loaded: {why}")]
    LoadOf {
        /// Its name.
        model: Arc<str>,
        /// Why.
        why: LoadFailure,
    },
}

/// Names the remedy where the system refuses an address.
fn remedy(reason: &io::Error) -> &'static str {
    match reason.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program has the port: choose another one (`--port`; 0 takes a free one)"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need rights: choose another one (`--port`)"
        }
        io::ErrorKind::AddrNotAvailable => "; choose an address of this machine (`--host`)",
        _ => "",
    }
}

impl ServeError {
    /// This error where there is one model, which needs no name.
    pub(crate) fn of_one(self) -> ServeError {
        match self {
            ServeError::LoadOf { why: LoadFailure::Error(error), .. } => ServeError::Load(error),
            ServeError::LoadOf { why: LoadFailure::Panicked, .. } => ServeError::LoadPanicked,
            other => other,
        }
    }
}

/// Listens as `TcpListener::bind` does, which lets no more than 128 connections wait.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A listener of this runtime on a socket that was handed over.
fn handed_over(socket: &StdListener) -> io::Result<TcpListener> {
    let own = socket.try_clone()?;
    own.set_nonblocking(true)?;
    TcpListener::from_std(own)
}

/// A server that listens, and does not answer yet.
pub struct Server {
    listeners: Vec<TcpListener>,
    address: SocketAddr,
    config: Config,
    batches: Option<Arc<Store>>,
}

impl Server {
    /// Checks `config` and listens. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`ServeError::Config`], [`ServeError::Batches`] and [`ServeError::Listen`].
    pub async fn bind(config: Config) -> Result<Server, ServeError> {
        config.validate()?;
        let open = |settings: Batches| {
            let folder = settings.folder.clone();
            Store::open(settings).map_err(|reason| ServeError::Batches { folder, reason })
        };
        let batches = config.batches.clone().map(open).transpose()?;
        let failed = |reason| ServeError::Listen { address: config.listen, reason };
        let listeners = match config.sockets.as_slice() {
            [] => vec![listen(config.listen).map_err(failed)?],
            given => {
                let own = given.iter().map(|socket| handed_over(socket));
                own.collect::<io::Result<_>>().map_err(failed)?
            }
        };
        let address = listeners[0].local_addr().map_err(failed)?;
        Ok(Server { listeners, address, config, batches })
    }

    /// The address on which it listens, with the port that it got; of several, the first.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests with the model that `load` gives, which runs in the background: until it is
    /// done, requests get 503. When `shutdown` is ready, nothing new is taken, what runs has
    /// [`Timeouts::drain`](crate::Timeouts::drain) to end, and the model is closed; one that does
    /// not close in that time is left.
    ///
    /// # Errors
    /// [`ServeError::Load`] and [`ServeError::LoadPanicked`].
    pub async fn run(
        self,
        load: impl FnOnce() -> inference_core::Result<Box<dyn TextModel>> + Send + 'static,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Ended, ServeError> {
        let models = one(&self.config, load);
        self.run_models(models, shutdown).await.map_err(ServeError::of_one)
    }

    /// Answers requests with `models`, each loaded when a request names it. [`Config::model`],
    /// [`Config::aliases`] and [`Config::images`] say nothing here. `shutdown` is as in
    /// [`run`](Self::run); a load that is under way then is not waited for.
    ///
    /// # Errors
    /// [`ServeError::Config`] for models of one name, [`ServeError::LoadOf`] for a model that is
    /// loaded at the start and cannot be.
    pub async fn run_models(
        self,
        models: Models,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Ended, ServeError> {
        check_names(&models.entries)?;
        let Server { listeners, config, batches, .. } = self;
        let traces = config.traces.clone();
        let state = State::new(config, models, batches);
        let sending = Sending::begin(&state, traces);
        let Routers { guarded, open } = routers(&state);
        let connections = Connections::new(&state, guarded);
        let mut workers = JoinSet::new();
        if let Some(store) = state.batches.clone() {
            let worker = Worker { state: Arc::clone(&state), store, answers: open };
            workers.spawn(worker.run());
        }
        let (config, pool) = (&state.config, &state.pool);
        let watching = async {
            match &config.notifier {
                Some(notifier) => watch(notifier, pool, config.timeouts.stall).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(watching);
        tokio::select! {
            () = &mut watching => {}
            told = go_on(&state, &connections, &listeners, shutdown) => told?,
        }
        if let Some(notifier) = &config.notifier {
            notifier.stopping();
        }
        drop(listeners);
        let store = state.batches.clone();
        store.iter().for_each(|store| store.end());
        pool.drain();
        let drain = config.timeouts.drain;
        let (running, _) = pool.held();
        if running > 0 {
            let seconds = drain.as_secs();
            tracing::info!(
                target: "server",
                running,
                seconds,
                "ending: what runs has so long; a second signal ends it at once"
            );
        }
        let begun = Instant::now();
        let draining = connections.drain(drain);
        let ended = tokio::select! {
            // A manager whose watchdog is shorter hears on.
            () = &mut watching => Ended::Late,
            ended = draining => ended,
        };
        if let Some(store) = store {
            // A disk that hangs is left.
            let _ = tokio::time::timeout(CLOSES, workers.join_next()).await;
            store.unlock();
        }
        sending.end().await;
        if ended == Ended::Drained {
            let left = drain.saturating_sub(begun.elapsed()).max(CLOSES);
            let pool = Arc::clone(pool);
            let closing = tokio::task::spawn_blocking(move || pool.close());
            // That a model panics as it is closed does not matter any more. One that hangs is left.
            let _ = tokio::time::timeout(left, closing).await;
        }
        Ok(ended)
    }
}

/// Takes connections on `listeners` and loads models, until a request or `shutdown` ends that.
///
/// # Errors
/// A model that is loaded at the start cannot be.
async fn go_on(
    state: &Arc<State>,
    connections: &Connections,
    listeners: &[TcpListener],
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (config, pool) = (&state.config, &state.pool);
    let accepting = join_all(listeners.iter().map(|listener| connections.accept(listener)));
    let ending = state.ended();
    let (starting, unloading) = (pool.start(), Arc::clone(pool).unload_idle());
    let renewing = async {
        match config.tls.clone() {
            Some(tls) => tls.renew().await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(renewing, shutdown, ending, accepting, starting, unloading);
    let mut has_started = false;
    loop {
        tokio::select! {
            _ = &mut accepting => {}
            () = &mut unloading => {}
            () = &mut renewing => {}
            () = &mut shutdown => return Ok(()),
            () = &mut ending => return Ok(()),
            done = &mut starting, if !has_started => {
                let failed = |(model, why)| ServeError::LoadOf { model, why };
                done.map_err(failed)?;
                has_started = true;
                if let Some(notifier) = &config.notifier {
                    notifier.ready();
                }
            }
        }
    }
}

/// The sender of spans, where any are sent. It ends with this.
struct Sending {
    queue: Option<Arc<Queue>>,
    task: JoinSet<()>,
}

impl Sending {
    fn begin(state: &State, traces: Option<Traces>) -> Sending {
        let (queue, mut task) = (state.traces.clone(), JoinSet::new());
        if let Some((queue, settings)) = queue.clone().zip(traces) {
            task.spawn(Sender::new(queue, settings).run());
        }
        Sending { queue, task }
    }

    /// Sends what still waits. A collector that takes long is left.
    async fn end(mut self) {
        let Some(queue) = &self.queue else { return };
        queue.end();
        if tokio::time::timeout(CLOSES, self.task.join_next()).await.is_err() {
            self.task.shutdown().await;
            let lost = queue.give_up();
            tracing::warn!(target: "traces", lost, "spans are lost: the collector takes too long");
        }
    }
}

/// The models of a server that has one for text: it is loaded at once, it stays, and nobody waits
/// for it.
pub fn one(
    config: &Config,
    load: impl FnOnce() -> inference_core::Result<Box<dyn TextModel>> + Send + 'static,
) -> Models {
    let stays = |entry| Entry { at_start: true, pinned: true, ..entry };
    let aliases = config.aliases.clone();
    let mut entries = vec![stays(Entry { aliases, ..Entry::text(&config.model) })];
    if let Some(ImageService { name, .. }) = &config.images {
        entries.push(stays(Entry { makes: Makes::Pictures, ..Entry::text(name) }));
    }
    let images: Vec<_> = config.images.iter().map(|service| Arc::clone(&service.model)).collect();
    for EmbeddingService { name, model } in &config.embeddings {
        let makes = Makes::of(model.info());
        // Any other name that the model for text has stands for the first one of its kind.
        let is_first = entries.iter().all(|entry| entry.makes != makes);
        let aliases = if is_first { config.aliases.clone() } else { Vec::new() };
        entries.push(stays(Entry { makes, aliases, ..Entry::text(name) }));
    }
    let transcripts = config
        .transcriptions
        .iter()
        .map(|TranscriptionService { name, .. }| (name, Makes::Transcripts));
    let speech = config.speech.iter().map(|SpeechService { name, .. }| (name, Makes::Speech));
    for (name, makes) in transcripts.chain(speech) {
        let is_first = entries.iter().all(|entry| entry.makes != makes);
        let aliases = if is_first { config.aliases.clone() } else { Vec::new() };
        entries.push(stays(Entry { makes, aliases, ..Entry::text(name) }));
    }
    let images = images.into_iter().map(Model::Image);
    let embeddings = config.embeddings.iter();
    let embeddings = embeddings.map(|service| Model::Embedding(Arc::clone(&service.model)));
    let transcriptions = config.transcriptions.iter();
    let transcriptions =
        transcriptions.map(|service| Model::Transcription(Arc::clone(&service.model)));
    let speech = config.speech.iter().map(|service| Model::Speech(Arc::clone(&service.model)));
    let loader = One {
        load: Mutex::new(Some(Box::new(load))),
        progress: config.load_progress.clone(),
        others: images
            .chain(embeddings)
            .chain(transcriptions)
            .chain(speech)
            .map(|model| Mutex::new(Some(model)))
            .collect(),
    };
    Models {
        entries,
        loader: Box::new(loader),
        memory: u64::MAX,
        idle: None,
        waiting: 0,
        wait: Duration::ZERO,
    }
}

type Load = Box<dyn FnOnce() -> inference_core::Result<Box<dyn TextModel>> + Send>;

/// The models of a server with one for text, in the order of their entries.
struct One {
    load: Mutex<Option<Load>>,
    progress: Option<LoadProgress>,
    /// Those that are loaded already.
    others: Vec<Mutex<Option<Model>>>,
}

impl Loader for One {
    fn needs(&self, _: usize) -> inference_core::Result<u64> {
        // There is nothing that it could be weighed against.
        Ok(0)
    }

    fn load(&self, index: usize) -> inference_core::Result<Model> {
        // Each is taken once: it stays.
        if let Some(other) = index.checked_sub(1).and_then(|index| self.others.get(index)) {
            let other = other.lock().unwrap_or_else(PoisonError::into_inner).take();
            return other.ok_or(inference_core::Error::Closed);
        }
        let load = self.load.lock().unwrap_or_else(PoisonError::into_inner).take();
        let load = load.ok_or(inference_core::Error::Closed)?;
        load().map(Model::Text)
    }

    fn progress(&self, index: usize) -> Option<WeightsRead> {
        self.progress.as_ref().filter(|_| index == 0)?.weights()
    }
}

/// Checks that each name or alias means one model of its kind.
fn check_names(entries: &[Entry]) -> Result<(), ConfigError> {
    if entries.is_empty() {
        return Err(ConfigError::NoModels);
    }
    for (at, entry) in entries.iter().enumerate() {
        let mut names = entry.aliases.iter().chain([&entry.name]);
        let others = || entries[..at].iter().filter(|other| other.makes == entry.makes);
        let is_taken = |name: &&String| {
            others().any(|other| other.name == **name || other.aliases.contains(name))
        };
        if let Some(name) = names.find(is_taken) {
            return Err(ConfigError::NamedTwice(name.clone()));
        }
    }
    Ok(())
}
