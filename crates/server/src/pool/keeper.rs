//! Drives the table of models: loads and unloads on threads that may wait, and hands out leases.

mod changes;
mod turns;
mod work;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use inference_core::EngineStatus;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::catalogue::Catalogue;
use super::known::Known;
use super::lease::Lease;
use super::loaded::{Any, Loaded};
use super::models::{LoadFailure, Loader, Makes, Models};
use super::report::{Report, sum};
use super::slot::{Failed, Keep, Ticket};
use super::slots::Slots;
use crate::config::Tools;
use crate::error::{ApiError, Result};

/// Why one who waited for a model does not get it.
enum Refused {
    /// It cannot be loaded.
    Failed(Failed),
    /// The server ends.
    Draining,
}

type Answer = std::result::Result<Lease<Any>, Refused>;

/// One who waits.
struct Waiter {
    answer: oneshot::Sender<Answer>,
    /// The waiter counts against the limit of waiting requests.
    counts: bool,
}

struct Table {
    slots: Slots<Any>,
    waiters: HashMap<Ticket, Waiter>,
    is_draining: bool,
}

/// The phase of a pool's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The models that are loaded at the start are being loaded.
    Loading,
    /// Requests are answered.
    Ready,
    /// Requests in flight are brought to their end, and no new ones are taken.
    Draining,
}

/// The models of one server.
pub struct Pool {
    /// The models of this moment. Taken after the table's lock, where both are.
    catalogue: Mutex<Arc<Catalogue>>,
    /// When changes were last looked for.
    looked: Arc<tokio::sync::Mutex<Option<Instant>>>,
    /// Generations of a model that run together, and those that may wait.
    room: (usize, usize),
    /// Which models may be given tools.
    tools: Tools,
    loader: Box<dyn Loader>,
    /// How many may wait, and for how long.
    waiting: usize,
    wait: Duration,
    table: Mutex<Table>,
    is_ready: AtomicBool,
    changed: Notify,
    runtime: Handle,
}

impl Pool {
    /// The pool of `models`, each of which has `room` for so many generations together and for so
    /// many more that wait. Must be called within a tokio runtime.
    pub fn new(models: Models, room: (usize, usize), tools: Tools) -> Arc<Pool> {
        let pinned = models.entries.iter().map(|entry| entry.pinned);
        let slots_of = Slots::new(pinned, models.memory, models.idle);
        let pool = Arc::new(Pool {
            catalogue: Mutex::new(Arc::new(Catalogue::new())),
            looked: Arc::default(),
            room,
            tools,
            loader: models.loader,
            waiting: models.waiting,
            wait: models.wait,
            table: Mutex::new(Table {
                slots: slots_of,
                waiters: HashMap::new(),
                is_draining: false,
            }),
            is_ready: AtomicBool::new(false),
            changed: Notify::new(),
            runtime: Handle::current(),
        });
        let mut catalogue = Catalogue::new();
        for entry in models.entries {
            catalogue.add(entry, |entry| pool.known_of(entry));
        }
        pool.put(catalogue);
        pool
    }

