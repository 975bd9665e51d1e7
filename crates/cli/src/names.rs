//! Models by their names on the hub, where a folder could stand, too.

use std::path::{Path, PathBuf};

use hub::{Cache, Error, KNOWN, Name, Settings};

use crate::failure::{Failure, Result};
use crate::fetching::fetch_if_wanted;

/// Beginnings of a model's address, which its name may have in front.
const ADDRESSES: [&str; 4] =
    ["https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/"];
/// The most short names that an error tells, and how many letters may be others in them.
const NEAREST: usize = 3;
const OTHER_LETTERS: usize = 3;

/// A model's name, its address on the hub, or the short name of a well-known model, as
/// `qwen3-0.6b` or `qwen3:0.6b`.
///
/// # Errors
/// A text that is none.
pub fn parse(text: &str) -> Result<Name> {
    let known = KNOWN.iter().find(|known| known.alias == short(text));
    let path = ADDRESSES.iter().find_map(|address| text.strip_prefix(address)).unwrap_or(text);
    let name = known.map_or(path, |known| known.repository).parse();
    name.map_err(|error: Error| {
        let nearest = nearest(text);
        let hint = match nearest.is_empty() {
            true => "`ml models` lists short names".to_owned(),
            false => format!("is it {}? `ml models` lists all", nearest.join(", ")),
        };
        Failure::Usage(format!("{error} ({hint})"))
    })
}

/// `text` as short names are written.
fn short(text: &str) -> String {
    text.to_lowercase().replace(':', "-")
}

/// The short names that are most like `text`, the nearest first.
fn nearest(text: &str) -> Vec<&'static str> {
    let short = short(text);
    let distance = |alias: &str| strsim::damerau_levenshtein(&short, alias);
    let mut near: Vec<_> = KNOWN.iter().map(|known| (distance(known.alias), known.alias)).collect();
    near.retain(|(distance, _)| *distance <= OTHER_LETTERS);
    near.sort_unstable();
    near.into_iter().take(NEAREST).map(|(_, alias)| alias).collect()
}

/// The model in the hub's cache that `model` names; `None` where it is a folder. So is what is no
/// name either: its loading tells that it is missing. A model that is not in the cache is fetched
/// where that is wanted.
///
/// # Errors
/// A name that is neither a folder nor in the cache; one that is nearly a short name; as
/// [`fetch_if_wanted`].
pub fn pulled(model: &Path) -> Result<Option<(Name, PathBuf)>> {
    let Some(text) = model.to_str().filter(|_| !model.exists()) else { return Ok(None) };
    let name = match parse(text) {
        Ok(name) => name,
        Err(error) if !text.contains('/') && !nearest(text).is_empty() => return Err(error),
        Err(_) => return Ok(None),
    };
    let settings = Settings::from_env()?;
    match Cache::new(&settings.cache).find(&name) {
        Ok(snapshot) => Ok(Some((name, snapshot.model))),
        Err(
            error @ (Error::NotCached { .. } | Error::Incomplete { .. } | Error::Choice { .. }),
        ) => {
            // Of several files, the person has to name one.
            let is_clear = !matches!(error, Error::Choice { .. });
            let fetched = if is_clear { fetch_if_wanted(&name, &settings)? } else { None };
            if let Some(pulled) = fetched {
                return Ok(Some((name, pulled.model)));
            }
            let model = model.display();
            let reason = format!(
                "there is no folder {model}, and {error}: `ml pull {model}` or `--yes` fetches it"
            );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_people_write_them() {
        for text in ["qwen3-0.6b", "qwen3:0.6b", "Qwen3-0.6B"] {
            assert_eq!(parse(text).unwrap().repository(), "mlx-community/Qwen3-0.6B-4bit");
        }
        for text in ["https://huggingface.co/org/name", "hf.co/org/name", "org/name"] {
            assert_eq!(parse(text).unwrap().to_string(), "org/name");
        }
        assert_eq!(parse("hf.co/org/name:Q4_K_M").unwrap().file(), Some("Q4_K_M"));
    }

    #[test]
    fn what_is_nearly_a_short_name_is_told_the_nearest() {
        for text in ["qwen3-0.7b", "Qwen3:0.7B"] {
            let error = pulled(Path::new(text)).unwrap_err().to_string();
            assert!(error.contains("is it qwen3-0.6b"), "{error}");
        }
        // Anything else may be a folder that is missing.
        assert_eq!(pulled(Path::new("my-own-finetune-of-something")).unwrap(), None);
        assert_eq!(pulled(Path::new("/no/such/folder")).unwrap(), None);
    }
}
