//! A pipeline: its components' headers and configs, and how each is built. Nothing here is on a
//! device yet.

use inference_core::ImageLoadOptions;
use mlx_ffi::{Array, Dtype, ops};

use super::caption::CaptionEncoder;
use super::edit::{Edited, Style};
use super::folder::{Component, Loaded, PipelineFolder, Reading};
use super::kind::Kind;
use super::plan::Prompt;
use super::qwen_image::QwenImage;
use super::qwen_text::QwenEncoder;
use super::schedule::Schedule;
use super::vae::{Tiles, Vae};
use super::vae_kl::KlDecoder;
use super::vae_qwen::{QwenDecoder, QwenEncoder as VaeEncoder};
use super::z_image::ZImage;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Kernels;

/// A pipeline before anything of it is loaded.
pub(super) struct Pipeline {
    pub kind: Kind,
    pub schedule: Schedule,
    encoder: Component,
    transformer: Component,
    vae: Component,
    /// Bits that the folder says its weights have.
    stored_bits: Option<usize>,
    pub reading: Reading,
    pub sizes: Sizes,
}

/// The sizes that admission reckons with.
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

/// The text encoder of a pipeline.
pub(super) enum Encoder {
    Caption(Box<CaptionEncoder>),
    Qwen(Box<QwenEncoder>),
}

/// The transformer of a pipeline.
pub(super) enum Transformer {
    ZImage(Box<ZImage>),
    Qwen(Box<QwenImage>),
}

/// The classes of a pipeline's components: text encoder, transformer, VAE.
const fn classes(kind: Kind) -> [&'static [&'static str]; 3] {
    match kind {
        Kind::ZImage => {
            [&["Qwen3Model", "Qwen3ForCausalLM"], &["ZImageTransformer2DModel"], &["AutoencoderKL"]]
        }
        Kind::Qwen(_) => [
            &["Qwen2_5_VLForConditionalGeneration"],
            &["QwenImageTransformer2DModel"],
            &["AutoencoderKLQwenImage"],
        ],
    }
}

impl Pipeline {
    /// Reads configs and headers, and checks that all fit.
    ///
    /// # Errors
    /// A file that is missing or wrong.
    pub fn open(
        folder: &PipelineFolder,
        options: &ImageLoadOptions,
        kernels: Kernels,
    ) -> Result<Pipeline> {
        let kind = folder.kind;
        let [encoder, transformer, vae] = classes(kind);
        let schedule = folder.config("scheduler", "scheduler_config.json")?;
        let at = |error: Error| error.at(&folder.files("scheduler").folder());
        let encoder = folder.component("text_encoder", encoder)?;
        let mut pipeline = Pipeline {
            kind,
            schedule: Schedule::read(&schedule).map_err(at)?,
            encoder: encoder.renamed(|name| renamed(kind, name)),
            transformer: folder.component("transformer", transformer)?,
            vae: folder.component("vae", vae)?,
            stored_bits: folder.bits(),
            reading: Reading::of(options, kernels),
            sizes: Sizes::default(),
        };
        pipeline.sizes = pipeline.reckon()?;
        Ok(pipeline)
    }

    /// How prompts are written, where they are Qwen-Image's.
    pub fn style(&self) -> Style {
        match self.kind {
            Kind::ZImage => Style::Plain,
            Kind::Qwen(style) => style,
        }
    }

    fn reckon(&self) -> Result<Sizes> {
        let ((_, encoder), (transformer, weights), (_, vae)) =
            (self.encoder(true)?, self.transformer(true)?, self.vae(true)?);
        let size = |config: &Config, key: &str| -> Result<u64> {
            Ok(config.opt_size(key)?.unwrap_or(0) as u64)
        };
        let config = &self.transformer.config;
        let (dim, inner) = match self.kind {
            Kind::ZImage => {
                let dim = size(config, "dim")?;
                (dim, 3 * (dim * 8 / 3))
            }
            Kind::Qwen(_) => {
                let heads = size(config, "num_attention_heads")?;
                let dim = heads * size(config, "attention_head_dim")?;
                (dim, 4 * 4 * dim)
            }
        };
        let activation = transformer.dtype().size() as u64;
        let text = self.encoder.config.object("text_config")?;
        let text = text.as_ref().unwrap_or(&self.encoder.config);
        let widest = match self.kind {
            Kind::ZImage => {
                let channels = self.vae.config.opt_indices("block_out_channels")?;
                channels.unwrap_or_default().get(1).copied().unwrap_or(256)
            }
            Kind::Qwen(_) => 2 * self.vae.config.opt_size("base_dim")?.unwrap_or(96) as u64,
        };
        Ok(Sizes {
            encoder: encoder.bytes,
            transformer: weights.bytes,
            vae: vae.bytes,
            // The stream, norms, queries, keys and values, their rotation in F32, and the network.
            position: dim * (12 * activation + 32) + inner * activation,
            // As many pictures of the widest layer as are held at once.
            pixel: 6 * widest * 4,
            id: (16 * size(text, "hidden_size")? + 3 * size(text, "intermediate_size")?) * 4,
        })
    }

    /// The text encoder; of placeholders where it is only described.
    ///
    /// # Errors
    /// A key or a tensor that is missing or does not fit.
    pub fn encoder(&self, only_describe: bool) -> Result<(Encoder, Loaded)> {
        self.encoder.build(self.reading, only_describe, |config, w| match self.kind {
            Kind::ZImage => Ok(Encoder::Caption(Box::new(CaptionEncoder::load(config, w)?))),
            Kind::Qwen(style) => {
                let encoder = QwenEncoder::load(config, w, style != Style::Plain)?;
                Ok(Encoder::Qwen(Box::new(encoder)))
            }
        })
    }

