//! `ml quantise`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use inference_core::{Dtype, Error};
use metal_backend::{Recipe, Rule};

use super::values;

/// `ml quantise`.
#[derive(Args, Debug)]
#[command(after_help = "\
DST is what `mlx_lm.convert -q` writes, byte for byte, and MLX's programs load it. The weights are
read a tensor at a time, so a model may be larger than memory. Parts that the result does not have
are told. A vision tower is one of them; with --keep-vision DST sees, and MLX-VLM loads it. DST
appears once it is whole.

--mode is affine (2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128), mxfp4, nvfp4 or mxfp8.
--recipe gives more bits to the first and last layers and to each third one between. --layer speaks
of the modules whose path fits a pattern, in which * stands for any text; the last one that fits
holds.

Examples:
  ml quantise Qwen/Qwen3-0.6B qwen3-0.6b-4bit
  ml quantise ~/models/Qwen3-8B qwen3-8b-mxfp8 --mode mxfp8
  ml quantise ~/models/Qwen3-8B qwen3-8b-mixed --recipe mixed_3_6
  ml quantise ~/models/Qwen3-8B qwen3-8b --bits 4 --layer '*.down_proj=6' --layer 'lm_head=off'")]
pub struct QuantiseArgs {
    /// Folder of the model, a .gguf file, or a name that `ml pull` fetched
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// Folder to make
    #[arg(value_name = "DST")]
    pub target: PathBuf,
    /// How groups of weights are represented
    #[arg(long, value_enum, default_value_t = Mode::Affine)]
    pub mode: Mode,
    /// Bits of a weight [default: 4, mxfp8: 8]
    #[arg(long, short, value_name = "N", allow_hyphen_values = true)]
    pub bits: Option<i32>,
    /// Weights that share a scale [default: affine 64, mxfp4 and mxfp8 32, nvfp4 16]
    #[arg(long, short, value_name = "N", allow_hyphen_values = true)]
    pub group_size: Option<i32>,
    /// More bits for some modules: mixed_2_6, mixed_3_4, mixed_3_6 or mixed_4_6
    #[arg(long, value_name = "RECIPE", value_parser = recipe, conflicts_with = "bits")]
    pub recipe: Option<Recipe>,
    /// PATTERN=BITS, PATTERN=BITS/GROUP, PATTERN=MODE or PATTERN=off, for the modules that fit
    #[arg(long = "layer", value_name = "RULE", value_parser = rule)]
    pub rules: Vec<Rule>,
    /// Keep the vision tower and its projector, unpacked, as `mlx_vlm.convert` does
    #[arg(long)]
    pub keep_vision: bool,
    /// Type of scales and of what is not packed: f32, f16 or bf16 [default: the config's]
    #[arg(long, value_name = "TYPE", value_parser = values::dtype)]
    pub dtype: Option<Dtype>,
    /// Device to compute on: metal, cuda or cpu [default: the best one, see `ml doctor`]
    #[arg(long, visible_alias = "device", value_name = "NAME")]
    pub backend: Option<String>,
    /// Print what was written as JSON
    #[arg(long)]
    pub json: bool,
    /// No progress on stderr
    #[arg(short, long)]
    pub quiet: bool,
}

/// The modes of MLX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Integers with a scale and a bias for each group.
    Affine,
    /// 4-bit floats with a power of two for each group.
    Mxfp4,
    /// 4-bit floats with an 8-bit float for each group.
    Nvfp4,
    /// 8-bit floats with a power of two for each group.
    Mxfp8,
}

impl Mode {
    /// MLX's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Affine => "affine",
            Mode::Mxfp4 => "mxfp4",
            Mode::Nvfp4 => "nvfp4",
            Mode::Mxfp8 => "mxfp8",
        }
    }
}

fn recipe(text: &str) -> Result<Recipe, String> {
    let names = || Recipe::ALL.map(Recipe::as_str).join(", ");
    let found = Recipe::ALL.into_iter().find(|recipe| recipe.as_str() == text);
    found.ok_or_else(|| format!("expected one of {}", names()))
}

fn rule(text: &str) -> Result<Rule, String> {
    Rule::parse(text).map_err(|error| match error {
        // clap names the flag itself.
        Error::InvalidOption { option: "rule", reason } => reason,
        other => other.to_string(),
    })
}
