//! The use of a model by one request.

use std::ops::Deref;
use std::sync::Arc;

use super::admission::Admission;

/// Counts as one user of a model until it is dropped.
pub struct Hold {
    name: Arc<str>,
    admission: Arc<Admission>,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Hold {
    /// One use of the model called `name`, whose end calls `release`.
    pub fn new(
        name: Arc<str>,
        admission: Arc<Admission>,
        release: impl FnOnce() + Send + Sync + 'static,
    ) -> Hold {
        Hold { name, admission, release: Some(Box::new(release)) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

/// A model that stays loaded as long as a clone of this lives.
#[derive(Clone)]
pub struct Lease<T> {
    // Dropped first: what is left of the model is empty by the time it is unloaded.
    model: T,
    hold: Arc<Hold>,
}

impl<T> Lease<T> {
    /// `model`, with its use.
    pub fn new(model: T, hold: Hold) -> Lease<T> {
        Lease { model, hold: Arc::new(hold) }
    }

    /// A lease of what `part` makes of the model, which is this use of it; `None` where it makes
    /// nothing.
    pub fn map<U>(self, part: impl FnOnce(T) -> Option<U>) -> Option<Lease<U>> {
        let Lease { model, hold } = self;
        part(model).map(|model| Lease { model, hold })
    }

    /// The name under which the model is served.
    pub fn name(&self) -> &str {
        &self.hold.name
    }

    /// Room for the model's generations.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.hold.admission
    }
}

impl<T> Deref for Lease<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.model
    }
}
