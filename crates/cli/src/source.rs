//! Where text and models come from: files, stdin, folders, the binary itself.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use inference_core::{Capabilities, LoadOptions, ModelInfo, TextModel};

use crate::args::LoadArgs;
use crate::demo;
use crate::failure::{Failure, Result, reason};
use crate::output::Spinner;

/// A longer text fits no context; an endless one, such as a device, must end somewhere.
const MAX_BYTES: u64 = 64 << 20;

/// Whether `path` stands for stdin.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The text in the file at `path`; `-` is stdin.
///
/// # Errors
/// Names the file, and the first byte that is not UTF-8.
pub fn read(path: &Path) -> Result<String> {
    if is_stdin(path) {
        return read_stdin();
    }
    let name = path.display().to_string();
    let file = fs::File::open(path)
        .map_err(|error| Failure::Other(format!("{name}: {}", reason(&error))))?;
    read_all(file, &name)
}

/// All of stdin.
///
/// # Errors
/// As [`read`].
pub fn read_stdin() -> Result<String> {
    read_all(io::stdin(), "stdin")
}

/// The lines of the text at `path`, without their ends.
///
/// # Errors
/// As [`read`].
pub fn read_lines(path: &Path) -> Result<Vec<String>> {
    Ok(read(path)?.lines().map(str::to_owned).collect())
}

/// Whether a person would have to type what is read from stdin.
pub fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// The text of an input that may have no end.
fn read_all(input: impl Read, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    input
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::Other(format!("{name}: {}", reason(&error))))?;
    if bytes.len() as u64 > MAX_BYTES {
        let limit = MAX_BYTES >> 20;
        return Err(Failure::Other(format!("{name}: over {limit} MiB, at most that are read")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::Other(format!("{name}: not valid UTF-8 at byte {at}; convert it to UTF-8 first"))
    })
}

/// A model to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The demo model in the binary.
    Embedded,
    /// A folder.
    Folder(PathBuf),
}

impl Source {
    /// The model that `--model` names, else `ML_MODEL`, else the embedded one.
    pub fn choose(args: &LoadArgs) -> Self {
        let from_env = || std::env::var_os("ML_MODEL").filter(|value| !value.is_empty());
        match args.model.clone().or_else(|| from_env().map(PathBuf::from)) {
            Some(folder) => Source::Folder(folder),
            None => Source::Embedded,
        }
    }

    /// How reports call it.
    pub fn name(&self) -> String {
        match self {
            Source::Embedded => demo::NAME.to_owned(),
            Source::Folder(path) => path.display().to_string(),
        }
    }

    /// Loads it; `quiet` shows no progress.
    ///
    /// # Errors
    /// The backend's.
    pub fn load(&self, options: &LoadOptions, quiet: bool) -> Result<Box<dyn TextModel>> {
        match self {
            // There before a spinner could turn once.
            Source::Embedded => Ok(metal_backend::load_embedded(demo::FILES, options)?),
            Source::Folder(path) => {
                metal_backend::register()?;
                let _spinner =
                    (!quiet).then(|| Spinner::new(format!("loading {}", path.display())));
                Ok(inference_core::load_model(path, options)?)
            }
        }
    }

    /// What can be told of it without loading its weights.
    ///
    /// # Errors
    /// The backend's.
    pub fn describe(&self, options: &LoadOptions) -> Result<(ModelInfo, Capabilities)> {
        Ok(match self {
            Source::Embedded => metal_backend::describe_embedded(demo::FILES, options)?,
            Source::Folder(path) => metal_backend::describe(path, options)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{MAX_BYTES, read, read_all};

    #[test]
    fn an_input_without_an_end_is_refused() {
        let error = read_all(std::io::repeat(b'a'), "stdin").unwrap_err().to_string();
        assert_eq!(error, "stdin: over 64 MiB, at most that are read");
        let most = std::io::Read::take(std::io::repeat(b'a'), MAX_BYTES);
        assert_eq!(read_all(most, "stdin").unwrap().len() as u64, MAX_BYTES);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error = read(Path::new("no/such/prompt.txt")).unwrap_err();
        assert_eq!(error.to_string(), "no/such/prompt.txt: no such file or directory");
    }

    #[test]
    fn text_that_is_not_utf8_is_refused_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("latin1.txt");
        fs::write(&path, b"caf\xe9").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("latin1.txt: not valid UTF-8 at byte 3"), "{error}");
    }
}
