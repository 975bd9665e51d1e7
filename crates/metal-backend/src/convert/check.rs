//! Checks that the result of a conversion will load, before the first weight is read.

use mlx_ffi::Dtype;

use super::written::Planned;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::ModelFiles;
use crate::kernels::Kernels;
use crate::models;
use crate::weights::{Checkpoint, TensorHeader, Weights};

/// Projections behind the pooling of a model that embeds texts, which are none of its network's
/// tensors.
const DENSE: &str = "dense.";

/// Builds the model that `text`, the new `config.json`, describes of empty stand-ins for `tensors`.
///
/// # Errors
/// A tensor that the model lacks, has too much or in another form; a key of the config, by name.
pub(super) fn loads(files: &ModelFiles, text: &str, tensors: &[Planned]) -> Result<()> {
    let config = Config::parse("config.json", text)?;
    let name = config.opt_text("model_type")?.unwrap_or_default();
    let encodes = files.exists("modules.json") || models::encoder_named(name).is_some();
    let is_own = |tensor: &&Planned| !(encodes && tensor.name.starts_with(DENSE));
    let header =
        |tensor: &Planned| (tensor.name.clone(), TensorHeader::of(&tensor.shape, tensor.dtype));
    let checkpoint = Checkpoint {
        files: files.clone(),
        headers: tensors.iter().filter(is_own).map(header).collect(),
        is_unwanted: Default::default(),
    };
    let built = || -> Result<()> {
        if !encodes {
            let weights = Weights::of(&checkpoint, &config, None::<Dtype>, Kernels::Mlx, true);
            models::load(&config, &weights)?;
            return weights.finish().map(drop);
        }
        // One whose output layer is not saved has none.
        let config = match checkpoint.headers.contains_key("lm_head.weight") {
            true => config.clone(),
            false => config.with_flag("tie_word_embeddings", true),
        };
        let weights = Weights::of(&checkpoint, &config, None, Kernels::Mlx, true);
        models::load_encoder(&config, &weights)?;
        weights.finish().map(drop)
    };
    built().map_err(|error| match error {
        Error::Model(reason) => Error::model(format!("the result would not load: {reason}")),
        other => other,
    })
}
