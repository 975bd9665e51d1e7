//! Models by their names on the hub, where a folder could stand, too.

use std::path::{Path, PathBuf};

use hub::{Cache, Error, Name, Settings, known_as};

use crate::failure::{Failure, Result};
use crate::fetching::fetch_if_wanted;
use crate::nearest::{nearest, nearest_pulled, question};

/// Endings of files that are models, or parts of one.
const FILES: [&str; 2] = [".gguf", ".safetensors"];

/// A model's name, its address on the hub, or the short name of a well-known model, as
/// `qwen3-0.6b` or `qwen3:0.6b`.
///
/// # Errors
/// A text that is none, with the names that are most like it.
pub fn parse(text: &str) -> Result<Name> {
    let refused = |error: Error| {
        let names = nearest(text);
        let hint = match names.is_empty() {
            true => "`ml models` lists short names".to_owned(),
            false => format!("is it {}? `ml models` lists all", names.join(", ")),
        };
        Failure::Usage(format!("{error} ({hint})"))
    };
    if let Some(known) = known_as(text) {
        return known.repository.parse().map_err(refused);
    }
    let settings = Settings::from_env();
    let endpoint = settings.as_ref().map_or("https://huggingface.co", |found| &found.endpoint);
    Name::from_address(text, endpoint).map_err(refused)
}

/// `MODEL` or `NAME=MODEL`. What is there as a whole is a folder, whatever its name has in it.
pub fn split(given: &Path) -> (Option<&str>, &Path) {
    let text = given.to_str().filter(|_| !given.exists());
    match text.and_then(|text| text.split_once('=')) {
        Some((name, model)) if !name.is_empty() => (Some(name), Path::new(model)),
        _ => (None, given),
    }
}

/// Returns true for what is written as the path of a file or folder, and no name.
fn is_path(text: &str) -> bool {
    // Behind the hub's address, a file has more parts.
    let is_file = text.matches('/').count() < 2 && !text.contains(':');
    let small = text.to_ascii_lowercase();
    text.starts_with(['/', '.', '~'])
        || text.ends_with('/') && !text.contains("://")
        || is_file && FILES.iter().any(|ending| small.ends_with(ending))
}

/// The model in the hub's cache that `model` names; `None` where it is a folder. So is what is
/// written as a path: its loading tells that it is missing. A model that is not in the cache is
/// fetched where that is wanted.
///
/// # Errors
/// A name that is neither a folder nor in the cache; a word that is neither; one that is nearly
/// another one; as [`fetch_if_wanted`].
pub fn pulled(model: &Path) -> Result<Option<(Name, PathBuf)>> {
    let Some(text) = model.to_str().filter(|text| !is_path(text) && !model.exists()) else {
        return Ok(None);
    };
    let name = match parse(text) {
        Ok(name) => name,
        // An address is no folder.
        Err(error) if text.contains("://") => return Err(error),
        Err(error) if !text.contains('/') && !nearest(text).is_empty() => return Err(error),
        Err(_) if !text.contains('/') => {
            let remedy = "`ml models` lists short names, and `ml list` what is here";
            let reason = format!("{text}: no such folder, and no name of a model: {remedy}");
            return Err(Failure::Other(reason));
        }
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
            Err(missing(text, &name, &error))
        }
        Err(error) => Err(error.into()),
    }
}

/// The failure of `text`, which names a model that is not here.
fn missing(text: &str, name: &Name, error: &Error) -> Failure {
    let question = question(&nearest_pulled(&name.repository()));
    // An address is no folder.
    let folder = match text.contains("://") {
        true => String::new(),
        false => format!("there is no folder {text}, and "),
    };
    let reason = format!("{folder}{error}{question}: `ml pull {text}` or `--yes` fetches it");
    Failure::Other(reason)
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
        for text in ["https://huggingface.co/org/name/tree/main", "hf.co/org/name", "org/name"] {
            assert_eq!(parse(text).unwrap().to_string(), "org/name");
        }
        assert_eq!(parse("hf.co/org/name:Q4_K_M").unwrap().file(), Some("Q4_K_M"));
    }

    #[test]
    fn what_is_nearly_a_short_name_is_told_the_nearest() {
        for text in ["qwen3-0.7b", "Qwen3:0.7B", "qwen3:0.6b-q8_0"] {
            let error = pulled(Path::new(text)).unwrap_err().to_string();
            assert!(error.contains("is it qwen3-0.6b"), "{error}");
        }
        let error = pulled(Path::new("https://huggingface.co/datasets/a/b")).unwrap_err();
        assert!(error.to_string().contains("of a data set"), "{error}");
    }

    #[test]
    fn what_is_written_as_a_path_is_one() {
        for text in [
            "/no/such/folder",
            "./org/name",
            "../name",
            "~/models/name",
            "org/name/",
            "models/fox.gguf",
            "fox.GGUF",
            "models/fox.safetensors",
            "a/b/c",
        ] {
            assert_eq!(pulled(Path::new(text)).unwrap(), None, "{text}");
        }
        let error = pulled(Path::new("my-own-finetune-of-something")).unwrap_err().to_string();
        assert!(error.contains("no such folder, and no name of a model: `ml models`"), "{error}");
        for text in ["org/name", "https://hf.co/org/name/", "hf.co/org/name/blob/main/x.gguf"] {
            assert!(!is_path(text), "{text}");
        }
    }

    #[test]
    fn a_name_stands_before_the_model_unless_the_whole_is_a_folder() {
        assert_eq!(split(Path::new("a/b")), (None, Path::new("a/b")));
        assert_eq!(split(Path::new("small=a/b")), (Some("small"), Path::new("a/b")));
        assert_eq!(split(Path::new("=a/b")), (None, Path::new("=a/b")));
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a=b");
        std::fs::create_dir(&odd).unwrap();
        assert_eq!(split(&odd), (None, odd.as_path()));
    }
}
