//! A pipeline: its components' headers and configs, and what it makes of a request. Nothing here is on a
//! device yet.

use inference_core::{
    Error as Refusal, ImageComponent, ImageLoadOptions, ImageModelInfo, ImageRequest,
    Result as Told,
};

use super::caption::{CaptionEncoder, CaptionText};
use super::folder::{Component, Loaded, PipelineFolder, Reading};
use super::plan::{Plan, Prompt, noise, sides};
use super::schedule::Schedule;
use super::vae::{Tiles, Vae};
use super::vae_kl::KlDecoder;
use super::z_image::ZImage;
use crate::config::Config;
use crate::error::Result;
use crate::kernels::Kernels;
use mlx_ffi::{Array, Device, Dtype};

/// A pipeline before anything of it is loaded.
pub(super) struct Pipeline {
    pub schedule: Schedule,
    pub encoder: Component,
    pub transformer: Component,
    pub vae: Component,
    pub reading: Reading,
    pub sizes: Sizes,
}

/// What admission reckons with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    pub encoder: u64,
    pub transformer: u64,
    pub vae: u64,
    /// Bytes of the transformer's activations for each position.
    pub position: u64,
    /// Bytes of the decoder's activations for each pixel.
    pub pixel: u64,
    /// Bytes of the encoder's activations for each id.
    pub id: u64,
}

/// What turns requests into plans; any thread may ask it.
pub(super) struct Planner {
    text: CaptionText,
    pub info: ImageModelInfo,
    /// The longest side of a picture.
    most: usize,
}

/// The text encoder of a pipeline.
pub(super) enum Encoder {
    Caption(CaptionEncoder),
}

/// The transformer of a pipeline.
pub(super) enum Transformer {
    ZImage(ZImage),
}

impl Pipeline {
    /// Reads configs and headers, and checks that all fit.
    ///
    /// # Errors
    /// What is wrong with a file.
    pub fn open(
        folder: &PipelineFolder,
        options: &ImageLoadOptions,
        kernels: Kernels,
    ) -> Result<Pipeline> {
        let reading = Reading::of(options, kernels);
        let schedule = folder.config("scheduler", "scheduler_config.json")?;
        let at = |error: crate::error::Error| error.at(&folder.files("scheduler").folder());
        let mut pipeline = Pipeline {
            schedule: Schedule::read(&schedule).map_err(at)?,
            encoder: encoder_component(folder)?,
            transformer: folder.component("transformer", &["ZImageTransformer2DModel"])?,
            vae: folder.component("vae", &["AutoencoderKL"])?,
            reading,
            sizes: Sizes::default(),
        };
        pipeline.sizes = pipeline.reckon()?;
        Ok(pipeline)
    }

    fn reckon(&self) -> Result<Sizes> {
        let size = |config: &Config, key: &str| {
            Ok::<u64, crate::error::Error>(config.opt_size(key)?.unwrap_or(0) as u64)
        };
        let ((_, encoder), (_, transformer), (_, vae)) =
            (self.encoder(true)?, self.transformer(true)?, self.vae(true)?);
        let activation = self.reading.dtype.unwrap_or(Dtype::F32).size() as u64;
        let dim = size(&self.transformer.config, "dim")?;
        let hidden = size(&self.encoder.config, "hidden_size")?;
        let inner = size(&self.encoder.config, "intermediate_size")?;
        let widest = self.vae.config.opt_indices("block_out_channels")?.unwrap_or_default();
        let widest = widest.get(1).copied().unwrap_or(256);
        Ok(Sizes {
            encoder: encoder.bytes,
            transformer: transformer.bytes,
            vae: vae.bytes,
            // The stream, norms, queries, keys and values, their rotation in F32, and the network.
            position: dim * (12 * activation + 32) + 3 * dim * 8 / 3 * activation,
            // As many pictures of the widest layer as are held at once.
            pixel: 6 * widest * 4,
            id: (16 * hidden + 3 * inner) * 4,
        })
    }

    /// The text encoder; of stand-ins where it is only described.
    ///
    /// # Errors
    /// What does not fit.
    pub fn encoder(&self, only_describe: bool) -> Result<(Encoder, Loaded)> {
        let build = |config: &Config, w: &crate::weights::Weights| {
            CaptionEncoder::load(config, w).map(Encoder::Caption)
        };
        self.encoder.build(self.reading, only_describe, build)
    }

    /// The transformer; of stand-ins where it is only described.
    ///
    /// # Errors
    /// What does not fit.
    pub fn transformer(&self, only_describe: bool) -> Result<(Transformer, Loaded)> {
        let build = |config: &Config, w: &crate::weights::Weights| {
            ZImage::load(config, w).map(Transformer::ZImage)
        };
        self.transformer.build(self.reading, only_describe, build)
    }

