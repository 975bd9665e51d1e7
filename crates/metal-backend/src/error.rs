//! The crate's error, which becomes the contract's at its border.

use std::any::Any;
use std::fmt::Display;
use std::path::Path;

/// The result of everything inside this crate.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// An error inside the backend.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Error {
    /// MLX refused or failed.
    #[error(transparent)]
    Mlx(#[from] mlx_ffi::Error),
    /// An error that already has the contract's form.
    #[error(transparent)]
    Core(#[from] inference_core::Error),
    /// Something is wrong with the model; the loader adds where it lies.
    #[error("{0}")]
    Model(String),
}

/// The three of the known names that are most like `name`, the nearest first.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let mut names = known.to_vec();
    names.sort_by_cached_key(|known| strsim::damerau_levenshtein(name, known));
    names.truncate(3);
    names
}

impl Error {
    /// A fault of the model's files.
    pub(crate) fn model(reason: impl Into<String>) -> Self {
        Error::Model(reason.into())
    }

    /// Returns true when there was no memory for it, though there may be for less.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        match self {
            Error::Mlx(error) => error.is_out_of_memory(),
            Error::Core(error) => matches!(error, inference_core::Error::OutOfMemory { .. }),
            Error::Model(_) => false,
        }
    }

    /// Names the phase of a request that the fault ended.
    pub(crate) fn in_phase(self, phase: &str) -> Self {
        match self {
            // A panic, for one.
            Error::Core(inference_core::Error::Engine(reason)) => {
                Error::Core(inference_core::Error::Engine(format!("{phase}: {reason}")))
            }
            Error::Core(error) => Error::Core(error),
            error if error.is_out_of_memory() => Error::Core(inference_core::Error::OutOfMemory {
                what: phase.to_owned(),
                reason: error.to_string(),
            }),
            other => Error::Core(inference_core::Error::Engine(format!("{phase}: {other}"))),
        }
    }

    /// Names the file or folder where the fault lies.
    pub(crate) fn at(self, path: &Path) -> Self {
        match self {
            Error::Core(error) => Error::Core(error),
            // No fault of the files.
            error if error.is_out_of_memory() => error,
            other => load(path, other),
        }
    }
}

/// A fault of the file or folder at `path`.
pub(crate) fn load(path: &Path, reason: impl Display) -> Error {
    Error::Core(inference_core::Error::Load {
        path: path.display().to_string(),
        reason: reason.to_string(),
    })
}

impl From<Error> for inference_core::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Core(error) => error,
            Error::Mlx(error) if error.is_out_of_memory() => inference_core::Error::OutOfMemory {
                what: "the request".to_owned(),
                reason: error.to_string(),
            },
            other => inference_core::Error::Engine(other.to_string()),
        }
    }
}

/// The words by which errors tell that a model needs more than f16.
pub(crate) const RANGE_OF_F16: &str = "the range of f16";

/// Returns true for an error of a load that tells of values beyond f16.
pub(crate) fn is_beyond_f16(error: &inference_core::Error) -> bool {
    match error {
        inference_core::Error::Load { reason, .. }
        | inference_core::Error::InvalidOption { reason, .. } => reason.contains(RANGE_OF_F16),
        _ => false,
    }
}

/// The beginning of [`not_numbers`].
const NOT_NUMBERS: &str = "the model's logits are no numbers: ";

/// The error of a request whose model computes NaN.
pub(crate) fn not_numbers() -> Error {
    Error::model(format!(
        "{NOT_NUMBERS}its weights are damaged, or overflow the type that it is computed in (try dtype bf16 or f32)"
    ))
}

/// Returns true for [`not_numbers`], behind the phase in which it was met.
pub(crate) fn is_not_numbers(error: &inference_core::Error) -> bool {
    matches!(error, inference_core::Error::Engine(reason) if reason.contains(NOT_NUMBERS))
}

/// `error` of a model that is computed in f16 in place of bf16: [`not_numbers`] names the remedy.
pub(crate) fn of_f16_for_bf16(error: inference_core::Error) -> inference_core::Error {
    match error {
        inference_core::Error::Engine(reason) if reason.contains(NOT_NUMBERS) => {
            let phase = reason.split(NOT_NUMBERS).next().unwrap_or_default();
            inference_core::Error::Engine(format!(
                "{phase}{NOT_NUMBERS}it is computed in f16 in place of bf16, and leaves {RANGE_OF_F16}; load it with `--dtype bfloat16`"
            ))
        }
        other => other,
    }
}

/// The error of a request or a load that panicked.
pub(crate) fn panicked(what: &str, panic: &(dyn Any + Send)) -> inference_core::Error {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    inference_core::Error::Engine(format!("{what} failed unexpectedly: {text}"))
}
