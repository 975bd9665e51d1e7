//! The accept loop, loading in the background, and the end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use inference_core::TextModel;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::config::{Config, ConfigError};
use crate::guard::Peer;
use crate::routes::router;
use crate::state::{Loaded, State};
use crate::timed_io::TimedIo;

/// Of the time for draining, the part that generations get; the rest is for their last words.
const GENERATING: f64 = 0.9;

/// After an error of `accept`, such as too many open files, it is tried again so much later.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Why a server did not start or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It was told something dangerous or meaningless.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It cannot listen.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
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
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every request was answered.
    Drained,
    /// The time for it was over before.
    Late,
}

/// A server that listens, and does not answer yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    config: Config,
}

impl Server {
    /// Checks `config` and listens. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`ServeError::Config`] and [`ServeError::Listen`].
    pub async fn bind(config: Config) -> Result<Server, ServeError> {
        config.validate()?;
        let failed = |reason| ServeError::Listen { address: config.listen, reason };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Server { listener, address, config })
    }

    /// Where it listens, with the port that it got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests with the model that `load` gives, which runs in the background: until it is
    /// done, requests get 503. When `shutdown` is ready, nothing new is taken, what runs has
    /// [`Timeouts::drain`](crate::Timeouts::drain) to end, and the model is closed.
    ///
    /// # Errors
    /// [`ServeError::Load`] and [`ServeError::LoadPanicked`].
    pub async fn run(
        self,
        load: impl FnOnce() -> inference_core::Result<Box<dyn TextModel>> + Send + 'static,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Ended, ServeError> {
        let Server { listener, config, .. } = self;
        let drain = config.timeouts.drain;
        let state = State::new(config);
        let connections = Connections::new(&state);
        let mut loading = tokio::task::spawn_blocking(|| load().map(Loaded::new));
        tokio::pin!(shutdown);
        let mut loaded = None;
        {
            let accepting = connections.accept(&listener);
            tokio::pin!(accepting);
            loop {
                tokio::select! {
                    () = &mut accepting => {}
                    () = &mut shutdown => break,
                    done = &mut loading, if loaded.is_none() => {
                        let model = done.map_err(|_| ServeError::LoadPanicked)??;
                        loaded = Some(Arc::clone(&model.model));
                        state.ready(model);
                    }
                }
            }
        }
        drop(listener);
        state.drain();
        let ended = connections.drain(&state, drain).await;
        if let (Some(model), Ended::Drained) = (loaded, ended) {
            model.close();
        }
        Ok(ended)
    }
}

/// Counts a connection for as long as it is open, also where what it serves panics.
struct Open(Gauge);

impl Open {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Open(gauge.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

struct Connections {
    state: Arc<State>,
    router: Router,
    http: http1::Builder,
    free: Arc<Semaphore>,
    graceful: GracefulShutdown,
}

impl Connections {
    fn new(state: &Arc<State>) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(state.config.timeouts.header)
            .max_headers(state.config.limits.headers);
        Connections {
            router: router(state),
            http,
            free: Arc::new(Semaphore::new(state.config.limits.connections)),
            graceful: GracefulShutdown::new(),
            state: Arc::clone(state),
        }
    }

    /// Takes connections for ever; more than may be open wait in the system's queue.
    async fn accept(&self, listener: &TcpListener) {
        loop {
            let Ok(permit) = Arc::clone(&self.free).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, peer)) => self.serve(stream, peer, permit),
                Err(error) => {
                    tracing::warn!(target: "server", %error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, permit: impl Send + 'static) {
        // Tokens are small, and each shall leave at once.
        let _ = stream.set_nodelay(true);
        let router = self.router.clone().layer(Extension(Peer(peer)));
        let service = TowerToHyperService::new(router);
        let io = TokioIo::new(TimedIo::new(stream, self.state.config.timeouts.write));
        let connection = self.graceful.watch(self.http.serve_connection(io, service));
        let open = Open::new(&self.state.metrics.connections);
        tokio::spawn(async move {
            // That a client leaves or is too slow is no event.
            let _ = connection.await;
            drop((open, permit));
        });
    }

    /// Waits for what is under way, and cuts it short before `limit` is over.
    async fn drain(self, state: &State, limit: Duration) -> Ended {
        let ending = self.graceful.shutdown();
        tokio::pin!(ending);
        let generating = limit.mul_f64(GENERATING);
        if tokio::time::timeout(generating, &mut ending).await.is_ok() {
            return Ended::Drained;
        }
        state.cut();
        match tokio::time::timeout(limit - generating, ending).await {
            Ok(()) => Ended::Drained,
            Err(_) => Ended::Late,
        }
    }
}
