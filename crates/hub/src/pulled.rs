//! Models that were pulled, by the texts that people write.

use std::path::PathBuf;

use crate::{Cache, Name, Result, Settings, known_as};

impl Settings {
    /// The model in this cache that `text` means, as [`pulled`] finds it.
    ///
    /// # Errors
    /// A name that is not in the cache, or not whole.
    pub fn pulled(&self, text: &str) -> Result<Option<PathBuf>> {
        let text = known_as(text).map_or(text, |known| known.repository);
        let Ok(name) = Name::from_address(text, &self.endpoint) else { return Ok(None) };
        Ok(Some(Cache::new(&self.cache).find(&name)?.model))
    }
}

/// The model in the cache that `text` means: a short name such as `qwen3-0.6b`, `ORG/NAME`, or an
/// address of the hub. The cache is that of the environment, and the hub is not asked. `None` for a
/// text that is no name.
///
/// With it, a program loads models by their names:
/// `inference_core::resolve_by(|name| Ok(hub::pulled(name)?))`.
///
/// ```
/// assert_eq!(hub::pulled("./a/folder/of/mine")?, None);
/// # Ok::<(), hub::Error>(())
/// ```
///
/// # Errors
/// A name that is not in the cache, or not whole; a cache that the environment does not tell.
pub fn pulled(text: &str) -> Result<Option<PathBuf>> {
    Settings::from_env()?.pulled(text)
}
