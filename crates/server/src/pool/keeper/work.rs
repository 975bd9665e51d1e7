//! Carries out the effects that the table asks for.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::{Answer, Pool, Refused, Table};
use crate::pool::lease::{Hold, Lease};
use crate::pool::loaded::Any;
use crate::pool::models::LoadFailure;
use crate::pool::slots::Effect;

/// Work that is done without the table's lock.
enum Todo {
    Measure(usize),
    Load(usize),
    Unload(usize, Any),
    Tell(oneshot::Sender<Answer>, Answer),
}

impl Pool {
    /// Changes the table, and does what follows from it.
    pub(super) fn with<T>(self: &Arc<Self>, change: impl FnOnce(&mut Table, Instant) -> T) -> T {
        let (result, todo) = {
            let mut table = self.lock();
            let result = change(&mut table, Instant::now());
            (result, self.todo(&mut table))
        };
        todo.into_iter().for_each(|todo| self.follow(todo));
        self.changed.notify_one();
        result
    }

    fn todo(self: &Arc<Self>, table: &mut Table) -> Vec<Todo> {
        let mut todo = Vec::new();
        for effect in table.slots.effects() {
            match effect {
                Effect::Measure(index) => todo.push(Todo::Measure(index)),
                Effect::Load(index) => todo.push(Todo::Load(index)),
                Effect::Unload(index, model) => todo.push(Todo::Unload(index, model)),
                Effect::Grant(ticket, index, model) => {
                    // Those of earlier requests.
                    self.log_notices(index, &model);
                    let lease = Lease::new(model, self.hold(index));
                    match table.waiters.remove(&ticket) {
                        Some(waiter) => todo.push(Todo::Tell(waiter.answer, Ok(lease))),
                        // Nobody is there for it. It is dropped without the lock.
                        None => todo.push(Todo::Tell(oneshot::channel().0, Ok(lease))),
                    }
                }
                Effect::Refuse(ticket, failed) => {
                    if let Some(waiter) = table.waiters.remove(&ticket) {
                        todo.push(Todo::Tell(waiter.answer, Err(Refused::Failed(failed))));
                    }
                }
            }
        }
        todo
    }

    fn hold(self: &Arc<Self>, index: usize) -> Hold {
        let model = Arc::clone(self.catalogue().known(index));
        let pool = Arc::clone(self);
        Hold::new(Arc::clone(&model.name), Arc::clone(&model.admission), move || {
            pool.with(|table, now| table.slots.released(index, now));
        })
    }

    fn follow(self: &Arc<Self>, todo: Todo) {
        match todo {
            // One that has left: what it was to have is dropped, which ends its use.
            Todo::Tell(waiter, answer) => drop(waiter.send(answer)),
            Todo::Measure(index) => {
                self.aside(
                    move |pool| pool.measure(index),
                    move |pool| {
                        pool.unmeasured(index, LoadFailure::Panicked);
                    },
                );
            }
            Todo::Load(index) => {
                self.aside(
                    move |pool| pool.load(index),
                    move |pool| {
                        pool.failed(index, LoadFailure::Panicked);
                    },
                );
            }
            Todo::Unload(index, model) => {
                self.aside(
                    move |pool| pool.unload(index, model),
                    move |pool| {
                        pool.failed(index, LoadFailure::Panicked);
                    },
                );
            }
        }
    }

    /// Does `work` on a thread that may wait; `otherwise` where it panics.
    fn aside(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Pool>) + Send + 'static,
        otherwise: impl FnOnce(&Arc<Pool>) + Send + 'static,
    ) {
        let (pool, owner) = (Arc::clone(self), Arc::clone(self));
        let done = self.runtime.spawn_blocking(move || work(&pool));
        self.runtime.spawn(async move {
            if done.await.is_err_and(|error| error.is_panic()) {
                otherwise(&owner);
            }
        });
    }

    fn unload(self: &Arc<Self>, index: usize, model: Any) {
        model.close();
        self.log_notices(index, &model);
        drop(model);
        self.loader.dropped();
        tracing::info!(target: "models", model = &*self.catalogue().known(index).name, "unloaded");
        self.with(|table, now| table.slots.unloaded(index, now));
    }

    fn measure(self: &Arc<Self>, index: usize) {
        match self.loader.needs(index) {
            Ok(bytes) => self.with(|table, now| table.slots.measured(index, bytes, now)),
            Err(error) => self.unmeasured(index, LoadFailure::Error(error)),
        }
    }

    fn unmeasured(self: &Arc<Self>, index: usize, why: LoadFailure) {
        self.log_failure(index, &why);
        self.with(|table, now| table.slots.unmeasured(index, why, now));
    }

    fn load(self: &Arc<Self>, index: usize) {
        let begun = Instant::now();
        let model = match self.loader.load(index) {
            Ok(model) => Any::new(model, self.tools),
            Err(error) => return self.failed(index, LoadFailure::Error(error)),
        };
        let (known, bytes) = (Arc::clone(self.catalogue().known(index)), model.weight_bytes());
        let milliseconds = begun.elapsed().as_millis() as u64;
        tracing::info!(target: "models", model = &*known.name, bytes, milliseconds, "loaded");
        self.log_notices(index, &model);
        self.with(|table, now| table.slots.loaded(index, model, bytes, now));
    }

    fn failed(self: &Arc<Self>, index: usize, why: LoadFailure) {
        self.log_failure(index, &why);
        self.with(|table, now| table.slots.failed(index, why, now));
    }

    fn log_notices(&self, index: usize, model: &Any) {
        for notice in model.notices() {
            tracing::warn!(target: "models", model = &*self.catalogue().known(index).name, "{notice}");
        }
    }

    fn log_failure(&self, index: usize, why: &LoadFailure) {
        tracing::warn!(target: "models", model = &*self.catalogue().known(index).name, %why, "cannot be loaded");
    }
}
