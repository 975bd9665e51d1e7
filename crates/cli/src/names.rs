//! Models by their names on the hub, where a folder could stand, too.

use std::path::{Path, PathBuf};

use hub::{Cache, Error, KNOWN, Name, Settings};

use crate::failure::{Failure, Result};

/// A model's name, or the short one of a well-known model.
///
/// # Errors
/// A text that is none.
pub fn parse(text: &str) -> Result<Name> {
    let known = KNOWN.iter().find(|known| known.alias == text);
    let name = known.map_or(text, |known| known.repository).parse();
    name.map_err(|error: Error| Failure::Usage(format!("{error} (`ml models` lists short names)")))
}

/// The model in the hub's cache that `model` names; `None` where it is a folder. So is what is no
/// name either: its loading tells that it is missing.
///
/// # Errors
/// A name that is neither a folder nor in the cache.
pub fn pulled(model: &Path) -> Result<Option<(Name, PathBuf)>> {
    let text = model.to_str().filter(|_| !model.exists());
    let Some(name) = text.and_then(|text| parse(text).ok()) else { return Ok(None) };
    match Cache::new(&Settings::from_env()?.cache).find(&name) {
        Ok(snapshot) => Ok(Some((name, snapshot.model))),
        Err(
            error @ (Error::NotCached { .. } | Error::Incomplete { .. } | Error::Choice { .. }),
        ) => {
            let model = model.display();
            let reason =
                format!("there is no folder {model}, and {error}: `ml pull {model}` fetches it");
            Err(Failure::Other(reason))
        }
        Err(error) => Err(error.into()),
    }
}

/// The folder of the model that is asked for, or else that the environment's `variable` names.
///
/// # Errors
/// No model at all, with `missing` as the reason; as [`pulled`].
pub fn folder_or_env(model: Option<&Path>, variable: &str, missing: &str) -> Result<PathBuf> {
    let from_env = || std::env::var_os(variable).filter(|value| !value.is_empty());
    let model = model.map(Path::to_owned).or_else(|| from_env().map(PathBuf::from));
    folder(&model.ok_or_else(|| Failure::Usage(missing.to_owned()))?)
}

/// The folder that `path` means: itself, or that of the name in the cache.
///
/// # Errors
/// As [`pulled`].
pub fn folder(path: &Path) -> Result<PathBuf> {
    Ok(pulled(path)?.map_or_else(|| path.to_owned(), |(_, folder)| folder))
}
