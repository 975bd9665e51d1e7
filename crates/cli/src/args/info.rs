//! `ml info`.

use std::path::PathBuf;

use clap::Args;
use inference_core::{Dtype, LoadOptions};

use super::{HowArgs, values};
use crate::failure::Result;

/// `ml info`. Of the options of a load, it takes those that change what is told.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ml info
  ml info --model ~/models/Qwen3-0.6B --json | jq .kv_bytes_per_token")]
pub struct InfoArgs {
    /// Model folder in MLX or Hugging Face layout, a .gguf file, or a name that `ml pull` fetched
    /// [env: ML_MODEL] [default: the demo model]
    #[arg(short, long, value_name = "MODEL", help_heading = "Model")]
    pub model: Option<PathBuf>,
    /// Device to run on: metal, cuda or cpu [default: the best one, see `ml doctor`]
    #[arg(long, visible_alias = "device", value_name = "NAME", help_heading = "Model")]
    pub backend: Option<String>,
    /// Compute in f32, f16 or bf16 [default: the checkpoint's own; on M1 and M2, f16 for bf16]
    #[arg(long, value_name = "TYPE", value_parser = values::dtype, help_heading = "Model")]
    pub dtype: Option<Dtype>,
    /// Keep only the last N positions in view; windows stay [default: the model's own context]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true,
          help_heading = "Model")]
    pub context_length: Option<usize>,
    /// Hold the KV cache in 4 or 8 bits [default: as it is computed]
    #[arg(long, value_name = "BITS", value_parser = values::count, allow_hyphen_values = true,
          help_heading = "Model")]
    pub kv_bits: Option<usize>,
    /// Values of the packed KV cache that share a scale [default: 64, or 32 where a head needs it]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true,
          help_heading = "Model")]
    pub kv_group_size: Option<usize>,
    /// Apply the LoRA adapter in this folder, or ORG/NAME that `ml pull` fetched
    #[arg(long, value_name = "ADAPTER", help_heading = "Model")]
    pub adapter: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

impl InfoArgs {
    /// The contract's options, checked.
    ///
    /// # Errors
    /// Those of [`HowArgs::options`].
    pub fn options(&self) -> Result<LoadOptions> {
        let how = HowArgs {
            backend: self.backend.clone(),
            dtype: self.dtype,
            context_length: self.context_length,
            kv_bits: self.kv_bits,
            kv_group_size: self.kv_group_size,
            adapter: self.adapter.iter().cloned().collect(),
            ..HowArgs::default()
        };
        how.options()
    }
}
