//! The backends that this crate registers: one for each device that MLX computes on.

mod speech;

pub use speech::{
    describe_speech_model, describe_transcription_model, is_speech_model, is_transcription_model,
};

use std::path::Path;
use std::sync::Arc;

use inference_core::{
    Backend, CancelToken, Capabilities, EmbeddingLoadOptions, EmbeddingModel, EmbeddingModelInfo,
    Error, ImageLoadOptions, ImageModel, ImageModelInfo, LoadOptions, ModelInfo, Preference,
    Result, SpeechLoadOptions, SpeechModel, TextModel, TranscriptionLoadOptions,
    TranscriptionModel, register as add,
};
use mlx_ffi::cpu::Level;
use mlx_ffi::{Device, memory};

use crate::config::Config;
use crate::convert::{self, QuantiseOptions, Quantised};
#[cfg(feature = "embeddings")]
use crate::embeddings::MlxEmbeddingModel;
use crate::engine::default_slots;
use crate::files::ModelFiles;
use crate::gguf::Groups;
#[cfg(feature = "images")]
use crate::images::MlxImageModel;
use crate::kernels::{Bf16, Kernels, Settings};
use crate::load::{Drafting, EngineOptions};
use crate::model::MlxModel;
#[cfg(feature = "speech")]
use crate::speech::{KokoroModel, MlxTranscriptionModel, ParakeetModel, is_parakeet};
use crate::{load, models};

/// Files that lie in the program, as (name, bytes).
pub type EmbeddedFiles = &'static [(&'static str, &'static [u8])];

/// The backends' names, with the device of each.
const BACKENDS: [(&str, Device); 3] =
    [("metal", Device::Gpu), ("cuda", Device::Gpu), ("cpu", Device::Cpu)];

/// MLX on one kind of device.
struct MlxBackend {
    name: &'static str,
    device: Device,
}

impl MlxBackend {
    /// Refuses options that name another backend.
    fn check_name(&self, wanted: Option<&str>) -> Result<()> {
        match wanted.filter(|other| *other != self.name) {
            None => Ok(()),
            Some(other) => {
                let reason = format!("names `{other}`, and this is `{}`", self.name);
                Err(Error::InvalidOption { option: "backend", reason })
            }
        }
    }
}

impl Backend for MlxBackend {
    fn name(&self) -> &str {
        self.name
    }

    fn preference(&self) -> Preference {
        match self.device {
            Device::Gpu => Preference::Accelerator,
            Device::Cpu => Preference::Cpu,
        }
    }

    fn available(&self) -> Result<(), String> {
        let found = self.device.is_available().map_err(|error| error.to_string())?;
        if !found {
            return Err(match self.name {
                "metal" => "this build of MLX has no Metal device".into(),
                _ => "MLX finds no CUDA device; it needs the CUDA build of MLX and a GPU".into(),
            });
        }
        let info = self.device.info().map_err(|error| error.to_string())?;
        if info.backend == self.name {
            Ok(())
        } else {
            Err(format!("the GPU here is used through {}", info.backend))
        }
    }

    fn load_model(&self, path: &Path, options: &LoadOptions) -> Result<Box<dyn TextModel>> {
        self.check_name(options.backend.as_deref())?;
        let files = open(path, self.device, options)?;
        Ok(Box::new(MlxModel::load(engine_options(files, self.device, options)?)?))
    }

    #[cfg(feature = "images")]
    fn load_image_model(
        &self,
        path: &Path,
        options: &ImageLoadOptions,
    ) -> Result<Box<dyn ImageModel>> {
        self.check_name(options.backend.as_deref())?;
        options.validate()?;
        let kernels = kernels(self.device)?;
        Ok(Box::new(MlxImageModel::load(path, options, self.device, kernels)?))
    }

    #[cfg(feature = "embeddings")]
    fn load_embedding_model(
        &self,
        path: &Path,
        options: &EmbeddingLoadOptions,
    ) -> Result<Box<dyn EmbeddingModel>> {
        self.check_name(options.backend.as_deref())?;
        options.validate()?;
        let kernels = kernels(self.device)?;
        Ok(Box::new(MlxEmbeddingModel::load(path, options, self.device, kernels)?))
    }

    #[cfg(feature = "speech")]
    fn load_transcription_model(
        &self,
        path: &Path,
        options: &TranscriptionLoadOptions,
    ) -> Result<Box<dyn TranscriptionModel>> {
        self.check_name(options.backend.as_deref())?;
        options.validate()?;
        let kernels = kernels(self.device)?;
        if is_parakeet(&model_type_of(path)) {
            return Ok(Box::new(ParakeetModel::load(path, options, self.device, kernels)?));
        }
        Ok(Box::new(MlxTranscriptionModel::load(path, options, self.device, kernels)?))
    }

