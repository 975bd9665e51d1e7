//! The accept loop, and the end of what it took.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::access_log::Peer;
use super::handshake::Handshake;
use super::timed_io::{Ending, TimedIo};
use crate::run::state::State;

/// Of the time for draining, the part that generations get; the rest is for their last words.
const GENERATING: f64 = 0.9;

/// After an error of `accept`, such as too many open files, it is tried again so much later.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every request was answered.
    Drained,
    /// The time for it was over before.
    Late,
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

/// The connections of a server.
pub struct Connections {
    state: Arc<State>,
    router: Router,
    http: http1::Builder,
    free: Arc<Semaphore>,
    graceful: GracefulShutdown,
    /// The handshakes of connections under TLS; none: they are plain.
    tls: Option<TlsAcceptor>,
    /// Becomes `true` when the server ends: handshakes are not waited for.
    ends: watch::Sender<bool>,
}

impl Connections {
    /// Connections whose requests `router` answers.
    pub fn new(state: &Arc<State>, router: Router) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(state.config.timeouts.header)
            .max_headers(state.config.limits.headers);
        Connections {
            router,
            http,
            free: Arc::new(Semaphore::new(state.config.limits.connections)),
            graceful: GracefulShutdown::new(),
            tls: state.config.tls.as_ref().map(|tls| TlsAcceptor::from(tls.config())),
            ends: watch::Sender::new(false),
            state: Arc::clone(state),
        }
    }

    /// Takes connections for ever. Of more than may be open, one waits here, and the others in the
    /// system's queue. No listener holds a place while nobody asks it for one.
    pub async fn accept(&self, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let Ok(permit) = Arc::clone(&self.free).acquire_owned().await else { return };
                    self.serve(stream, peer, permit);
                }
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
        let ending = Ending::default();
        let router = self.router.clone().layer(Extension(Peer(peer)));
        let router = router.layer(Extension(ending.clone()));
        let answering = Answering {
            http: self.http.clone(),
            service: TowerToHyperService::new(router),
            watcher: self.graceful.watcher(),
        };
        let limits = &self.state.config.timeouts;
        let (limit, cuts) = (limits.write, self.state.cuts());
        let open = Open::new(&self.state.metrics.connections);
        let Some(acceptor) = self.tls.clone() else {
            tokio::spawn(async move {
                answering.run(TimedIo::new(stream, limit, ending, cuts)).await;
                drop((open, permit));
            });
            return;
        };
        let handshake = Handshake { acceptor, limit: limits.header, ending: ending.clone() };
        let mut ends = self.ends.subscribe();
        tokio::spawn(async move {
            let timed = |stream| TimedIo::new(stream, limit, ending, cuts);
            let ends = async { drop(ends.wait_for(|ends| *ends).await) };
            if let Some(stream) = handshake.done(stream, timed, ends).await {
                answering.run(stream).await;
            }
            drop((open, permit));
        });
    }

    /// Waits for what is under way, and cuts it short before `limit` is over.
    pub async fn drain(self, limit: Duration) -> Ended {
        self.ends.send_replace(true);
        let ending = self.graceful.shutdown();
        tokio::pin!(ending);
        let generating = limit.mul_f64(GENERATING);
        if tokio::time::timeout(generating, &mut ending).await.is_ok() {
            return Ended::Drained;
        }
        self.state.cut();
        match tokio::time::timeout(limit - generating, ending).await {
            Ok(()) => Ended::Drained,
            Err(_) => Ended::Late,
        }
    }
}

/// The answering side of one connection.
struct Answering {
    http: http1::Builder,
    service: TowerToHyperService<Router>,
    watcher: Watcher,
}

impl Answering {
    async fn run(self, io: impl AsyncRead + AsyncWrite + Unpin + 'static) {
        let connection = self.http.serve_connection(TokioIo::new(io), self.service);
        // That a client leaves or is too slow is no event.
        let _ = self.watcher.watch(connection).await;
    }
}
