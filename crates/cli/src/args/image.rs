//! `ml image`.

use std::path::PathBuf;

use clap::Args;
use inference_core::{Dtype, ImageLoadOptions};

use super::values;
use crate::bytes;

/// `ml image`.
#[derive(Args, Debug)]
#[command(after_help = "\
The picture goes to --output as a PNG that has the prompt, the model, the seed and the settings as
texts. Equal settings make equal bytes on one device. Progress goes to stderr. Ctrl-C ends between
two steps, and nothing is written.

A model is a folder in diffusers' layout, with a model_index.json, or one that mflux-save wrote. Its
components are read when they are needed, and freed after.

Examples:
  ml pull Tongyi-MAI/Z-Image-Turbo
  ml image 'a fox in the snow' --model Tongyi-MAI/Z-Image-Turbo --quantise 4
  ml image 'a fox' --model ~/models/Z-Image --guidance 4 --negative-prompt blurry --seed 42 --json")]
pub struct ImageArgs {
    /// Description of the picture; `-` reads stdin
    #[arg(allow_hyphen_values = false)]
    pub prompt: String,
    /// Content to keep out of the picture
    #[arg(long, value_name = "TEXT", help_heading = "Picture")]
    pub negative_prompt: Option<String>,
    /// Pixels of a row [default: the model's, most often 1024]
    #[arg(long, value_name = "PIXELS", value_parser = values::count, allow_hyphen_values = true,
          help_heading = "Picture")]
    pub width: Option<usize>,
    /// Rows [default: the model's, most often 1024]
    #[arg(long, value_name = "PIXELS", value_parser = values::count, allow_hyphen_values = true,
          help_heading = "Picture")]
    pub height: Option<usize>,
    /// Denoising steps [default: the model's]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true,
          help_heading = "Picture")]
    pub steps: Option<usize>,
    /// Seed of the first noise [default: drawn, and told]
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true,
          conflicts_with = "latents", help_heading = "Picture")]
    pub seed: Option<u64>,
    /// How far to lead away from the negative prompt; 0: no guidance [default: the model's]
    #[arg(long, value_name = "X", value_parser = values::number, allow_hyphen_values = true,
          help_heading = "Picture")]
    pub guidance: Option<f32>,
    /// Let guidance lengthen a prediction by at most this factor (Z-Image)
    #[arg(long, value_name = "X", value_parser = values::number, allow_hyphen_values = true,
          help_heading = "Picture")]
    pub guidance_normalization: Option<f32>,
    /// Guide only up to this part of the way, 0 to 1 (Z-Image)
    #[arg(long, value_name = "X", value_parser = values::number, allow_hyphen_values = true,
          help_heading = "Picture")]
    pub guidance_truncation: Option<f32>,
    /// A picture to edit: PNG, JPEG, WebP or GIF; several are counted in their order
    #[arg(long = "input-image", value_name = "FILE", help_heading = "Picture")]
    pub images: Vec<PathBuf>,
    /// Begin with the tensor `latents` of this safetensors file in place of drawn noise
    #[arg(long, value_name = "FILE", help_heading = "Picture")]
    pub latents: Option<PathBuf>,
    /// Model folder in diffusers' layout, or a name that `ml pull` fetched [env: ML_IMAGE_MODEL]
    #[arg(short, long, value_name = "MODEL", help_heading = "Model")]
    pub model: Option<PathBuf>,
    /// How it is loaded.
    #[command(flatten)]
    pub load: ImageLoadArgs,
    /// Write the picture here
    #[arg(short, long, value_name = "FILE", default_value = "image.png", help_heading = "Output")]
    pub output: PathBuf,
    /// Print one JSON object: sizes, seed, times, the peak of memory, SHA-256 of the RGB bytes
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// No statistics and no progress on stderr
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// How an image model is loaded.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Model")]
pub struct ImageLoadArgs {
    /// Device to run on: metal, cuda or cpu [default: the best one, see `ml doctor`]
    #[arg(long, visible_alias = "device", value_name = "NAME")]
    pub backend: Option<String>,
    /// Compute in f32, f16 or bf16 [default: the checkpoint's own]
    #[arg(long, value_name = "TYPE", value_parser = values::dtype)]
    pub dtype: Option<Dtype>,
    /// Pack the text encoder and the transformer to 4 or 8 bits as they are read
    #[arg(long, visible_alias = "quantize", value_name = "BITS", value_parser = values::count,
          allow_hyphen_values = true)]
    pub quantise: Option<usize>,
    /// Bytes for weights and activations together, such as 16GiB [default: the device's]
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse, allow_hyphen_values = true)]
    pub memory_limit: Option<u64>,
    /// Compute with N threads, at most 1024, where the backend runs on a CPU [default: all cores]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true,
          env = "ML_THREADS")]
    pub threads: Option<usize>,
}

impl ImageLoadArgs {
    /// As the contract takes them.
    pub fn options(&self) -> ImageLoadOptions {
        ImageLoadOptions {
            backend: self.backend.clone(),
            dtype: self.dtype,
            quantize: self.quantise,
            memory_limit: self.memory_limit,
            threads: self.threads,
            ..ImageLoadOptions::default()
        }
    }
}