    #[cfg(feature = "speech")]
    fn load_speech_model(
        &self,
        path: &Path,
        options: &SpeechLoadOptions,
    ) -> Result<Box<dyn SpeechModel>> {
        self.check_name(options.backend.as_deref())?;
        options.validate()?;
        Ok(Box::new(KokoroModel::load(path, options, self.device, kernels(self.device)?)?))
    }
}

/// The refusal of a kind of model that this build leaves out.
#[cfg(not(all(feature = "embeddings", feature = "images", feature = "speech")))]
fn left_out(feature: &str) -> Error {
    Error::Unsupported {
        what: format!("a model of the kind `{feature}`"),
        reason: format!("this program was built without the feature `{feature}`"),
    }
}

/// Whose kernels a model on `device` computes with.
fn kernels(device: Device) -> Result<Kernels> {
    let settings = Settings::from_environment()?;
    if device == Device::Cpu {
        settings.apply()?;
    }
    Ok(Kernels::choose(device, &settings)?)
}

/// The files of the model at `path`, for a model on `device`.
fn open(path: &Path, device: Device, options: &LoadOptions) -> Result<ModelFiles> {
    Ok(ModelFiles::open(path, groups(device)?, options.dtype.map(load::mlx_dtype))?)
}

/// The groups in which a file of GGUF is packed on `device`.
fn groups(device: Device) -> Result<Groups> {
    Ok(match kernels(device)?.is_ours_on_cpu() {
        true => Groups::OfSixteen,
        false => Groups::OfMlx,
    })
}

fn engine_options(
    files: ModelFiles,
    device: Device,
    options: &LoadOptions,
) -> Result<EngineOptions> {
    options.validate()?;
    let config = load::config(&files)?;
    let kernels = kernels(device)?.with_activations(options.cpu_activations);
    let drafting = options.draft_model.as_deref().map(|path| drafting(path, device, options));
    let (drafting, load) = (drafting.transpose()?, options.clone());
    let bf16 = Bf16::of(device, &load)?;
    Ok(EngineOptions { files, config, device, kernels, bf16, load, drafting })
}

/// The model at `path`, which drafts.
fn drafting(path: &Path, device: Device, options: &LoadOptions) -> Result<Drafting> {
    let files = open(path, device, options)?;
    let config = load::config(&files)?;
    Ok(Drafting { files, config })
}

/// The device of the backend of that name, else the best one.
fn device(name: Option<&str>) -> Result<Device> {
    let Some(name) = name else {
        return Device::best().map_err(|error| Error::Engine(error.to_string()));
    };
    let known = BACKENDS.iter().find(|(backend, _)| *backend == name);
    let (name, device) = *known.ok_or_else(|| Error::BackendNotRegistered {
        name: name.to_owned(),
        registered: BACKENDS.iter().map(|(name, _)| (*name).to_owned()).collect(),
    })?;
    MlxBackend { name, device }
        .available()
        .map_err(|reason| Error::BackendNotAvailable { name: name.to_owned(), reason })?;
    Ok(device)
}

/// Registers `metal`, `cuda` and `cpu` with the registry of `inference-core`. Calling it again
/// changes nothing.
///
/// # Errors
/// Another backend that has one of these names.
pub fn register() -> Result<()> {
    static REGISTERED: std::sync::OnceLock<Result<()>> = std::sync::OnceLock::new();
    let register = || {
        BACKENDS
            .into_iter()
            .try_for_each(|(name, device)| add(Arc::new(MlxBackend { name, device })))
    };
    REGISTERED.get_or_init(register).clone()
}

/// Loads a model that lies in the program itself.
///
/// # Errors
/// As [`Backend::load_model`].
pub fn load_embedded(files: EmbeddedFiles, options: &LoadOptions) -> Result<Box<dyn TextModel>> {
    let files = ModelFiles::Embedded(files);
    Ok(Box::new(MlxModel::load(engine_options(
        files,
        device(options.backend.as_deref())?,
        options,
    )?)?))
}

/// Loads a model of the architecture and the sizes that `config`, the text of a `config.json`,
/// gives, with random weights: for measurements. Its tokenizer knows one letter, so give it ids.
///
/// # Errors
/// As [`Backend::load_model`], for the config and the options.
pub fn load_random(config: &str, options: &LoadOptions) -> Result<Box<dyn TextModel>> {
    let files = ModelFiles::Random(config.into());
    Ok(Box::new(MlxModel::load(engine_options(
        files,
        device(options.backend.as_deref())?,
        options,
    )?)?))
}

