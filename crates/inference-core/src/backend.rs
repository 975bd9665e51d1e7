//! What a backend is.

use std::fmt;
use std::path::Path;

use crate::{LoadOptions, Result, TextModel};

/// A way to run models: a library, a device, a remote service.
pub trait Backend: Send + Sync {
    /// The name under which it is registered: `metal`, `cuda`, `cpu`, …
    fn name(&self) -> &str;

    /// `Ok` when models can run here.
    ///
    /// # Errors
    /// Why they cannot, as text for a person.
    fn available(&self) -> Result<(), String>;

    /// Loads the model folder at `path`. Calls [`LoadOptions::validate`] first, and refuses by
    /// name what it does not honour.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) and
    /// [`Error::Unsupported`](crate::Error::Unsupported) name an option,
    /// [`Error::Load`](crate::Error::Load) a file, [`Error::Memory`](crate::Error::Memory) the bytes.
    fn load_model(&self, path: &Path, options: &LoadOptions) -> Result<Box<dyn TextModel>>;
}

/// The backend's name, so that results that hold one can be unwrapped and logged.
impl fmt::Debug for dyn Backend + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("name", &self.name()).finish_non_exhaustive()
    }
}
