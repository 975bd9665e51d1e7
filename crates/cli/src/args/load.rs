//! Which model, and how it is loaded.

use std::path::PathBuf;

use clap::Args;
use inference_core::{CpuActivations, Dtype, LoadOptions, RankSplit, Ranks, Speculate};

use super::values;
use crate::bytes;
use crate::failure::{Failure, Result};
use crate::names;
use crate::ranks;

/// Which model, and how it is loaded.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Model")]
pub struct LoadArgs {
    /// Model folder in MLX or Hugging Face layout, a .gguf file, or a name that `ml pull` fetched
    /// [env: ML_MODEL] [default: the demo model]
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// How it is loaded.
    #[command(flatten)]
    pub how: HowArgs,
}

impl LoadArgs {
    /// The contract's options, checked.
    ///
    /// # Errors
    /// Those of [`HowArgs::options`].
    pub fn options(&self) -> Result<LoadOptions> {
        self.how.options()
    }
}

/// How a model is loaded.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Model")]
pub struct HowArgs {
    /// Device to run on: metal, cuda or cpu [default: the best one, see `ml doctor`]
    #[arg(long, visible_alias = "device", value_name = "NAME")]
    pub backend: Option<String>,
    /// Compute in f32, f16 or bf16 [default: the checkpoint's own; on M1 and M2, f16 for bf16]
    #[arg(long, value_name = "TYPE", value_parser = values::dtype)]
    pub dtype: Option<Dtype>,
    /// Keep only the last N positions in view; windows stay [default: the model's own context]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub context_length: Option<usize>,
    /// Read the prompt in chunks of N tokens [default: 2048 on a GPU, fewer on a Mac
    /// whose memory the model nearly fills, 512 on a CPU]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub prefill_chunk: Option<usize>,
    /// Compute with N threads, at most 1024, where the backend runs on a CPU [default: all cores]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true,
          env = "ML_THREADS")]
    pub threads: Option<usize>,
    /// Round activations to int8 where a CPU multiplies them with weights in packed whole numbers
    /// or mxfp4 [default: not at all]
    #[arg(long, value_name = "TYPE", value_parser = values::cpu_activations)]
    pub cpu_activations: Option<CpuActivations>,
    /// Bytes for weights, caches and activations together, such as 16GiB [default: the device's]
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse, allow_hyphen_values = true)]
    pub memory_limit: Option<u64>,
    /// Bytes of freed memory to keep for reuse, such as 1GiB
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse, allow_hyphen_values = true)]
    pub cache_limit: Option<u64>,
    /// Bytes of weights and caches that stay resident while requests run on Metal, such as 16GiB;
    /// 0: none. Elsewhere nothing is paged out [default: what the model needs]
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse, allow_hyphen_values = true)]
    pub wired_limit: Option<u64>,
    /// Hold the KV cache in 4 or 8 bits [default: as it is computed]
    #[arg(long, value_name = "BITS", value_parser = values::count, allow_hyphen_values = true)]
    pub kv_bits: Option<usize>,
    /// Values of the packed KV cache that share a scale [default: 64, or 32 where a head needs it]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub kv_group_size: Option<usize>,
    /// Apply the LoRA adapter in this folder, or ORG/NAME that `ml pull` fetched, where the backend
    /// can. `ml serve` takes several as NAME=ADAPTER: each makes a further model, MODEL:NAME
    #[arg(long, value_name = "ADAPTER")]
    pub adapter: Vec<PathBuf>,
    /// Who drafts the next tokens, which one pass verifies: mtp, a layer of the model's own; draft,
    /// the --draft-model; ngram, what followed the last tokens before; off, nobody [default: auto,
    /// the first of these that there is, ngram where --draft-tokens asks for drafts]
    #[arg(long, value_name = "WHO", value_parser = values::speculate)]
    pub speculate: Option<Speculate>,
    /// A smaller model with the same vocabulary that drafts
    #[arg(long, value_name = "MODEL")]
    pub draft_model: Option<PathBuf>,
    /// Run up to N requests together [default: 256 on a GPU, 16 on a CPU]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub parallel: Option<usize>,
    /// Refuse a request where N wait already, on top of those that run; `ml serve` bounds by
    /// --queue what reaches the backend [default: as many as come]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub queue_limit: Option<usize>,
    /// Compute each request by itself, so that what runs beside it or lies in a cache cannot change
    /// a number
    #[arg(long)]
    pub batch_invariant: bool,
    /// Give each process of `ml launch -n N` some of the layers, in place of a part of every layer.
    /// For slow links; several requests at once keep all of them busy
    #[arg(long)]
    pub pipeline: bool,
}

impl HowArgs {
    /// The contract's options, checked.
    ///
    /// # Errors
    /// The first option out of its range, an adapter or a draft model that is not in the cache, and
    /// ranks that cannot be read.
    pub fn options(&self) -> Result<LoadOptions> {
        let options = LoadOptions {
            backend: self.backend.clone(),
            context_length: self.context_length,
            parallel_slots: self.parallel,
            queue_limit: self.queue_limit,
            kv_bits: self.kv_bits,
            kv_group_size: self.kv_group_size,
            batch_invariant: self.batch_invariant,
            gpu_layers: None,
            adapter_path: self.adapter()?,
            speculate: self.speculate.unwrap_or_default(),
            draft_model: self.draft_model.as_deref().map(names::folder).transpose()?,
            dtype: self.dtype,
            memory_limit: self.memory_limit,
            cache_limit: self.cache_limit,
            wired_limit: self.wired_limit,
            prefill_chunk: self.prefill_chunk,
            threads: self.threads,
            cpu_activations: self.cpu_activations,
            ranks: self.ranks()?,
            ..LoadOptions::default()
        };
        options.validate()?;
        Ok(options)
    }

    /// The folder of the one adapter.
    fn adapter(&self) -> Result<Option<PathBuf>> {
        match self.adapter.as_slice() {
            [] => Ok(None),
            [one] if names::split(one).0.is_none() => names::folder(one).map(Some),
            _ => {
                let reason = "--adapter: one adapter without a name is applied here; `ml serve` in one process takes \
                              several as NAME=ADAPTER";
                Err(Failure::Usage(reason.to_owned()))
            }
        }
    }

    /// The processes that compute the model together.
    fn ranks(&self) -> Result<Option<Ranks>> {
        let split = if self.pipeline { RankSplit::Layers } else { RankSplit::Tensors };
        let ranks = ranks::from_environment()?.map(|ranks| Ranks { split, ..ranks });
        if self.pipeline && ranks.is_none() {
            let alone =
                "--pipeline is for several processes: start them with `ml launch -n 2 -- …`";
            return Err(Failure::Usage(alone.to_owned()));
        }
        Ok(ranks)
    }
}