/// Describes the model that [`load_random`] would load, before a weight is drawn.
///
/// # Errors
/// As [`load_random`].
pub fn describe_random(config: &str, options: &LoadOptions) -> Result<(ModelInfo, Capabilities)> {
    let files = ModelFiles::Random(config.into());
    MlxModel::describe(&engine_options(files, device(options.backend.as_deref())?, options)?)
}

/// Describes the model in a folder without loading its weights.
///
/// # Errors
/// As [`Backend::load_model`], but for what only the weights' values show.
pub fn describe(path: &Path, options: &LoadOptions) -> Result<(ModelInfo, Capabilities)> {
    let device = device(options.backend.as_deref())?;
    MlxModel::describe(&engine_options(open(path, device, options)?, device, options)?)
}

/// Describes the model in a folder by its config and the headers of its weights, which goes at
/// once: the vocabulary and the chat format are not read. Special tokens and the limits of pictures
/// are left out, and what only the vocabulary refuses counts as honoured.
///
/// # Errors
/// As [`describe`], but for what is wrong with those texts.
pub fn outline(path: &Path, options: &LoadOptions) -> Result<(ModelInfo, Capabilities)> {
    let device = device(options.backend.as_deref())?;
    let files = ModelFiles::outline(path, groups(device)?, options.dtype.map(load::mlx_dtype))?;
    MlxModel::outline(&engine_options(files, device, options)?)
}

/// Describes the image model in a folder without reading its weights.
///
/// # Errors
/// As [`Backend::load_image_model`].
#[cfg(feature = "images")]
pub fn describe_image_model(path: &Path, options: &ImageLoadOptions) -> Result<ImageModelInfo> {
    options.validate()?;
    let device = device(options.backend.as_deref())?;
    MlxImageModel::describe(path, options, device, kernels(device)?)
}

/// Refuses to describe a model of a kind that this build leaves out.
///
/// # Errors
/// Always, by the name of the feature.
#[cfg(not(feature = "images"))]
pub fn describe_image_model(_: &Path, _: &ImageLoadOptions) -> Result<ImageModelInfo> {
    Err(left_out("images"))
}

/// Quantises the checkpoint in the folder `source` into the new folder `target`, a tensor at a
/// time.
///
/// `progress` gets the bytes that were written and those of all tensors. The folder is there once
/// it is whole.
///
/// # Errors
/// A source that is no model; options that do not fit it; a target that exists; a full disk;
/// [`Error::Cancelled`].
pub fn quantise(
    source: &Path,
    target: &Path,
    options: &QuantiseOptions,
    cancel: &CancelToken,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Quantised> {
    let device = device(options.backend.as_deref())?;
    Ok(convert::quantise(source, target, options, device, cancel, progress)?)
}

/// Returns true when the folder at `path` holds a model that embeds or scores texts.
/// It has a list of sentence-transformers' modules, or its architecture only encodes texts.
pub fn is_embedding_model(path: &Path) -> bool {
    let files = ModelFiles::Folder(path.to_owned());
    let text = files.text("config.json").ok().flatten().unwrap_or_default();
    let config = Config::parse("config.json", &text).ok();
    let name = config.as_ref().and_then(|config| config.opt_text("model_type").ok().flatten());
    files.exists("modules.json") || name.and_then(models::encoder_named).is_some()
}

/// Describes the embedding model in a folder without reading its weights.
///
/// # Errors
/// As [`Backend::load_embedding_model`].
#[cfg(feature = "embeddings")]
pub fn describe_embedding_model(
    path: &Path,
    options: &EmbeddingLoadOptions,
) -> Result<EmbeddingModelInfo> {
    options.validate()?;
    let device = device(options.backend.as_deref())?;
    MlxEmbeddingModel::describe(path, options, device, kernels(device)?)
}

/// Refuses to describe a model of a kind that this build leaves out.
///
/// # Errors
/// Always, by the name of the feature.
#[cfg(not(feature = "embeddings"))]
pub fn describe_embedding_model(_: &Path, _: &EmbeddingLoadOptions) -> Result<EmbeddingModelInfo> {
    Err(left_out("embeddings"))
}

/// The architecture in the `config.json` of a folder; empty where it has none.
fn model_type_of(path: &Path) -> String {
    let files = ModelFiles::Folder(path.to_owned());
    let text = files.text("config.json").ok().flatten().unwrap_or_default();
    let config = Config::parse("config.json", &text).ok();
    let name = config.as_ref().and_then(|config| config.opt_text("model_type").ok().flatten());
    name.unwrap_or_default().to_owned()
}

/// [`describe`] for a model that lies in the program itself.
///
/// # Errors
/// As [`describe`].
pub fn describe_embedded(
    files: EmbeddedFiles,
    options: &LoadOptions,
) -> Result<(ModelInfo, Capabilities)> {
    MlxModel::describe(&engine_options(
        ModelFiles::Embedded(files),
        device(options.backend.as_deref())?,
        options,
    )?)
}

/// The architectures that can be loaded, sorted.
pub fn architectures() -> &'static [&'static str] {
    &models::ARCHITECTURES
}

