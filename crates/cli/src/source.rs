//! Sources of models: folders, the hub's cache, the binary itself.

use std::path::{Path, PathBuf};

use hub::Name;
use inference_core::{Capabilities, LoadOptions, ModelInfo, ModelKind, TextModel, model_kind};

use crate::args::LoadArgs;
use crate::demo;
use crate::failure::Result;
use crate::names;
use crate::output::{Spinner, note};

/// A model to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The demo model in the binary.
    Embedded,
    /// A folder.
    Folder(PathBuf),
    /// A model in the hub's cache.
    Pulled {
        /// The name by which it was asked for.
        name: Name,
        /// Its path in the cache.
        folder: PathBuf,
    },
}

impl Source {
    /// The model that `--model` names, else `ML_MODEL`, else the embedded one.
    ///
    /// # Errors
    /// A name that is neither a folder nor in the hub's cache.
    pub fn choose(args: &LoadArgs) -> Result<Self> {
        Source::of(args.model.as_deref())
    }

    /// The model that `given` names, else `ML_MODEL`, else the embedded one.
    ///
    /// # Errors
    /// As [`choose`](Self::choose).
    pub fn of(given: Option<&Path>) -> Result<Self> {
        let from_env = || std::env::var_os("ML_MODEL").filter(|value| !value.is_empty());
        match given.map(Path::to_owned).or_else(|| from_env().map(PathBuf::from)) {
            Some(model) => Ok(match names::pulled(&model)? {
                Some((name, folder)) => Source::Pulled { name, folder },
                None => Source::Folder(model),
            }),
            None => Ok(Source::Embedded),
        }
    }

    /// Its folder, where that is an image model's.
    pub fn image_folder(&self) -> Option<&Path> {
        let (Source::Folder(folder) | Source::Pulled { folder, .. }) = self else { return None };
        (model_kind(folder) == Some(ModelKind::Image)).then_some(folder)
    }

    /// Its folder, where that is an embedding model's or a reranker's.
    pub fn embedding_folder(&self) -> Option<&Path> {
        let (Source::Folder(folder) | Source::Pulled { folder, .. }) = self else { return None };
        metal_backend::is_embedding_model(folder).then_some(folder)
    }

    /// Its folder, where that is of a model that transcribes speech.
    pub fn transcription_folder(&self) -> Option<&Path> {
        let (Source::Folder(folder) | Source::Pulled { folder, .. }) = self else { return None };
        metal_backend::is_transcription_model(folder).then_some(folder)
    }

    /// Its folder, where that is of a model that speaks.
    pub fn speech_folder(&self) -> Option<&Path> {
        let (Source::Folder(folder) | Source::Pulled { folder, .. }) = self else { return None };
        metal_backend::is_speech_model(folder).then_some(folder)
    }

    /// How reports call it.
    pub fn name(&self) -> String {
        match self {
            Source::Embedded => demo::NAME.to_owned(),
            Source::Folder(path) => path.display().to_string(),
            Source::Pulled { name, .. } => name.to_string(),
        }
    }

    /// Its name for clients: that on the hub, or the folder's own, so that they need not know where
    /// it is.
    pub fn served_name(&self) -> String {
        match self {
            Source::Embedded => "demo".to_owned(),
            Source::Folder(path) => {
                let path = path.canonicalize().unwrap_or_else(|_| path.clone());
                path.file_name()
                    .map_or_else(|| "model".into(), |name| name.to_string_lossy().into())
            }
            Source::Pulled { name, .. } => name.to_string(),
        }
    }

    /// Loads it; `quiet` shows no progress. Who looks at `options.progress` is told of it as well.
    ///
    /// # Errors
    /// The backend's.
    pub fn load(&self, options: &LoadOptions, quiet: bool) -> Result<Box<dyn TextModel>> {
        match self {
            // There before a spinner could turn once.
            Source::Embedded => Ok(metal_backend::load_embedded(demo::FILES, options)?),
            Source::Folder(folder) | Source::Pulled { folder, .. } => {
                metal_backend::register()?;
                let progress = options.progress.clone().unwrap_or_default();
                let text = format!("loading {}", self.name());
                let _spinner = (!quiet).then(|| Spinner::of_load(text, progress.clone()));
                let options = LoadOptions { progress: Some(progress), ..options.clone() };
                Ok(inference_core::load_model(folder, &options)?)
            }
        }
    }

    /// Describes it without loading its weights, or reading its vocabulary where that takes long.
    ///
    /// # Errors
    /// The backend's.
    pub fn outline(&self, options: &LoadOptions) -> Result<(ModelInfo, Capabilities)> {
        match self {
            Source::Embedded => self.describe(options),
            Source::Folder(folder) | Source::Pulled { folder, .. } => {
                Ok(metal_backend::outline(folder, options)?)
            }
        }
    }

    /// Describes it without loading its weights.
    ///
    /// # Errors
    /// The backend's.
    pub fn describe(&self, options: &LoadOptions) -> Result<(ModelInfo, Capabilities)> {
        Ok(match self {
            Source::Embedded => metal_backend::describe_embedded(demo::FILES, options)?,
            Source::Folder(folder) | Source::Pulled { folder, .. } => {
                metal_backend::describe(folder, options)?
            }
        })
    }
}

/// Says what `model` tells its users.
pub fn tell_notices(model: &dyn TextModel) {
    model.notices().into_iter().for_each(note);
}
