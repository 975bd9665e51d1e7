//! An embedding model's checkpoint: its config, the names of its tensors, and what is built of
//! them.

use std::path::Path;

use inference_core::EmbeddingLoadOptions;
use mlx_ffi::{Device, Dtype};

use super::dense::{Dense, DensePlace};
use super::mlx_embeddings;
use super::network::{Network, Projection};
use super::recipe::Recipe;
use crate::config::Config;
use crate::error::{Error, Result, load as load_error};
use crate::files::ModelFiles;
use crate::kernels::Kernels;
use crate::layers::TextEncoder;
use crate::load::mlx_dtype;
use crate::models;
use crate::weights::{Checkpoint, Totals, Weights};

/// The opened files of a model: configs and headers, from which it can be built.
pub(super) struct Opened {
    pub recipe: Recipe,
    pub config: Config,
    pub device: Device,
    pub kernels: Kernels,
    pub dtype: Option<Dtype>,
    checkpoint: Checkpoint,
    /// The projections that lie among its weights.
    dense: Checkpoint,
}

impl Opened {
    /// Reads configs and headers.
    ///
    /// # Errors
    /// A file that is missing or damaged.
    pub fn new(
        recipe: Recipe,
        options: &EmbeddingLoadOptions,
        device: Device,
        kernels: Kernels,
    ) -> Result<Opened> {
        let files = &recipe.files;
        let config = Config::parse("config.json", &files.required_text("config.json")?);
        let config = config.map_err(|error| error.at(&files.folder()))?;
        let [checkpoint, dense] = mlx_embeddings::apart(files, recipe.has_own_dense())?;
        let is_decoder = models::ARCHITECTURES
            .contains(&config.opt_text("model_type").ok().flatten().unwrap_or_default());
        let has_prefix = checkpoint.headers.keys().any(|name| name.starts_with("model."));
        // Saved without what stands around it in a model that generates.
        let checkpoint = match is_decoder && !has_prefix {
            true => checkpoint.renamed(|name| format!("model.{name}")),
            false => checkpoint,
        };
        let has_head = checkpoint.headers.contains_key("lm_head.weight");
        let config = match is_decoder && !has_head {
            true => config.with_flag("tie_word_embeddings", true),
            false => config,
        };
        let dtype = options.dtype.map(mlx_dtype);
        Ok(Opened { recipe, config, device, kernels, dtype, checkpoint, dense })
    }

    /// Builds the model on this thread. With `only_describe`, of empty placeholders.
    ///
    /// # Errors
    /// A key or a tensor that is missing or does not fit, with the file or the folder.
    pub fn build(&self, only_describe: bool) -> Result<(Network, Totals)> {
        let at_folder = |error: Error| error.at(&self.recipe.files.folder());
        let Opened { config, kernels, dtype, checkpoint, .. } = self;
        let weights = Weights::of(checkpoint, config, *dtype, *kernels, only_describe);
        let (encoder, head) = models::load_encoder(config, &weights).map_err(at_folder)?;
        let mut totals = weights.finish().map_err(at_folder)?;
        let [hidden_size, _] = encoder.widths();
        self.recipe.dimensions(hidden_size)?;
        let mut dense = Vec::new();
        for module in &self.recipe.dense {
            if let DensePlace::Folder(folder) = &module.place {
                let (projection, of_module) = self.projection(module, folder, only_describe)?;
                totals.parameters += of_module.parameters;
                totals.bytes += of_module.bytes;
                dense.push(projection);
            }
        }
        let own = Weights::of(&self.dense, config, Some(Dtype::F32), *kernels, only_describe);
        for module in &self.recipe.dense {
            if let DensePlace::Weights(name) = &module.place {
                let linear = own.linear(name, module.input, module.output, module.bias);
                let linear = linear.map_err(at_folder)?;
                dense.push(Projection { linear, activation: module.activation });
            }
        }
        let of_own = own.finish().map_err(at_folder)?;
        totals.parameters += of_own.parameters;
        totals.bytes += of_own.bytes;
        let score_ids = match &encoder {
            TextEncoder::Decoder(_) if head.is_none() => self.recipe.score_ids,
            _ => None,
        };
        let include_prompt = self.recipe.include_prompt;
        let device = self.device;
        Ok((Network { encoder, dense, head, score_ids, include_prompt, device }, totals))
    }

    /// A projection behind the pooling, in F32, as vectors are.
    fn projection(
        &self,
        dense: &Dense,
        folder: &Path,
        only_describe: bool,
    ) -> Result<(Projection, Totals)> {
        let files = ModelFiles::Folder(folder.to_owned());
        let at_folder = |error: Error| error.at(folder);
        let checkpoint = Checkpoint::open(&files)?;
        let config = Config::parse("config.json", "{}")?;
        let dtype = Some(Dtype::F32);
        let weights = Weights::of(&checkpoint, &config, dtype, self.kernels, only_describe);
        let linear = weights.linear("linear", dense.input, dense.output, dense.bias);
        let linear = linear.map_err(at_folder)?;
        let totals = weights.finish().map_err(at_folder)?;
        Ok((Projection { linear, activation: dense.activation }, totals))
    }

    /// Checks that vectors or scores can be made.
    ///
    /// # Errors
    /// A model whose files do not say how.
    pub fn check(&self, network: &Network, options: &EmbeddingLoadOptions) -> Result<()> {
        let is_known = options.pooling.or(self.recipe.pooling).is_some();
        if is_known || network.scores() {
            return Ok(());
        }
        let lack = match self.recipe.has_modules {
            true => "modules.json names no module Pooling",
            false => "the folder has no modules.json",
        };
        let reason = format!(
            "{lack}, which says how the states of tokens become the vector of a text: fetch the whole repository, or name the pooling (`ml embed --pooling mean`, cls or last)"
        );
        Err(load_error(&self.recipe.files.folder(), reason))
    }
}