/// Whose kernels a model on the CPU computes with, in words, and for which instructions. Where
/// `ML_CPU_KERNELS` names instructions, kernels in this process use them from now on.
pub fn cpu_kernels() -> &'static str {
    let chosen = Settings::from_environment().and_then(|settings| {
        settings.apply()?;
        Kernels::choose(Device::Cpu, &settings)
    });
    match chosen {
        Ok(Kernels::Cpu(_)) => match Level::current() {
            Level::Portable => "our own, for any processor",
            Level::Avx2 => "our own, for AVX2",
            Level::Avx512f => "our own, for AVX-512 without VBMI and BF16",
            Level::Avx512 => "our own, for AVX-512 with VBMI and BF16",
            Level::Amx => "our own, for AVX-512 with VBMI and BF16, and AMX",
        },
        Ok(_) => "MLX's",
        Err(_) => "none: see what ML_CPU_KERNELS says",
    }
}

/// Gives the memory of models that were dropped back to the system, as far as the C library keeps
/// some of it. It takes some milliseconds.
pub fn give_back() {
    memory::trim_heap();
}

/// The libraries, the device and the memory that the engine runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// The version of the MLX library that is loaded.
    pub mlx_version: String,
    /// The version of mlx-c that is linked.
    pub mlx_c_version: String,
    /// `metal`, `cuda` or `cpu`.
    pub device: String,
    /// Whose kernels a model on the CPU uses, see [`cpu_kernels`].
    pub cpu_kernels: &'static str,
    /// With which instructions a model on the CPU multiplies activations that are rounded
    /// ([`LoadOptions::cpu_activations`]).
    pub rounded_activations: &'static str,
    /// The device's own name.
    pub device_name: String,
    /// The architecture of its processor, where it tells.
    pub architecture: Option<String>,
    /// The type in which models of bf16 are computed where none is asked for: `bf16` or `f16`.
    pub type_for_bf16: &'static str,
    /// Requests that run together where the load options say nothing.
    pub parallel_slots: usize,
    /// Bytes that MLX tries to stay within.
    pub memory_limit_bytes: u64,
    /// Bytes that the device recommends to stay within, and that are wired at most while requests
    /// run; `None` where nothing is wired, as on anything but Metal.
    pub working_set_bytes: Option<u64>,
    /// Bytes that the device has; `None` where MLX does not know, as on a CPU.
    pub total_memory_bytes: Option<u64>,
    /// Bytes in use by arrays of this process.
    pub active_memory_bytes: u64,
}

/// Returns the libraries, the device and the memory that the engine runs on.
///
/// # Errors
/// Those of MLX.
pub fn system() -> Result<System> {
    let read = || -> mlx_ffi::Result<System> {
        let device = Device::best()?;
        let info = device.info()?;
        Ok(System {
            mlx_version: mlx_ffi::mlx_version()?,
            mlx_c_version: mlx_ffi::MLX_C_VERSION.to_owned(),
            device: info.backend.to_owned(),
            cpu_kernels: cpu_kernels(),
            rounded_activations: mlx_ffi::cpu::rounded_dots(),
            type_for_bf16: match Bf16::on(info.backend, info.architecture.as_deref()) {
                Bf16::Itself => "bf16",
                Bf16::AsF16 => "f16",
            },
            architecture: info.architecture,
            device_name: info.name,
            parallel_slots: default_slots(device),
            memory_limit_bytes: memory::limit()? as u64,
            working_set_bytes: info.recommended_working_set,
            total_memory_bytes: info.memory_size,
            active_memory_bytes: memory::active()? as u64,
        })
    };
    read().map_err(|error| Error::Engine(error.to_string()))
}
