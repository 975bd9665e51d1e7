//! The backend: a name, a device that a test can take away, and the models that it loads.

use std::path::Path;
use std::sync::{Arc, Mutex};

use inference_core::{Backend, Error, LoadOptions, Preference, Result, TextModel};

use crate::FakeModel;

/// A backend that loads every folder but the one called `broken`.
pub struct FakeBackend {
    /// Its name.
    pub name: &'static str,
    /// When it is tried, where no backend is asked for.
    pub preference: Preference,
    /// Why it is not available, where it is not.
    pub reason: Mutex<Option<&'static str>>,
    /// The options of each load.
    pub loaded: Mutex<Vec<LoadOptions>>,
    make: Box<dyn Fn() -> FakeModel + Send + Sync>,
}

impl FakeBackend {
    /// A backend that loads what `make` makes.
    pub fn new(name: &'static str, make: impl Fn() -> FakeModel + Send + Sync + 'static) -> Self {
        FakeBackend {
            name,
            preference: Preference::default(),
            reason: Mutex::default(),
            loaded: Mutex::default(),
            make: Box::new(make),
        }
    }

    /// A backend whose models say their prompt's ids; their architecture is the backend's name.
    pub fn available(name: &'static str) -> Arc<Self> {
        Arc::new(FakeBackend::new(name, || FakeModel::echo(name)))
    }

    /// A backend that cannot run, because of `reason`.
    pub fn unavailable(name: &'static str, reason: &'static str) -> Arc<Self> {
        let backend = FakeBackend::available(name);
        *backend.reason.lock().unwrap() = Some(reason);
        backend
    }
}

impl Backend for FakeBackend {
    fn name(&self) -> &str {
        self.name
    }

    fn preference(&self) -> Preference {
        self.preference
    }

    fn available(&self) -> Result<(), String> {
        self.reason.lock().unwrap().map_or(Ok(()), |reason| Err(reason.to_owned()))
    }

    fn load_model(&self, path: &Path, options: &LoadOptions) -> Result<Box<dyn TextModel>> {
        options.validate()?;
        if path == Path::new("broken") {
            return Err(Error::Load { path: "broken".into(), reason: "no config.json".into() });
        }
        self.loaded.lock().unwrap().push(options.clone());
        Ok(Box::new((self.make)()))
    }
}