    /// The transformer; of placeholders where it is only described.
    ///
    /// # Errors
    /// A key or a tensor that is missing or does not fit.
    pub fn transformer(&self, only_describe: bool) -> Result<(Transformer, Loaded)> {
        self.transformer.build(self.reading, only_describe, |config, w| match self.kind {
            Kind::ZImage => Ok(Transformer::ZImage(Box::new(ZImage::load(config, w)?))),
            Kind::Qwen(_) => Ok(Transformer::Qwen(Box::new(QwenImage::load(config, w)?))),
        })
    }

    /// How the VAE's weights are read: in their own type, as diffusers does, and never packed here.
    fn vae_reading(&self) -> Reading {
        Reading { bits: None, ..self.reading }
    }

    /// The decoder of latents; of placeholders where it is only described.
    ///
    /// # Errors
    /// A key or a tensor that is missing or does not fit.
    pub fn vae(&self, only_describe: bool) -> Result<(Box<dyn Vae>, Loaded)> {
        self.vae.build(self.vae_reading(), only_describe, |config, w| {
            Ok(match self.kind {
                Kind::ZImage => Box::new(KlDecoder::load(config, w)?) as Box<dyn Vae>,
                Kind::Qwen(_) => Box::new(QwenDecoder::load(config, w)?),
            })
        })
    }

    /// The encoder of pictures; of placeholders where it is only described.
    ///
    /// # Errors
    /// A key or a tensor that is missing or does not fit.
    pub fn vae_encoder(&self, only_describe: bool) -> Result<(VaeEncoder, Loaded)> {
        self.vae.build(self.vae_reading(), only_describe, VaeEncoder::load)
    }

    /// Channels of the latents.
    ///
    /// # Errors
    /// A config without them.
    pub fn latent_channels(&self) -> Result<i32> {
        match self.kind {
            Kind::ZImage => self.transformer.config.size("in_channels"),
            Kind::Qwen(_) => Ok(self.vae.config.opt_size("z_dim")?.unwrap_or(16)),
        }
    }

    /// Bits of the transformer's packed weights, 0 where they are not packed.
    ///
    /// # Errors
    /// A quantisation that is not known.
    pub fn bits(&self) -> Result<usize> {
        let own = self.transformer.config.default_quantization()?;
        let own = own.map(|found| found.bits as usize).or(self.stored_bits).unwrap_or(0);
        Ok(self.reading.bits.map_or(own, |bits| bits as usize))
    }

    /// The tiles in which big pictures are decoded where memory is scarce: those of diffusers.
    ///
    /// # Errors
    /// A config that is no number.
    pub fn tiles(&self) -> Result<Tiles> {
        Ok(match self.kind {
            Kind::ZImage => {
                let side = self.vae.config.opt_size("sample_size")?.unwrap_or(512).max(64) / 8;
                Tiles { size: side, stride: side * 3 / 4 }
            }
            Kind::Qwen(_) => Tiles { size: 32, stride: 24 },
        })
    }
}

/// A tensor's name as the encoder takes it. Encoders were saved by several versions of
/// transformers, and with or without the output layer.
fn renamed(kind: Kind, name: String) -> String {
    match kind {
        Kind::ZImage if name.starts_with("model.") || name.starts_with("lm_head.") => name,
        Kind::ZImage => format!("model.{name}"),
        Kind::Qwen(_) => {
            let language = name.strip_prefix("model.language_model.");
            let tower = name.strip_prefix("model.visual.");
            match (language, tower) {
                (Some(rest), _) => format!("model.{rest}"),
                (_, Some(rest)) => format!("visual.{rest}"),
                _ => name,
            }
        }
    }
}

impl Encoder {
    /// The tower's features of the pictures that are edited.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn features(&self, edited: &[Edited]) -> Result<Vec<Array>> {
        match self {
            Encoder::Caption(_) => Ok(Vec::new()),
            Encoder::Qwen(encoder) => {
                edited.iter().map(|edited| encoder.features(&edited.seen)).collect()
            }
        }
    }

    /// The states of a prompt about pictures with these `features`, `[1, ids, hidden]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn encode(
        &self,
        prompt: &Prompt,
        features: &[Array],
        edited: &[Edited],
        style: Style,
    ) -> Result<Array> {
        match self {
            Encoder::Caption(encoder) => encoder.encode(&prompt.ids),
            Encoder::Qwen(encoder) => {
                let grids: Vec<[i32; 2]> = edited.iter().map(|edited| edited.cells).collect();
                let states = encoder.encode(&prompt.ids, features, &grids)?;
                let count = prompt.ids.len() as i32;
                Ok(ops::slice_axis(&states, 1, style.dropped(), count)?)
            }
        }
    }
}

impl Transformer {
    /// The type of the activations.
    pub fn dtype(&self) -> Dtype {
        match self {
            Transformer::ZImage(model) => model.dtype(),
            Transformer::Qwen(model) => model.dtype(),
        }
    }

    /// The longest side of a picture in pixels.
    pub fn most_side(&self) -> i32 {
        match self {
            Transformer::ZImage(model) => model.most_side(),
            // Beyond, positions from the middle outwards are more than the reference has.
            Transformer::Qwen(_) => 8192,
        }
    }
}
