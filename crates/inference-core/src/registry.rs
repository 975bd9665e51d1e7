//! The registry of backends.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use crate::{
    Backend, EmbeddingLoadOptions, EmbeddingModel, Error, ImageLoadOptions, ImageModel,
    LoadOptions, Result, SpeechLoadOptions, SpeechModel, TextModel, TranscriptionLoadOptions,
    TranscriptionModel,
};

/// Finds the path of a model by a name; `None` where the text is no name.
type Resolver =
    dyn Fn(&str) -> Result<Option<PathBuf>, Box<dyn std::error::Error + Send + Sync>> + Send + Sync;

/// Backends by name. Programs use the [`global`] one; tests make their own.
#[derive(Default)]
pub struct Registry {
    backends: RwLock<BTreeMap<String, Arc<dyn Backend>>>,
    resolver: RwLock<Option<Arc<Resolver>>>,
}

impl Registry {
    /// An empty registry.
    pub const fn new() -> Self {
        Registry { backends: RwLock::new(BTreeMap::new()), resolver: RwLock::new(None) }
    }

    /// From now on, a model's path at which nothing is goes through `resolver`, in place of an
    /// earlier one. It gives the path that is loaded instead, or `None` for a text that is no name.
    pub fn resolve_by(
        &self,
        resolver: impl Fn(&str) -> Result<Option<PathBuf>, Box<dyn std::error::Error + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) {
        *self.resolver.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(resolver));
    }

    /// Adds a backend under its own name.
    ///
    /// # Errors
    /// [`Error::BackendAlreadyRegistered`]; the first one stays.
    pub fn register(&self, backend: Arc<dyn Backend>) -> Result<()> {
        let name = backend.name().to_owned();
        let mut backends = self.backends.write().unwrap_or_else(PoisonError::into_inner);
        if backends.contains_key(&name) {
            return Err(Error::BackendAlreadyRegistered { name });
        }
        backends.insert(name, backend);
        Ok(())
    }

    /// The backend of that name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Backend>> {
        self.snapshot().remove(name)
    }

    /// The registered names, sorted.
    pub fn list(&self) -> Vec<String> {
        self.snapshot().into_keys().collect()
    }

    /// The first available backend in the order of [`Preference`](crate::Preference), equals by
    /// name.
    ///
    /// # Errors
    /// [`Error::NoBackends`] when none is registered, [`Error::NoBackendAvailable`] with each
    /// one's reason when none can run.
    pub fn default_backend(&self) -> Result<Arc<dyn Backend>> {
        // By name; the sort is stable.
        let mut backends: Vec<_> = self.snapshot().into_values().collect();
        if backends.is_empty() {
            return Err(Error::NoBackends);
        }
        backends.sort_by_key(|backend| backend.preference());
        let mut unavailable = Vec::new();
        for backend in backends {
            match backend.available() {
                Ok(()) => return Ok(backend),
                Err(reason) => unavailable.push((backend.name().to_owned(), reason)),
            }
        }
        unavailable.sort();
        Err(Error::NoBackendAvailable { unavailable })
    }

    /// Loads `path` with the backend that `options.backend` names, else with the default one. A
    /// name that [`resolve_by`](Self::resolve_by) knows may stand for the path, here and below.
    ///
    /// # Errors
    /// [`Error::Load`] with the resolver's reason, [`Error::BackendNotRegistered`],
    /// [`Error::BackendNotAvailable`], those of [`default_backend`](Self::default_backend), of
    /// [`LoadOptions::validate`] and of the backend's own load.
    pub fn load_model(&self, path: &Path, options: &LoadOptions) -> Result<Box<dyn TextModel>> {
        options.validate()?;
        self.chosen(options.backend.as_deref())?.load_model(&self.place(path)?, options)
    }

    /// Loads the image model at `path` with the backend that `options.backend` names, else with the
    /// default one.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model).
    pub fn load_image_model(
        &self,
        path: &Path,
        options: &ImageLoadOptions,
    ) -> Result<Box<dyn ImageModel>> {
        options.validate()?;
        self.chosen(options.backend.as_deref())?.load_image_model(&self.place(path)?, options)
    }

    /// Loads the embedding model at `path` with the backend that `options.backend` names, else with
    /// the default one.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model).
    pub fn load_embedding_model(
        &self,
        path: &Path,
        options: &EmbeddingLoadOptions,
    ) -> Result<Box<dyn EmbeddingModel>> {
        options.validate()?;
        self.chosen(options.backend.as_deref())?.load_embedding_model(&self.place(path)?, options)
    }

    /// Loads the model at `path`, which transcribes speech, with the backend that
    /// `options.backend` names, else with the default one.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model).
    pub fn load_transcription_model(
        &self,
        path: &Path,
        options: &TranscriptionLoadOptions,
    ) -> Result<Box<dyn TranscriptionModel>> {
        options.validate()?;
        self.chosen(options.backend.as_deref())?
            .load_transcription_model(&self.place(path)?, options)
    }

    /// Loads the model at `path`, which speaks, with the backend that `options.backend` names, else
    /// with the default one.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model).
    pub fn load_speech_model(
        &self,
        path: &Path,
        options: &SpeechLoadOptions,
    ) -> Result<Box<dyn SpeechModel>> {
        options.validate()?;
        self.chosen(options.backend.as_deref())?.load_speech_model(&self.place(path)?, options)
    }

    /// The path of the model that `given` means.
    fn place(&self, given: &Path) -> Result<PathBuf> {
        let resolver = self.resolver.read().unwrap_or_else(PoisonError::into_inner).clone();
        let name = given.to_str().filter(|_| !given.exists());
        let (Some(resolver), Some(name)) = (resolver, name) else { return Ok(given.to_owned()) };
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| Error::Load {
            path: name.to_owned(),
            reason: error.to_string(),
        };
        Ok(resolver(name).map_err(failed)?.unwrap_or_else(|| given.to_owned()))
    }

    /// The backend of that name, else the default one; it is available.
    fn chosen(&self, name: Option<&str>) -> Result<Arc<dyn Backend>> {
        let Some(name) = name else { return self.default_backend() };
        let backend = self.get(name).ok_or_else(|| Error::BackendNotRegistered {
            name: name.to_owned(),
            registered: self.list(),
        })?;
        backend
            .available()
            .map_err(|reason| Error::BackendNotAvailable { name: name.to_owned(), reason })?;
        Ok(backend)
    }

    /// A copy, so that no backend's code runs under the lock.
    fn snapshot(&self) -> BTreeMap<String, Arc<dyn Backend>> {
        self.backends.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.list()).finish()
    }
}

