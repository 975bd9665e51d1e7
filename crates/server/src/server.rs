//! A server: it listens, loads its model in the background, answers, and drains.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use inference_core::TextModel;
use tokio::net::TcpListener;

use crate::config::{Config, ConfigError};
use crate::http::connection::{Connections, Ended};
use crate::routes::router;
use crate::run::state::{Loaded, State};

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
        let connections = Connections::new(&state, router(&state));
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
        let ended = connections.drain(drain).await;
        if let (Some(model), Ended::Drained) = (loaded, ended) {
            model.close();
        }
        Ok(ended)
    }
}
