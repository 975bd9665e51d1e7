//! Which models are here: fetching, listing and removing them.

use std::path::PathBuf;

use clap::Args;

use super::values;

/// `ml pull`.
#[derive(Args, Debug)]
#[command(after_help = "\
The folder goes to stdout, progress to stderr. What is needed comes: configs, the tokenizer, the
chat template and safetensors. It lies in the cache of Python's huggingface_hub, which finds it, as
its downloads are found here. A pull that was cut off goes on where it was.

Environment:
  HF_TOKEN        who asks, for private models and those that ask for consent; else the token's file
  HF_HUB_CACHE    the cache [default: hub in HF_HOME, or ~/.cache/huggingface/hub]
  HF_ENDPOINT     another hub, such as a mirror
  HF_HUB_OFFLINE  1: nothing is fetched

Examples:
  ml pull mlx-community/Qwen3-0.6B-4bit
  ml pull qwen3-0.6b
  ml pull org/name@v2.0
  ml pull org/name-GGUF:Q4_K_M
  ml info --model $(ml pull -q mlx-community/Qwen3-0.6B-4bit)")]
pub struct PullArgs {
    /// ORG/NAME, ORG/NAME@REVISION with a branch, tag or commit, ORG/NAME:FILE with a file of GGUF,
    /// or a name of `ml models`
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Fetch N files at once
    #[arg(long, value_name = "N", value_parser = values::connections, default_value_t = 4)]
    pub connections: usize,
    /// No progress on stderr
    #[arg(short, long)]
    pub quiet: bool,
}

/// `ml rm`.
#[derive(Args, Debug)]
#[command(after_help = "\
ORG/NAME removes all revisions of a model, and what a cut-off pull left. ORG/NAME@REVISION removes
the one, and keeps what others need.

Examples:
  ml rm mlx-community/Qwen3-0.6B-4bit
  ml rm org/name@v2.0 org/other")]
pub struct RmArgs {
    /// ORG/NAME, ORG/NAME@REVISION with a branch, tag or commit, or a name of `ml models`
    #[arg(value_name = "MODEL", required = true)]
    pub models: Vec<String>,
}

/// `ml list`.
#[derive(Args, Debug)]
#[command(after_help = "\
Without a DIR, the models in the hub's cache are listed. A model folder has a config.json and at
least one .safetensors file, or pytorch_model*.bin; a .gguf file is a model by itself. What cannot
be used is listed with the reason.

Examples:
  ml list
  ml list ~/models
  ml list ~/models --json | jq -r '.[] | select(.error == null) | .path'")]
pub struct ListArgs {
    /// A folder to look in, itself and one level below
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print a JSON array
    #[arg(long)]
    pub json: bool,
}

/// `ml models`.
#[derive(Args, Debug)]
#[command(after_help = "\
WEIGHTS is what comes, and NEEDS about what a conversation of 8192 tokens takes. Loading a model
tells exactly what it takes. The one to begin with has a *: of the newest, the largest that fits,
and on a CPU the largest that answers as fast as people read. A name may be written as a tag, as
qwen3.5:4b or llama3.2:1b.

Examples:
  ml models
  ml run \"$(ml models --json | jq -r '.[] | select(.recommended) | .name')\"
  ml models --json | jq -r '.[] | select(.fits) | .name'")]
pub struct ModelsArgs {
    /// Print a JSON array
    #[arg(long)]
    pub json: bool,
}