static GLOBAL: Registry = Registry::new();

/// The process's registry, which the functions of this module use.
pub fn global() -> &'static Registry {
    &GLOBAL
}

/// [`Registry::register`] on the [`global`] registry.
///
/// # Errors
/// Those of [`Registry::register`].
pub fn register(backend: Arc<dyn Backend>) -> Result<()> {
    GLOBAL.register(backend)
}

/// [`Registry::resolve_by`] on the [`global`] registry.
pub fn resolve_by(
    resolver: impl Fn(&str) -> Result<Option<PathBuf>, Box<dyn std::error::Error + Send + Sync>>
    + Send
    + Sync
    + 'static,
) {
    GLOBAL.resolve_by(resolver);
}

/// [`Registry::get`] on the [`global`] registry.
pub fn get_backend(name: &str) -> Option<Arc<dyn Backend>> {
    GLOBAL.get(name)
}

/// [`Registry::list`] on the [`global`] registry.
pub fn backends() -> Vec<String> {
    GLOBAL.list()
}

/// [`Registry::default_backend`] on the [`global`] registry.
///
/// # Errors
/// Those of [`Registry::default_backend`].
pub fn default_backend() -> Result<Arc<dyn Backend>> {
    GLOBAL.default_backend()
}

/// [`Registry::load_model`] on the [`global`] registry.
///
/// # Errors
/// Those of [`Registry::load_model`].
pub fn load_model(path: &Path, options: &LoadOptions) -> Result<Box<dyn TextModel>> {
    GLOBAL.load_model(path, options)
}

/// [`Registry::load_image_model`] on the [`global`] registry.
///
/// # Errors
/// Those of [`Registry::load_image_model`].
pub fn load_image_model(path: &Path, options: &ImageLoadOptions) -> Result<Box<dyn ImageModel>> {
    GLOBAL.load_image_model(path, options)
}

/// [`Registry::load_embedding_model`] on the [`global`] registry.
///
/// # Errors
/// Those of [`Registry::load_embedding_model`].
pub fn load_embedding_model(
    path: &Path,
    options: &EmbeddingLoadOptions,
) -> Result<Box<dyn EmbeddingModel>> {
    GLOBAL.load_embedding_model(path, options)
}

/// [`Registry::load_transcription_model`] on the [`global`] registry.
///
/// # Errors
/// Those of [`Registry::load_transcription_model`].
pub fn load_transcription_model(
    path: &Path,
    options: &TranscriptionLoadOptions,
) -> Result<Box<dyn TranscriptionModel>> {
    GLOBAL.load_transcription_model(path, options)
}

/// [`Registry::load_speech_model`] on the [`global`] registry.
///
/// # Errors
/// Those of [`Registry::load_speech_model`].
pub fn load_speech_model(path: &Path, options: &SpeechLoadOptions) -> Result<Box<dyn SpeechModel>> {
    GLOBAL.load_speech_model(path, options)
}
