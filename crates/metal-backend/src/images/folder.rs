//! A pipeline's folder, with a folder for each component: in diffusers' layout, with a
//! `model_index.json`, or as mflux saves it.

use std::path::{Path, PathBuf};

use inference_core::ImageLoadOptions;
use mlx_ffi::Dtype;

use super::kind::{KINDS, Kind};
use super::mflux::Saved;
use crate::config::Config;
use crate::error::{Error, Result, load};
use crate::files::ModelFiles;
use crate::kernels::Kernels;
use crate::load::mlx_dtype;
use crate::weights::{Checkpoint, Weights};

const INDEX: &str = "model_index.json";

/// A pipeline's folder.
#[derive(Clone, Debug)]
pub(super) struct PipelineFolder {
    path: PathBuf,
    layout: Layout,
    pub kind: Kind,
}

/// Who laid a folder out.
#[derive(Clone, Debug)]
enum Layout {
    /// Its `model_index.json`.
    Diffusers(Config),
    Mflux(Saved),
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
    /// Reads the index, or what tells a folder of mflux's.
    ///
    /// # Errors
    /// No folder or no index; a pipeline that is not known.
    pub fn open(path: &Path) -> Result<PipelineFolder> {
        let files = ModelFiles::Folder(path.to_owned());
        if !files.exists(INDEX)
            && let Some(saved) = Saved::open(path)?
        {
            let kind = saved.kind;
            return Ok(PipelineFolder {
                path: path.to_owned(),
                layout: Layout::Mflux(saved),
                kind,
            });
        }
        let text = files.required_text(INDEX)?;
        let at = |error: Error| error.at(path);
        let index = Config::parse(INDEX, &text).map_err(at)?;
        let class = index.opt_text("_class_name").map_err(at)?.unwrap_or_default().to_owned();
        let known = KINDS.iter().find(|(name, _)| *name == class);
        let kind = known.map(|(_, kind)| *kind).ok_or_else(|| {
            let names = KINDS.map(|(name, _)| name).join(", ");
            load(&path.join(INDEX), format!("the pipeline is `{class}`; {names} work"))
        })?;
        Ok(PipelineFolder { path: path.to_owned(), layout: Layout::Diffusers(index), kind })
    }

    /// The pipeline's name.
    pub fn class(&self) -> String {
        self.kind.class().to_owned()
    }

    /// The bits that mflux packed it to.
    pub fn bits(&self) -> Option<usize> {
        match &self.layout {
            Layout::Diffusers(_) => None,
            Layout::Mflux(saved) => saved.bits,
        }
    }

    /// The class of a component, in diffusers or transformers.
    pub fn class_of(&self, component: &str) -> String {
        let index = match &self.layout {
            Layout::Diffusers(index) => index,
            Layout::Mflux(saved) => return saved.class_of(component).to_owned(),
        };
        let pair = index.opt_texts(component).ok().flatten();
        pair.and_then(|pair| pair.get(1).map(|class| (*class).to_owned())).unwrap_or_default()
    }

    /// The files of a component.
    pub fn files(&self, component: &str) -> ModelFiles {
        ModelFiles::Folder(self.path.join(component))
    }

    /// Returns true when [`config`](Self::config) has one to read.
    pub fn has_config(&self, component: &str, name: &str) -> bool {
        let is_released =
            matches!(&self.layout, Layout::Mflux(saved) if saved.config(component).is_ok());
        is_released || self.files(component).exists(name)
    }

    /// A component's config, `name` in its folder; in a folder of mflux's that of the release where
    /// there is none.
    ///
    /// # Errors
    /// A file that is missing or no JSON object.
    pub fn config(&self, component: &str, name: &str) -> Result<Config> {
        let files = self.files(component);
        let at = |error: Error| error.at(&files.folder());
        let text = match &self.layout {
            Layout::Mflux(saved) if !files.exists(name) => {
                saved.config(component).map_err(at)?.to_owned()
            }
            _ => files.required_text(name)?,
        };
        Config::parse(name, &text).map_err(at)
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
        let checkpoint = match &self.layout {
            Layout::Diffusers(_) => checkpoint,
            Layout::Mflux(saved) => {
                checkpoint.named(|tensor, header| saved.named(name, tensor, header))
            }
        };
        Ok(Component { files, config, checkpoint })
    }
}

impl Component {
    /// The component with tensors of other names.
    pub fn renamed(self, rename: impl Fn(String) -> String) -> Component {
        Component { checkpoint: self.checkpoint.renamed(rename), ..self }
    }

    /// Calls `build` with the weights. With `only_describe`, these are empty placeholders: sizes
    /// are right, and nothing is read.
    ///
    /// # Errors
    /// A key or a tensor that is missing or does not fit, with the folder.
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

/// The totals of a component's weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Loaded {
    pub parameters: u64,
    pub bytes: u64,
}
