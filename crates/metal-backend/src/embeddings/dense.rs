//! Projections of vectors behind the pooling.

use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::ModelFiles;

/// A projection of vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dense {
    pub place: DensePlace,
    pub input: i32,
    pub output: i32,
    pub bias: bool,
    pub activation: DenseActivation,
}

/// The place of a projection's weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DensePlace {
    /// In a folder of its own.
    Folder(PathBuf),
    /// Among the model's weights, under this name.
    Weights(String),
}

/// The activation behind a projection of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DenseActivation {
    Identity,
    Tanh,
}

impl Dense {
    /// Reads the config in the folder of a projection.
    ///
    /// # Errors
    /// A config that is missing or not known.
    pub fn read(folder: PathBuf) -> Result<Dense> {
        let config = config_in(&folder)?;
        let path = folder.join("config.json");
        let read = || -> Result<Dense> {
            let activation = config.opt_text("activation_function")?.unwrap_or("torch.nn.Tanh");
            let activation = match activation.rsplit('.').next() {
                Some("Identity") => DenseActivation::Identity,
                Some("Tanh") => DenseActivation::Tanh,
                _ => {
                    let reason = format!("`activation_function` is `{activation}`");
                    return Err(Error::model(format!("{reason}; Identity, Tanh work")));
                }
            };
            if config.opt_flag("use_residual")? == Some(true) {
                return Err(Error::model("`use_residual` is true; false works"));
            }
            for key in ["module_input_name", "module_output_name"] {
                let name = config.opt_text(key)?;
                if let Some(name) = name.filter(|name| *name != "sentence_embedding") {
                    let reason = format!("`{key}` is `{name}`; sentence_embedding works");
                    return Err(Error::model(reason));
                }
            }
            Ok(Dense {
                place: DensePlace::Folder(folder.clone()),
                input: config.size("in_features")?,
                output: config.size("out_features")?,
                bias: config.opt_flag("bias")?.unwrap_or(true),
                activation,
            })
        };
        read().map_err(|error| error.at(&path))
    }
}

/// The `config.json` of a module.
///
/// # Errors
/// One that is missing or no JSON object.
pub(super) fn config_in(folder: &Path) -> Result<Config> {
    const NAME: &str = "config.json";
    let files = ModelFiles::Folder(folder.to_owned());
    let text = files.required_text(NAME)?;
    Config::parse(NAME, &text).map_err(|error| error.at(&files.path(NAME)))
}
