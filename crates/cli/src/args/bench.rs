//! Arguments of `ml bench`: the tests, and the model to measure.

use clap::{Args, ValueEnum};

use super::{LoadArgs, RemoteArgs, values};

/// A released model whose sizes are measured with random weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// `Qwen/Qwen3-0.6B`.
    #[value(name = "qwen3-0.6b")]
    Qwen3Small,
    /// `Qwen/Qwen3-4B`.
    #[value(name = "qwen3-4b")]
    Qwen3,
    /// The text part of `google/gemma-3-1b-it`.
    #[value(name = "gemma3-1b")]
    Gemma3Small,
    /// The text part of `google/gemma-3-4b-it`.
    #[value(name = "gemma3-4b")]
    Gemma3,
    /// `meta-llama/Llama-3.2-1B`.
    #[value(name = "llama3.2-1b")]
    Llama32,
    /// `meta-llama/Llama-3.1-8B`.
    #[value(name = "llama3.1-8b")]
    Llama31,
    /// `meta-llama/Llama-3.1-70B`.
    #[value(name = "llama3.1-70b")]
    Llama31Large,
    /// `Qwen/Qwen3-30B-A3B`.
    #[value(name = "qwen3-30b-a3b")]
    Qwen3Moe,
    /// `openai/gpt-oss-20b`, with experts in mxfp4 where no bits are named.
    #[value(name = "gpt-oss-20b")]
    GptOss,
    /// The text part of `Qwen/Qwen3.5-0.8B`.
    #[value(name = "qwen3.5-0.8b")]
    Qwen35Small,
    /// The text part of `Qwen/Qwen3.5-4B`.
    #[value(name = "qwen3.5-4b")]
    Qwen35Medium,
    /// The text part of `Qwen/Qwen3.5-9B`.
    #[value(name = "qwen3.5-9b")]
    Qwen35,
    /// The text part of `Qwen/Qwen3.5-35B-A3B`.
    #[value(name = "qwen3.5-35b-a3b")]
    Qwen35Moe,
    /// The text part of `google/gemma-4-E2B-it`.
    #[value(name = "gemma4-e2b")]
    Gemma4Small,
    /// The text part of `google/gemma-4-26B-A4B-it`.
    #[value(name = "gemma4-26b-a4b")]
    Gemma4Moe,
    /// `zai-org/GLM-4.7-Flash`.
    #[value(name = "glm4.7-flash")]
    Glm47Flash,
    /// `LiquidAI/LFM2-1.2B`.
    #[value(name = "lfm2-1.2b")]
    Lfm2,
    /// `nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16`.
    #[value(name = "nemotron3-nano")]
    Nemotron3,
    /// `tiiuae/falcon-mamba-7b`.
    #[value(name = "falcon-mamba-7b")]
    FalconMamba,
    /// `mistralai/Mamba-Codestral-7B-v0.1`.
    #[value(name = "mamba-codestral-7b")]
    MambaCodestral,
    /// `google/recurrentgemma-2b`.
    #[value(name = "recurrentgemma-2b")]
    RecurrentGemma,
    /// `deepseek-ai/DeepSeek-V3.2`, in bf16 where no bits are named.
    #[value(name = "deepseek-v3.2")]
    DeepseekV32,
}

/// Bits of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bits {
    /// Affine, in groups of 64.
    #[value(name = "4")]
    Four,
    /// Affine, in groups of 64.
    #[value(name = "8")]
    Eight,
    /// bf16.
    #[value(name = "16")]
    Sixteen,
}

/// `ml bench`.
#[derive(Args, Debug)]
#[command(after_help = "\
Each test runs once to warm up and then --repeat times; the figure is the mean, with the standard
deviation. Prompts are random ids, and end tokens are passed over.

  ppN    a prompt of N tokens, until the first token is known: prompt tokens a second
  tgN    N tokens one after the other: tokens a second after the first one
  cN     N requests at once, with prompts of --prompt and answers of --new tokens

Examples:
  ml bench
  ml bench --model ~/models/Qwen3-0.6B --prompt 2048 --new 256
  ml bench --shape qwen3-4b --bits 4 --concurrency 32
  ml bench --shape llama3.2-1b --json | jq .results
  ml bench --model ~/models/Qwen3-0.6B --ranks 2
  ml bench --url http://127.0.0.1:8080 --clients 1,8,64 -p 512 -n 128")]
pub struct BenchArgs {
    /// Measure random weights in the sizes of a released model, without a download
    #[arg(long, value_name = "NAME", conflicts_with_all = ["model", "adapter"], help_heading = "Model")]
    pub shape: Option<Shape>,
    /// Bits of the random weights [default: as released]
    #[arg(long, value_name = "BITS", help_heading = "Model")]
    pub bits: Option<Bits>,
    /// Layers of the random weights [default: those of the released model]
    #[arg(long, value_name = "N", value_parser = values::positive, help_heading = "Model")]
    pub layers: Option<usize>,
    /// Print the config.json of the random weights, and measure nothing
    #[arg(long, help_heading = "Model")]
    pub print_config: bool,
    /// The model.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Tokens of a prompt; 0 leaves the test out
    #[arg(
        short,
        long,
        visible_alias = "prompt-tokens",
        value_name = "N",
        default_value_t = 512,
        help_heading = "Tests"
    )]
    pub prompt: usize,
    /// Tokens of an answer; 0 leaves the test out
    #[arg(
        short,
        long,
        visible_alias = "gen-tokens",
        value_name = "N",
        default_value_t = 128,
        help_heading = "Tests"
    )]
    pub new: usize,
    /// Tokens that are in the caches before the answer begins
    #[arg(short, long, value_name = "N", default_value_t = 0, help_heading = "Tests")]
    pub depth: usize,
    /// Also measure N requests at once
    #[arg(short, long, value_name = "N", value_parser = values::positive, help_heading = "Tests")]
    pub concurrency: Option<usize>,
    /// Verify up to N draft tokens in a pass, as `ml generate --draft-tokens` does [default: 4 with
    /// --draft-model, else none]
    #[arg(long, value_name = "N", conflicts_with = "url", help_heading = "Tests")]
    pub draft_tokens: Option<usize>,
    /// Draw at this temperature; 0: the most likely token
    #[arg(long, value_name = "T", value_parser = values::number, default_value_t = 0.0,
          allow_hyphen_values = true, conflicts_with = "url", help_heading = "Tests")]
    pub temperature: f32,
    /// Also show where the time of a decode step goes
    #[arg(long, help_heading = "Tests")]
    pub breakdown: bool,
    /// Measure each test so often
    #[arg(short, long, value_name = "N", value_parser = values::positive, default_value = "5",
          help_heading = "Tests")]
    pub repeat: usize,
    /// Compute with so many processes on this host, as `ml launch -n N -- bench` does
    #[arg(long, value_name = "N", value_parser = values::ranks, conflicts_with = "url",
          help_heading = "Tests")]
    pub ranks: Option<usize>,
    /// A server in place of a model.
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// No progress on stderr
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}
