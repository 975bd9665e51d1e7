//! Where models come from: folders, the binary itself.

use std::path::PathBuf;

use inference_core::{Capabilities, LoadOptions, ModelInfo, TextModel};

use crate::args::LoadArgs;
use crate::demo;
use crate::failure::Result;
use crate::output::Spinner;

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
