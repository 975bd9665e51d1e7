//! Models that come and go while the server runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Pool;
use crate::error::Result;
use crate::pool::admission::Admission;
use crate::pool::known::Known;
use crate::pool::models::{Change, Entry, Makes};
use crate::pool::report::Report;

/// Between the end of one look for changes and the beginning of the next.
const BETWEEN: Duration = Duration::from_secs(1);

impl Pool {
    /// The number of the model that makes `makes` and is meant by `asked`. An unknown name may be
    /// that of a model that has just come.
    ///
    /// # Errors
    /// As [`Names::find`](crate::pool::names::Names::find).
    pub async fn find(self: &Arc<Self>, asked: Option<&str>, makes: Makes) -> Result<usize> {
        if let Ok(index) = self.catalogue().names().find(asked, makes) {
            return Ok(index);
        }
        self.refresh().await;
        self.catalogue().names().find(asked, makes)
    }

    /// The report of the model called `name`, of whatever kind.
    ///
    /// # Errors
    /// 404 for a name that no model has.
    pub async fn get(self: &Arc<Self>, name: &str) -> Result<Report> {
        if self.catalogue().names().get(name).is_none() {
            self.refresh().await;
        }
        let catalogue = self.catalogue();
        let names = catalogue.names();
        let index = names.get(name).ok_or_else(|| names.not_found(name, None))?;
        let table = self.lock();
        Ok(self.report(index, catalogue.known(index), &table.slots, Instant::now()))
    }

    /// Loads the model called `name`, of whatever kind. Returns its number.
    ///
    /// # Errors
    /// 404 for a name that no model has; it cannot be loaded.
    pub async fn load_named(self: &Arc<Self>, name: &str) -> Result<usize> {
        let makes = self.get(name).await?.known.makes;
        let index = self.find(Some(name), makes).await?;
        self.lease(Some(name), makes).await?;
        Ok(index)
    }

    /// Looks for models that have come and gone, unless that was done a moment ago.
    pub async fn refresh(self: &Arc<Self>) {
        let mut looked = Arc::clone(&self.looked).lock_owned().await;
        if looked.is_some_and(|at| at.elapsed() < BETWEEN) {
            return;
        }
        let pool = Arc::clone(self);
        // One who leaves meanwhile does not stop it half-way: the lock goes along.
        let done = self.runtime.spawn_blocking(move || {
            // Known first, so that a look that panics is not repeated at once.
            *looked = Some(Instant::now());
            pool.take(pool.loader.changes());
            *looked = Some(Instant::now());
        });
        if done.await.is_err() {
            tracing::error!(target: "models", "looking for models that came and went failed");
        }
    }

    fn take(self: &Arc<Self>, Change { added, removed }: Change) {
        if added.is_empty() && removed.is_empty() {
            return;
        }
        self.with(|table, now| {
            let mut catalogue = (*self.catalogue()).clone();
            for index in removed {
                tracing::info!(target: "models", model = &*catalogue.known(index).name, "removed");
                catalogue.remove(index);
                table.slots.remove(index, now);
            }
            for entry in added {
                tracing::info!(target: "models", model = &*entry.name, "added");
                table.slots.add(entry.pinned);
                catalogue.add(entry, |entry| self.known_of(entry));
            }
            self.put(catalogue);
        });
    }

    pub(super) fn known_of(&self, entry: Entry) -> Known {
        Known::new(entry, Admission::new(self.room.0, self.room.1))
    }
}