    /// The models of this moment, in the order in which the server was told of them.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.catalogue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, catalogue: Catalogue) {
        *self.catalogue.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalogue);
    }

    /// The combined status of all loaded models' engines, also of removed ones that are in use.
    pub fn status(&self) -> EngineStatus {
        let models = self.lock().slots.models();
        sum(models.iter().map(Any::status))
    }

    /// Reports of all models at this moment.
    pub fn reports(&self) -> Vec<Report> {
        let table = self.lock();
        let (catalogue, now) = (self.catalogue(), Instant::now());
        let report = |(index, known)| self.report(index, known, &table.slots, now);
        catalogue.there().map(report).collect()
    }

    /// The report of one model, with how far its load is.
    fn report(&self, index: usize, known: &Arc<Known>, slots: &Slots<Any>, now: Instant) -> Report {
        let mut report = Report::of(index, known, slots, now);
        if report.state == "loading" {
            report.progress = self.loader.progress(index);
        }
        report
    }

    /// Generations that are held now, and how many of them more than run together, of all models.
    pub fn held(&self) -> (usize, usize) {
        let add = |(held, waiting), (h, w)| (held + h, waiting + w);
        self.catalogue().all().iter().map(|model| model.admission.held()).fold((0, 0), add)
    }

    /// The current phase of the pool.
    pub fn phase(&self) -> Phase {
        match (self.lock().is_draining, self.is_ready.load(Ordering::Acquire)) {
            (true, _) => Phase::Draining,
            (false, true) => Phase::Ready,
            (false, false) => Phase::Loading,
        }
    }

    /// Checks that requests are taken.
    ///
    /// # Errors
    /// 503 while the server ends, and before it is ready where no request waits for that.
    pub fn check_open(&self) -> Result<()> {
        match self.phase() {
            Phase::Draining => Err(ApiError::draining()),
            Phase::Loading if self.wait.is_zero() => Err(ApiError::loading()),
            Phase::Loading | Phase::Ready => Ok(()),
        }
    }

    /// Checks that requests for models of the kind `makes` are taken.
    ///
    /// # Errors
    /// As [`check_open`](Self::check_open); 400 where no model makes it.
    pub async fn check_kind(self: &Arc<Self>, makes: Makes) -> Result<()> {
        self.check_open()?;
        if self.catalogue().names().check(makes).is_err() {
            self.refresh().await;
        }
        self.catalogue().names().check(makes)
    }

    /// Loads what is loaded at the start; the pool is ready afterwards.
    ///
    /// # Errors
    /// The first model that cannot be loaded, and why.
    pub async fn start(self: &Arc<Self>) -> std::result::Result<(), (Arc<str>, LoadFailure)> {
        let (mut all, catalogue) = (Vec::new(), self.catalogue());
        for (index, _) in catalogue.there().filter(|(_, model)| model.at_start) {
            let Ok(waiting) = self.stand::<Infallible>(index, false, |_, _, _| Ok(()));
            all.push(waiting);
        }
        for mut waiting in all {
            if let Ok(Err(Refused::Failed(failed))) = (&mut waiting.answer).await {
                return Err((Arc::clone(&catalogue.known(waiting.index).name), failed.why));
            }
        }
        self.is_ready.store(true, Ordering::Release);
        Ok(())
    }

    /// A model for text: the one that `asked` names, or the only one. It is loaded where it is not.
    ///
    /// # Errors
    /// 404 for a name that no model has, 429 where too many wait for models. 503 where this one
    /// cannot be loaded or takes too long, and while the server ends.
    pub async fn text(self: &Arc<Self>, asked: Option<&str>) -> Result<Lease<Loaded>> {
        let lease = self.lease(asked, Makes::Text).await?;
        let name = lease.name().to_owned();
        let text = |any| if let Any::Text(loaded) = any { Some(loaded) } else { None };
        lease.map(text).ok_or_else(|| wrong(&name))
    }

    /// A model that makes pictures, as [`text`](Self::text).
    ///
    /// # Errors
    /// As [`text`](Self::text).
    pub async fn image(
        self: &Arc<Self>,
        asked: Option<&str>,
    ) -> Result<Lease<Arc<dyn inference_core::ImageModel>>> {
        let lease = self.lease(asked, Makes::Pictures).await?;
        let name = lease.name().to_owned();
        let image = |any| if let Any::Image(model) = any { Some(model) } else { None };
        lease.map(image).ok_or_else(|| wrong(&name))
    }

    /// A model that makes vectors or scores, as [`text`](Self::text).
    ///
    /// # Errors
    /// As [`text`](Self::text).
    pub async fn embedding(
        self: &Arc<Self>,
        asked: Option<&str>,
        makes: Makes,
    ) -> Result<Lease<Arc<dyn inference_core::EmbeddingModel>>> {
        let lease = self.lease(asked, makes).await?;
        let name = lease.name().to_owned();
        let embedding = |any| if let Any::Embedding(model) = any { Some(model) } else { None };
        lease.map(embedding).ok_or_else(|| wrong(&name))
    }

    /// A model that transcribes speech, as [`text`](Self::text).
    ///
    /// # Errors
    /// As [`text`](Self::text).
    pub async fn transcription(
        self: &Arc<Self>,
        asked: Option<&str>,
    ) -> Result<Lease<Arc<dyn inference_core::TranscriptionModel>>> {
        let lease = self.lease(asked, Makes::Transcripts).await?;
        let name = lease.name().to_owned();
        let transcription =
            |any| if let Any::Transcription(model) = any { Some(model) } else { None };
        lease.map(transcription).ok_or_else(|| wrong(&name))
    }

    /// A model that speaks, as [`text`](Self::text).
    ///
    /// # Errors
    /// As [`text`](Self::text).
    pub async fn speech(
        self: &Arc<Self>,
        asked: Option<&str>,
    ) -> Result<Lease<Arc<dyn inference_core::SpeechModel>>> {
        let lease = self.lease(asked, Makes::Speech).await?;
        let name = lease.name().to_owned();
        let speech = |any| if let Any::Speech(model) = any { Some(model) } else { None };
        lease.map(speech).ok_or_else(|| wrong(&name))
    }

    /// From now on the model of this number stays for so long while nobody uses it.
    pub fn keep(self: &Arc<Self>, index: usize, keep: Keep) {
        self.with(|table, _| table.slots.keep(index, keep));
    }

    /// The model of this number is not unloaded at once, though that was asked for.
    pub fn stay(self: &Arc<Self>, index: usize) {
        self.with(|table, _| table.slots.stay(index));
    }

    /// From now on no model is handed out.
    pub fn drain(self: &Arc<Self>) {
        let waiters = self.with(|table, now| {
            table.is_draining = true;
            let waiters: Vec<_> = table.waiters.drain().collect();
            waiters.iter().for_each(|(ticket, _)| table.slots.leave(*ticket, now));
            waiters
        });
        for (_, waiter) in waiters {
            // One that has left needs no answer.
            let _ = waiter.answer.send(Err(Refused::Draining));
        }
    }

    /// Closes every model that is loaded.
    pub fn close(&self) {
        let models = self.lock().slots.models();
        for model in models {
            model.close();
            for notice in model.notices() {
                tracing::warn!(target: "models", "{notice}");
            }
        }
    }

    /// Unloads what is idle for too long, for ever.
    pub async fn unload_idle(self: Arc<Self>) {
        loop {
            let next = self.lock().slots.next_tick();
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => self.with(|table, now| table.slots.tick(now)),
                () = self.changed.notified() => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A loader that gives another kind of model than it was said to.
fn wrong(name: &str) -> ApiError {
    ApiError::internal(format!("the model `{name}` was loaded as one of another kind"))
}
