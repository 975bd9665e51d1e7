//! Parts of the engine by themselves, for measurements: the feature `parts`. Programs use models
//! through `inference-core`; nothing here is kept for them.

use std::path::Path;

use inference_core::{GenerateOptions, LoadOptions, Result};
use mlx_ffi::{Array, Device, Indices, eval_all, use_device};

use crate::cache::{Caches, StateSpec, Storage};
use crate::error::Error;
use crate::files::ModelFiles;
use crate::kernels::{Bf16, Kernels, Settings};
use crate::layers::{Decoder, StepCapture};
use crate::load;
use crate::load::EngineOptions;
use crate::sampling::Sampler;
use crate::weights::Checkpoint;

/// A model without its engine, on the thread that loaded it.
pub struct Model {
    decoder: Decoder,
    specs: Vec<StateSpec>,
    storage: Storage,
}

/// One row's keys and values, with the id that comes next.
pub struct Context {
    caches: Caches,
    capture: StepCapture,
    next: Indices,
}

impl Model {
    /// Loads the checkpoint in `folder` for the CPU, on this thread.
    ///
    /// # Errors
    /// Faults of the files.
    pub fn load(folder: &Path) -> Result<Model> {
        let read = || -> Result<Model, Error> {
            use_device(Device::Cpu)?;
            let files = ModelFiles::Folder(folder.to_owned());
            let checkpoint = Checkpoint::open(&files)?;
            let (config, load) = (load::config(&files)?, LoadOptions::default());
            let settings = Settings::from_environment()?;
            settings.apply()?;
            let (device, kernels) = (Device::Cpu, Kernels::choose(Device::Cpu, &settings)?);
            let options = EngineOptions {
                files,
                config,
                device,
                kernels,
                bf16: Bf16::Itself,
                load,
                drafting: None,
            };
            let loaded = load::load(&options, &checkpoint, None)?;
            Ok(Model { decoder: loaded.model, specs: loaded.specs, storage: loaded.storage })
        };
        read().map_err(Into::into)
    }

    /// Entries of the vocabulary.
    pub fn vocab_size(&self) -> i32 {
        self.decoder.vocab_size
    }

    /// The embeddings and the first layer for `count` ids with nothing before them.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn layer(&self, count: usize) -> Result<()> {
        let mut caches = self.caches(count);
        let mut layer = || -> Result<(), Error> {
            let mut pass = self.decoder.begin(&self.ids(count)?, &caches)?;
            self.decoder.advance(&mut pass, &mut caches, 1)?;
            Ok(pass.h().eval()?)
        };
        layer().map_err(Into::into)
    }

    /// A chunk of `count` ids of a prompt, all layers, with nothing before them. The context has
    /// room for as many again.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn prefill(&self, count: usize) -> Result<Context> {
        let mut caches = self.caches(2 * count);
        let chunk = || -> Result<Context, Error> {
            let mut capture = StepCapture::default();
            self.decoder.hidden(&self.ids(count)?, &mut caches, &mut capture)?;
            eval_all(caches.arrays())?;
            Ok(Context { caches, capture, next: self.ids(1)? })
        };
        chunk().map_err(Into::into)
    }

    /// One more position and its most likely next id, waited for.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn step(&self, context: &mut Context) -> Result<()> {
        let mut step = || -> Result<(), Error> {
            let Context { caches, capture, next } = context;
            let hidden = self.decoder.hidden(next, caches, capture)?;
            let logits = self.decoder.logits(&hidden)?;
            context.next = mlx_ffi::ops::argmax(&logits, -1, false)?;
            Ok(context.next.eval()?)
        };
        step().map_err(Into::into)
    }

    fn caches(&self, total: usize) -> Caches {
        Caches::new(&self.specs, self.storage, 1, total)
    }

    /// `[1, count]` ids of the vocabulary.
    fn ids(&self, count: usize) -> mlx_ffi::Result<Indices> {
        let ids: Vec<u32> =
            (0..count as u32).map(|at| at % self.decoder.vocab_size as u32).collect();
        Indices::from_u32(&ids, &[1, count as i32])
    }
}

/// The draws of one row.
pub struct Draws(Sampler);

impl Draws {
    /// Draws by `options` after a prompt of `prompt`, from a vocabulary of `vocab_size`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn new(options: GenerateOptions, prompt: &[u32], vocab_size: i32) -> Result<Draws> {
        let sampler = Sampler::new(options, 0, prompt, &[], vocab_size).map_err(Error::from)?;
        Ok(Draws(sampler))
    }

    /// The next id from `logits`, `[1, vocab_size]`, waited for.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn next(&mut self, logits: &Array) -> Result<u32> {
        let mut draw = || -> Result<u32, Error> {
            let id = self.0.draw(logits)?.id.to_vec_u32()?[0];
            self.0.observe(id);
            Ok(id)
        };
        draw().map_err(Into::into)
    }
}
