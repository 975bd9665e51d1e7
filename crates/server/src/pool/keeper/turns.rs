//! Who waits for a model, and for how long.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Answer, Pool, Refused, Table, Waiter};
use crate::error::{ApiError, Result};
use crate::pool::lease::Lease;
use crate::pool::loaded::Any;
use crate::pool::models::Makes;
use crate::pool::slot::Ticket;

/// A place among those that wait; given back when it is dropped.
pub(super) struct Waiting {
    pool: Arc<Pool>,
    pub(super) index: usize,
    ticket: Ticket,
    pub(super) answer: oneshot::Receiver<Answer>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.pool.with(|table, now| {
            if table.waiters.remove(&self.ticket).is_some() {
                table.slots.leave(self.ticket, now);
            }
        });
    }
}

impl Pool {
    pub(super) async fn lease(
        self: &Arc<Self>,
        asked: Option<&str>,
        makes: Makes,
    ) -> Result<Lease<Any>> {
        let index = self.find(asked, makes).await?;
        let mut waiting = self.queue(index)?;
        let known = Arc::clone(self.catalogue().known(index));
        let name = &known.name;
        match self.within(&mut waiting.answer).await? {
            None => Err(ApiError::loads_too_long(name, self.wait.as_secs_f64())),
            Some(Ok(lease)) => Ok(lease),
            Some(Err(Refused::Draining)) => Err(ApiError::draining()),
            Some(Err(Refused::Failed(failed))) => {
                // Its files may be gone, and a name that nobody has is told as such.
                self.refresh().await;
                self.catalogue().names().find(asked, makes)?;
                let again = failed.again.saturating_duration_since(Instant::now());
                let again = again.as_secs_f64().ceil().max(1.0) as u64;
                Err(ApiError::load_failed(name, &failed.why.to_string(), again))
            }
        }
    }

    /// The answer, where it comes in time.
    async fn within(
        &self,
        answer: impl Future<Output = std::result::Result<Answer, oneshot::error::RecvError>>,
    ) -> Result<Option<Answer>> {
        // What is there already needs no time.
        let wait = self.wait.max(Duration::from_secs(1));
        match tokio::time::timeout(wait, answer).await {
            Err(_) => Ok(None),
            Ok(Err(_)) => Err(ApiError::draining()),
            Ok(Ok(answer)) => Ok(Some(answer)),
        }
    }

    /// Waits for this model, as long as what it returns lives.
    ///
    /// # Errors
    /// 429 where too many wait, 503 where none may and while the server ends.
    fn queue(self: &Arc<Self>, index: usize) -> Result<Waiting> {
        self.check_open()?;
        self.stand(index, true, |pool, table, now| {
            if table.is_draining {
                return Err(ApiError::draining());
            }
            if !table.slots.would_wait(index, now) {
                return Ok(());
            }
            if pool.wait.is_zero() {
                return Err(ApiError::loading());
            }
            let waiting = table.waiters.values().filter(|waiter| waiter.counts).count();
            if waiting < pool.waiting { Ok(()) } else { Err(ApiError::loads_full(waiting)) }
        })
    }

    /// Waits for this model where `may` allows it; whether that takes one of the places.
    pub(super) fn stand<E>(
        self: &Arc<Self>,
        index: usize,
        counts: bool,
        may: impl FnOnce(&Pool, &Table, Instant) -> std::result::Result<(), E>,
    ) -> std::result::Result<Waiting, E> {
        let (sender, answer) = oneshot::channel();
        let ticket = self.with(|table, now| {
            may(self, table, now)?;
            let ticket = table.slots.ask(index, now);
            table.waiters.insert(ticket, Waiter { answer: sender, counts });
            Ok(ticket)
        })?;
        Ok(Waiting { pool: Arc::clone(self), index, ticket, answer })
    }
}