    /// The decoder of latents; of stand-ins where it is only described. It computes in F32 where its config
    /// asks for that, and is not packed.
    ///
    /// # Errors
    /// What does not fit.
    pub fn vae(&self, only_describe: bool) -> Result<(Box<dyn Vae>, Loaded)> {
        let upcast = self.vae.config.opt_flag("force_upcast")?.unwrap_or(true);
        let dtype = if upcast { Some(Dtype::F32) } else { self.reading.dtype };
        let reading = Reading { dtype, bits: None, ..self.reading };
        self.vae.build(reading, only_describe, |config, w| {
            Ok(Box::new(KlDecoder::load(config, w)?) as Box<dyn Vae>)
        })
    }

    /// The tiles in which big pictures are decoded where memory is scarce: those of diffusers.
    ///
    /// # Errors
    /// A config that is no number.
    pub fn tiles(&self) -> Result<Tiles> {
        let side = self.vae.config.opt_size("sample_size")?.unwrap_or(512).max(64) / 8;
        Ok(Tiles { size: side, stride: side * 3 / 4 })
    }

    /// What turns requests into plans.
    ///
    /// # Errors
    /// What is wrong with the tokenizer.
    pub fn planner(&self, folder: &PipelineFolder, device: Device) -> Result<Planner, Refusal> {
        let (_, encoder) = self.encoder(true)?;
        let (transformer, loaded) = self.transformer(true)?;
        let (_, vae) = self.vae(true)?;
        let component = |name: &str, of: Loaded| ImageComponent {
            name: name.to_owned(),
            class: folder.class_of(name),
            num_parameters: of.parameters,
            weight_bytes: of.bytes,
        };
        let Transformer::ZImage(model) = &transformer;
        // Turbo is distilled to few steps without guidance; it has another shift than the base model.
        let is_turbo = self.schedule.static_shift().is_some_and(|shift| shift < 4.5);
        let quantization = self.transformer.config.default_quantization()?;
        let packed = quantization.map_or(0, |found| found.bits as usize);
        let info = ImageModelInfo {
            pipeline: folder.class(),
            components: vec![
                component("tokenizer", Loaded::default()),
                component("text_encoder", encoder),
                component("scheduler", Loaded::default()),
                component("transformer", loaded),
                component("vae", vae),
            ],
            dtype: format!("{:?}", model.dtype()).to_lowercase(),
            quant_bits: self.reading.bits.map_or(packed, |bits| bits as usize),
            device: device.info().map_err(crate::error::Error::from)?.backend.to_owned(),
            multiple: 16,
            default_side: 1024,
            default_steps: if is_turbo { 9 } else { 50 },
            default_guidance: if is_turbo { 0.0 } else { 5.0 },
            latent_channels: self.transformer.config.size("in_channels")? as usize,
            min_images: 0,
            max_images: 0,
        };
        let text = CaptionText::read(&folder.files("tokenizer"))?;
        Ok(Planner { text, info, most: model.most_side() as usize })
    }
}

impl Encoder {
    /// What describes a prompt, `[1, ids, hidden]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn encode(&self, prompt: &Prompt) -> Result<Array> {
        let Encoder::Caption(encoder) = self;
        encoder.encode(&prompt.ids)
    }
}

/// The text encoder's files. Without its output layer, it may have been saved without the prefix `model`.
fn encoder_component(folder: &PipelineFolder) -> Result<Component> {
    let encoder = folder.component("text_encoder", &["Qwen3Model", "Qwen3ForCausalLM"])?;
    Ok(encoder.renamed(|name| {
        let has_prefix = name.starts_with("model.") || name.starts_with("lm_head.");
        if has_prefix { name } else { format!("model.{name}") }
    }))
}

impl Planner {
    /// The plan of a request.
    ///
    /// # Errors
    /// An option by name.
    pub fn plan(&self, request: &ImageRequest) -> Told<Plan> {
        let info = &self.info;
        let default = [info.default_side; 2];
        let [width, height] = sides(request, default, info.multiple, self.most)?;
        request.validate()?;
        if !request.images.is_empty() {
            return Err(Refusal::Unsupported {
                what: "images".into(),
                reason: format!("{} makes pictures from text alone", info.pipeline),
            });
        }
        let guidance = request.guidance.unwrap_or(info.default_guidance);
        if guidance == 0.0 {
            let without = |option: &'static str, is_set: bool| match is_set {
                true => Err(Refusal::InvalidOption {
                    option,
                    reason: "says nothing without guidance: set `guidance` above 0".into(),
                }),
                false => Ok(()),
            };
            without("negative_prompt", request.negative_prompt.is_some())?;
            without("guidance_normalization", request.guidance_normalization.is_some())?;
            without("guidance_truncation", request.guidance_truncation.is_some())?;
        }
        let ids = |text: &str| Ok::<_, Refusal>(Prompt { ids: self.text.ids(text)? });
        let negative = request.negative_prompt.as_deref().unwrap_or("");
        Ok(Plan {
            width,
            height,
            steps: request.steps.unwrap_or(info.default_steps),
            guidance,
            normalization: request.guidance_normalization.unwrap_or(0.0),
            truncation: request.guidance_truncation.unwrap_or(1.0),
            noise: noise(request, info, [width, height])?,
            prompt: ids(&request.prompt)?,
            negative: (guidance > 0.0).then(|| ids(negative)).transpose()?,
        })
    }
}
