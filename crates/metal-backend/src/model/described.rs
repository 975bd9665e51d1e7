//! A model described without its weights.

use inference_core::{Capabilities, Error, Feature, ModelInfo, Result};

use super::honoured::{capabilities, refused_by_ranks};
use super::{BLIND, DEAF, MlxModel, Text, model_type};
use crate::load::{self, Description, EngineOptions, SamplingDefaults};
use crate::weights::Checkpoint;

/// The description of a model without a weight read, and what ranks refuse.
fn read_headers(options: &EngineOptions) -> Result<Description> {
    let checkpoint = Checkpoint::open(&options.files)?;
    let mut description = load::describe(options, &checkpoint, None)?.description;
    description.refused.extend(refused_by_ranks(&options.load));
    Ok(description)
}

impl MlxModel {
    /// Describes a model without loading its weights.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn describe(options: &EngineOptions) -> Result<(ModelInfo, Capabilities)> {
        capabilities(options.kernels, &refused_by_ranks(&options.load))
            .check_load(&options.load)?;
        let text = Text::read(&options.files, model_type(options)?).map_err(Error::from)?;
        options.drafting.iter().try_for_each(|drafting| text.check_drafting(&drafting.files))?;
        SamplingDefaults::read(&options.files)?;
        let description = read_headers(options)?;
        let shown = text.shown(&description, &options.config, &options.files);
        Ok(text.complete(description, options.kernels, &shown))
    }

    /// Describes a model by its config and the headers of its weights, without its texts.
    ///
    /// # Errors
    /// As [`describe`](Self::describe), but for what is wrong with the texts.
    pub fn outline(options: &EngineOptions) -> Result<(ModelInfo, Capabilities)> {
        capabilities(options.kernels, &refused_by_ranks(&options.load))
            .check_load(&options.load)?;
        let Description { info, mut refused, sees, hears, .. } = read_headers(options)?;
        refused.extend((!sees).then(|| (Feature::Images, BLIND.to_owned())));
        refused.extend((!hears).then(|| (Feature::Audio, DEAF.to_owned())));
        Ok((info, capabilities(options.kernels, &refused)))
    }
}
