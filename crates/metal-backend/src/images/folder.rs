//! A pipeline's folder in diffusers' layout: `model_index.json` and a folder for each component.

use std::path::{Path, PathBuf};

use inference_core::ImageLoadOptions;
use mlx_ffi::Dtype;

use super::edit::Style;
use crate::config::Config;
use crate::error::{Error, Result, load};
use crate::files::ModelFiles;
use crate::kernels::Kernels;
use crate::load::mlx_dtype;
use crate::weights::{Checkpoint, Weights};

const INDEX: &str = "model_index.json";

/// The pipelines that can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ZImage,
    Qwen(Style),
}

/// The pipelines by their `_class_name`.
const KINDS: [(&str, Kind); 4] = [
    ("ZImagePipeline", Kind::ZImage),
    ("QwenImagePipeline", Kind::Qwen(Style::Plain)),
    ("QwenImageEditPipeline", Kind::Qwen(Style::Edit)),
    ("QwenImageEditPlusPipeline", Kind::Qwen(Style::EditPlus)),
];

/// A pipeline's folder.
#[derive(Clone, Debug)]
pub(super) struct PipelineFolder {
    path: PathBuf,
    index: Config,
    pub kind: Kind,
}

/// One component with its config and the headers of its weights.
pub(super) struct Component {
    files: ModelFiles,
    pub config: Config,
    checkpoint: Checkpoint,
}

/// How weights are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub kernels: Kernels,
    /// The type of all weights, where one is asked for.
    pub dtype: Option<Dtype>,
    /// The bits that matrices are packed to.
    pub bits: Option<i32>,
}

impl Reading {
    pub fn of(options: &ImageLoadOptions, kernels: Kernels) -> Reading {
        let bits = options.quantize.map(|bits| bits as i32);
        Reading { kernels, dtype: options.dtype.map(mlx_dtype), bits }
    }
}

impl PipelineFolder {
    /// Reads the index.
    ///
    /// # Errors
    /// No folder or no index; a pipeline that is not known.
    pub fn open(path: &Path) -> Result<PipelineFolder> {
        let files = ModelFiles::Folder(path.to_owned());
        let text = files.required_text(INDEX)?;
        let at = |error: Error| error.at(path);
        let index = Config::parse(INDEX, &text).map_err(at)?;
        let class = index.opt_text("_class_name").map_err(at)?.unwrap_or_default().to_owned();
        let known = KINDS.iter().find(|(name, _)| *name == class);
        let kind = known.map(|(_, kind)| *kind).ok_or_else(|| {
            let names = KINDS.map(|(name, _)| name).join(", ");
            load(&path.join(INDEX), format!("the pipeline is `{class}`; {names} work"))
        })?;
        Ok(PipelineFolder { path: path.to_owned(), index, kind })
    }

    /// The pipeline's name.
    pub fn class(&self) -> String {
        self.index.opt_text("_class_name").ok().flatten().unwrap_or_default().to_owned()
    }

    /// The class of a component, in diffusers or transformers.
    pub fn class_of(&self, component: &str) -> String {
        let pair = self.index.opt_texts(component).ok().flatten();
        pair.and_then(|pair| pair.get(1).map(|class| (*class).to_owned())).unwrap_or_default()
    }

    /// The files of a component.
    pub fn files(&self, component: &str) -> ModelFiles {
        ModelFiles::Folder(self.path.join(component))
    }

    /// A component's config, `name` in its folder.
    ///
    /// # Errors
    /// A file that is missing or no JSON object.
    pub fn config(&self, component: &str, name: &str) -> Result<Config> {
        let files = self.files(component);
        let text = files.required_text(name)?;
        Config::parse(name, &text).map_err(|error| error.at(&files.folder()))
    }

    /// A component with weights, whose class is `class`.
    ///
    /// # Errors
    /// Another class; what is wrong with its files.
    pub fn component(&self, name: &str, classes: &[&str]) -> Result<Component> {
        let class = self.class_of(name);
        if !classes.contains(&class.as_str()) {
            let known = classes.join(", ");
            let reason = format!("`{name}` is `{class}`; {known} work with {}", self.class());
            return Err(load(&self.path.join(INDEX), reason));
        }
        let files = self.files(name);
        let config = self.config(name, "config.json")?;
        let checkpoint = Checkpoint::open(&files)?;
        Ok(Component { files, config, checkpoint })
    }
}

impl Component {
    /// The component with tensors of other names.
    pub fn renamed(self, rename: impl Fn(String) -> String) -> Component {
        Component { checkpoint: self.checkpoint.renamed(rename), ..self }
    }

    /// Builds what `build` makes of the weights. Given empty stand-ins for `Some`, what it says of sizes is
    /// right, and nothing is read.
    ///
    /// # Errors
    /// What does not fit, with the folder.
    pub fn build<T>(
        &self,
        reading: Reading,
        only_describe: bool,
        build: impl FnOnce(&Config, &Weights) -> Result<T>,
    ) -> Result<(T, Loaded)> {
        let Reading { kernels, dtype, bits } = reading;
        let weights = Weights::of(&self.checkpoint, &self.config, dtype, kernels, only_describe);
        let weights = weights.packed_to(bits);
        let at = |error: Error| error.at(&self.files.folder());
        let made = build(&self.config, &weights).map_err(at)?;
        let totals = weights.finish().map_err(at)?;
        Ok((made, Loaded { parameters: totals.parameters, bytes: totals.bytes }))
    }
}

/// What the weights of a component add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Loaded {
    pub parameters: u64,
    pub bytes: u64,
}
