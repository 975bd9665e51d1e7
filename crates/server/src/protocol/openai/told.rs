//! Events of work on a thread that may wait, on their way to a client.

use axum::response::Response;
use futures_util::stream;
use inference_core::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::head::{IDLE, failure};
use crate::error::{ApiError, Result};
use crate::protocol::own::inspect::CancelOnDrop;
use crate::protocol::respond::events;
use crate::protocol::wire::Frame;
use crate::run::state::State;
use crate::run::tally::Tally;

/// The events that `work` sends. A failure within the time in which a silent stream is kept alive
/// is a response of its own; later it is an event. Dropping the response fires `guard`.
///
/// # Errors
/// That failure.
pub async fn streamed(
    state: &State,
    work: impl FnOnce(&mpsc::Sender<Result<Frame>>) + Send + 'static,
    guard: CancelOnDrop,
) -> Result<Response> {
    let keep_alive = state.config.timeouts.keep_alive;
    let (sender, told) = mpsc::channel(1);
    let worker = Some(tokio::task::spawn_blocking(move || work(&sender)));
    let mut stream = Told { told, worker, cuts: state.cuts(), _guard: guard };
    let first = match tokio::time::timeout(keep_alive, stream.next()).await {
        Ok(Some(Err(error))) => return Err(error),
        Ok(first) => first,
        Err(_) => None,
    };
    let tally = Tally::current();
    let frames = stream::unfold((first, stream), move |(first, mut stream)| {
        let tally = tally.clone();
        async move {
            let next = match first {
                Some(first) => first,
                None => stream.next().await?,
            };
            let frame = next.unwrap_or_else(|error| {
                tally.failed(&error);
                failure(&error)
            });
            Some((frame, (None, stream)))
        }
    });
    Ok(events(frames, IDLE, keep_alive))
}

/// Events on their way to a client.
struct Told {
    told: mpsc::Receiver<Result<Frame>>,
    /// `None` after the last event.
    worker: Option<JoinHandle<()>>,
    cuts: watch::Receiver<bool>,
    _guard: CancelOnDrop,
}

impl Told {
    async fn next(&mut self) -> Option<Result<Frame>> {
        self.worker.as_ref()?;
        let next = tokio::select! {
            next = self.told.recv() => next,
            _ = self.cuts.wait_for(|is_cut| *is_cut) => Some(Err(Error::Cancelled.into())),
        };
        match next {
            Some(Ok(frame)) => Some(Ok(frame)),
            Some(Err(error)) => {
                self.worker = None;
                Some(Err(error))
            }
            // All was told, or the work panicked.
            None => self.worker.take()?.await.err().map(|_| Err(ApiError::panicked())),
        }
    }
}
