//! The command line as clap reads it.

mod at;
mod bench;
mod classify;
mod dry;
mod embed;
mod image;
mod info;
mod inspect;
mod launch;
mod load;
mod mcp;
mod models;
mod needs;
mod pictures;
mod pool;
mod quantise;
mod remote;
mod report;
mod sampling;
mod serve;
mod service;
mod setup;
mod speak;
mod template;
mod transcribe;
mod values;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

pub use at::{AtArgs, PsArgs, ShowArgs, StopArgs};
pub use bench::{BenchArgs, Bits, Shape};
pub use classify::ClassifyArgs;
pub use embed::{EmbedArgs, EmbeddingLoadArgs, RerankArgs, lines};
pub use image::ImageArgs;
pub use info::InfoArgs;
pub use inspect::InspectArgs;
pub use launch::{Agent, HostArgs, LaunchArgs};
pub use load::{HowArgs, LoadArgs};
pub use mcp::McpArgs;
pub use models::{ListArgs, ModelsArgs, PullArgs, RmArgs};
pub use pictures::PictureArgs;
pub use pool::PoolArgs;
pub use quantise::QuantiseArgs;
pub use remote::{Ends, Interface, RemoteArgs};
pub use report::{Network, Probe, ReportArgs};
pub use sampling::SamplingArgs;
pub use serve::{BatchArgs, LogFormat, ServeArgs, ToolFormat};
pub use service::{Service, ServiceArgs};
pub use setup::{CudaArgs, Setup, SetupArgs};
pub use speak::SpeakArgs;
pub use template::TemplateArgs;
pub use transcribe::{Form, TranscribeArgs, TranscriptionLoadArgs};

use crate::bytes;

/// Text from language models, pictures from image models, and the words of speech, on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "ml",
    bin_name = "ml",
    disable_version_flag = true,
    arg_required_else_help = true,
    subcommand_required = false,
    max_term_width = 100,
    after_help = "\
Without --model and ML_MODEL, a small demo model answers that is part of the program.

Examples:
  ml generate 'Tell me a story about a fox'
  ml pull mlx-community/Qwen3-0.6B-4bit
  ml chat --model mlx-community/Qwen3-0.6B-4bit
  ml chat --model ~/models/Qwen3-0.6B
  ml doctor

Exit codes: 0 done, 1 failed, 2 bad usage or an option that is not supported, 130 interrupted."
)]
pub struct Cli {
    /// Print the versions of this program, mlx-c and MLX, and the device
    #[arg(short = 'V', long)]
    pub version: bool,
    /// Fetch a model that is named and not here without a question
    #[arg(short, long, global = true, env = "ML_YES",
          value_parser = clap::builder::FalseyValueParser::new())]
    pub yes: bool,
    /// The command; `None` beside `--version`.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// Returns true when the command computes, and may do so on a GPU.
    pub fn may_use_gpu(&self) -> bool {
        let backend = match &self.command {
            _ if self.version => None,
            Some(Command::Generate(args)) => args.load.how.backend.as_deref(),
            Some(Command::Chat(args)) => args.load.how.backend.as_deref(),
            Some(Command::Classify(args)) => args.load.how.backend.as_deref(),
            Some(Command::Inspect(args)) => args.load.how.backend.as_deref(),
            Some(Command::Image(args)) => args.load.backend.as_deref(),
            Some(Command::Embed(args)) => args.load.backend.as_deref(),
            Some(Command::Rerank(args)) => args.load.backend.as_deref(),
            Some(Command::Transcribe(args)) => args.load.backend.as_deref(),
            Some(Command::Speak(args)) => args.load.backend.as_deref(),
            Some(Command::Serve(args)) => args.load.backend.as_deref(),
            Some(Command::Bench(args)) => args.load.how.backend.as_deref(),
            Some(Command::Info(args)) => args.backend.as_deref(),
            Some(Command::Quantise(args)) => args.backend.as_deref(),
            Some(Command::Report(args)) => args.backend.as_deref(),
            Some(Command::Models(_) | Command::Doctor(_)) => None,
            _ => return false,
        };
        backend != Some("cpu")
    }

    /// Returns true when the command shows no progress.
    pub fn is_quiet(&self) -> bool {
        match &self.command {
            Some(Command::Generate(args)) => args.quiet,
            Some(Command::Chat(args)) => args.quiet,
            Some(Command::Classify(args)) => args.quiet,
            Some(Command::Inspect(args)) => args.quiet,
            Some(Command::Image(args)) => args.quiet,
            Some(Command::Embed(args)) => args.quiet,
            Some(Command::Rerank(args)) => args.quiet,
            Some(Command::Transcribe(args)) => args.quiet,
            Some(Command::Speak(args)) => args.quiet,
            Some(Command::Serve(args)) => args.quiet,
            Some(Command::Bench(args)) => args.quiet,
            Some(Command::Quantise(args)) => args.quiet,
            _ => false,
        }
    }
}

/// The commands of `ml`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer or continue one prompt
    Generate(Box<GenerateArgs>),
    /// Talk with a model
    #[command(visible_alias = "run")]
    Chat(Box<ChatArgs>),
    /// Choose between labels, or tell the next token, for many prompts at once
    Classify(Box<ClassifyArgs>),
    /// Show which tokens of a prompt each attention head looks at
    Inspect(Box<InspectArgs>),
    /// Make a picture from words, or edit pictures
    Image(Box<ImageArgs>),
    /// Make vectors of texts
    Embed(Box<EmbedArgs>),
    /// Order documents by how well they fit a query
    Rerank(Box<RerankArgs>),
    /// Write down what is said in files with sound
    Transcribe(Box<TranscribeArgs>),
    /// Say text into a file of sound
    Speak(Box<SpeakArgs>),
    /// Serve one model or several to OpenAI's, Anthropic's and Ollama's clients
    Serve(Box<ServeArgs>),
    /// List the models that a running server has loaded
    Ps(PsArgs),
    /// Unload a model of a running server, or end the server
    Stop(StopArgs),
    /// Show what the models of a running server are
    Show(ShowArgs),
    /// Serve in the background, from login on
    Service(ServiceArgs),
    /// Start an agent (Claude Code, Codex, opencode) that uses a served model
    Launch(LaunchArgs),
    /// Measure how fast a model runs here and in how much memory, or a server under load
    Bench(Box<BenchArgs>),
    /// Show what a model is and what it honours, without loading its weights
    Info(Box<InfoArgs>),
    /// Fetch a model by its name
    Pull(PullArgs),
    /// Write a model in fewer bits
    #[command(visible_alias = "quantize")]
    Quantise(Box<QuantiseArgs>),
    /// Remove models that were fetched
    Rm(RmArgs),
    /// List the models that were fetched, or those in a folder
    List(ListArgs),
    /// Show well-known models, and which of them fit the memory here
    Models(ModelsArgs),
    /// Check that everything works here: versions, device, backends, a small generation
    Doctor(DoctorArgs),
    /// Try all of it on this machine, and write down in one file what is wrong and how fast it is
    Report(ReportArgs),
    /// Set up what devices need besides this program
    Setup(SetupArgs),
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  ml completions bash > ~/.local/share/bash-completion/completions/ml
  ml completions zsh > \"${fpath[1]}/_ml\"
  ml completions fish > ~/.config/fish/completions/ml.fish")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual's pages, one for each command, into a folder
    #[command(after_help = "\
Examples:
  ml manual ~/.local/share/man/man1")]
    Manual {
        /// The folder; it is made where it is missing
        folder: PathBuf,
    },
}

/// `ml generate`.
#[derive(Args, Debug)]
#[command(after_help = "\
The text goes to stdout as it is generated, followed by one line end; statistics and errors go to
stderr. With a PROMPT, stdin is read only where `--prompt-file -` says so.

Examples:
  ml generate 'Tell me a story about a fox'
  echo 'What is a KV cache?' | ml generate --model ~/models/Qwen3-0.6B
  ml generate 'Summarise this:' --prompt-file notes.txt
  git diff | ml generate 'Write a commit message for:' --prompt-file -
  ml generate --raw 'Once upon a time' -n 64 -t 0.8 --seed 1
  ml generate --messages chat.json --json | jq -r .text
  ml generate --batch prompts.jsonl --json | jq -r .text")]
pub struct GenerateArgs {
    /// The prompt; `-` or nothing reads stdin
    pub prompt: Option<String>,
    /// Take the prompt from a file (`-`: stdin); after PROMPT and an empty line where both are
    /// given
    #[arg(long, short = 'f', value_name = "FILE", help_heading = "Prompt")]
    pub prompt_file: Option<PathBuf>,
    /// Take the conversation from a JSON array of {"role", "content"} messages (`-`: stdin)
    #[arg(long, value_name = "FILE", help_heading = "Prompt",
          conflicts_with_all = ["prompt", "prompt_file", "system", "image"])]
    pub messages: Option<PathBuf>,
    /// Answer the prompts of a JSON-lines file together (`-`: stdin); each line is a text,
    /// {"prompt": TEXT} or {"messages": [...]}, and gives one JSON object
    #[arg(long, value_name = "FILE", help_heading = "Prompt",
          conflicts_with_all = ["prompt", "prompt_file", "messages", "image"])]
    pub batch: Option<PathBuf>,
    /// Continue the text as it is, without the chat template; files keep their last line end
    #[arg(long, conflicts_with_all = ["messages", "system", "tools", "chat_template_kwargs",
          "reasoning_effort"], help_heading = "Prompt")]
    pub raw: bool,
    /// Pictures.
    #[command(flatten)]
    pub images: PictureArgs,
    /// The conversation's template.
    #[command(flatten)]
    pub template: TemplateArgs,
    /// The model.
    #[command(flatten)]
    pub load: LoadArgs,
    /// How tokens are drawn.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Print a line for each token in place of the text: its log probability and its text as a JSON
    /// string; --json has the log probabilities anyway
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub logprobs: bool,
    /// Report how likely the prompt's own tokens are, too; all of it is computed
    #[arg(long, help_heading = "Output")]
    pub prompt_logprobs: bool,
    /// Report the N most likely tokens of each step
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true,
          help_heading = "Output")]
    pub top_logprobs: Option<usize>,
    /// Report the whole logits of each step, before any option changes them
    #[arg(long, help_heading = "Output")]
    pub logits: bool,
    /// Leave out what the model thinks before it answers, which else goes to stderr
    #[arg(long, conflicts_with_all = ["json", "raw", "logprobs", "special_tokens"],
          help_heading = "Output")]
    pub hide_reasoning: bool,
    /// Show a terminal the answer as the model wrote it, neither rendered as Markdown nor wrapped
    #[arg(long, help_heading = "Output")]
    pub plain: bool,
    /// Let the text show special tokens, such as the marks of tool calls
    #[arg(long, help_heading = "Output")]
    pub special_tokens: bool,
    /// Stop after so many seconds of generating, keep the text so far and exit with 1
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds,
          allow_hyphen_values = true, help_heading = "Output")]
    pub timeout: Option<Duration>,
    /// Print one JSON object at the end in place of the text as it comes
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// No statistics and no progress on stderr
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// `ml chat`.
#[derive(Args, Debug)]
#[command(after_help = "\
Ctrl-C stops an answer; at the prompt, a second one leaves, as Ctrl-D and /bye do. A backslash at
the end of a line continues it, and \"\"\" begins and ends a text of several lines. /help lists the
commands, and Tab completes them, models' names and files. What is typed at a terminal is kept for
the arrow keys of later chats. Where stdin or stdout is no terminal, nothing but the answers goes to
stdout, each line is one turn, and the first error ends the program.

Examples:
  ml chat
  ml run qwen3-0.6b
  ml run qwen3-0.6b 'Why is the sky blue?'
  ml chat --model ~/models/Qwen3-0.6B --system 'Answer in one sentence.' -t 0.7
  ml chat --model mlx-community/Qwen3-4B-4bit --mcp mcp.json
  printf 'My name is Ada.\\nWhat is my name?\\n' | ml chat --quiet")]
pub struct ChatArgs {
    /// The model, in place of --model
    #[arg(value_name = "MODEL", conflicts_with = "model")]
    pub named: Option<PathBuf>,
    /// Answer this and leave
    pub prompt: Option<String>,
    /// Pictures.
    #[command(flatten)]
    pub images: PictureArgs,
    /// The conversation's template.
    #[command(flatten)]
    pub template: TemplateArgs,
    /// Servers of tools.
    #[command(flatten)]
    pub mcp: McpArgs,
    /// The model.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Keep keys and values of earlier turns in so many bytes; 0: none [default: 256MiB]
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse, allow_hyphen_values = true,
          help_heading = "Model")]
    pub prefix_cache: Option<u64>,
    /// Keep them in this folder too, for the next start
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    pub prefix_cache_dir: Option<PathBuf>,
    /// Let all files in that folder take so many bytes [default: 8GiB, or what they take already]
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse, allow_hyphen_values = true,
          help_heading = "Model")]
    pub prefix_cache_disk: Option<u64>,
    /// How tokens are drawn.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Forget the oldest turns where the conversation would outgrow the context, and say so; the
    /// system message stays
    #[arg(long, help_heading = "Model")]
    pub rolling_context: bool,
    /// Keep what is typed in this file [default: ml-on-mlx/history in XDG_STATE_HOME, else in
    /// ~/.local/state]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub history: Option<PathBuf>,
    /// Keep nothing of what is typed
    #[arg(long, conflicts_with = "history", help_heading = "Output")]
    pub no_history: bool,
    /// Show a terminal the answer as the model wrote it, neither rendered as Markdown nor wrapped
    #[arg(long, help_heading = "Output")]
    pub plain: bool,
    /// Leave out what the model thinks before it answers, which else goes to stderr
    #[arg(long, help_heading = "Output")]
    pub hide_reasoning: bool,
    /// Stop each answer after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds,
          allow_hyphen_values = true, help_heading = "Output")]
    pub timeout: Option<Duration>,
    /// No statistics and no progress on stderr
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

impl ChatArgs {
    /// The model that is named, whichever way.
    pub fn model(&self) -> Option<&Path> {
        self.named.as_deref().or(self.load.model.as_deref())
    }
}

/// `ml doctor`.
#[derive(Args, Debug)]
#[command(after_help = "\
Exits with 1 when a check fails. A backend that this machine has no hardware for is no failure.

Examples:
  ml doctor
  ml doctor --json | jq .checks
  ml doctor --warm --model Qwen/Qwen3-4B
  ml launch --hostfile hosts.json --insecure-ranks -- doctor --links")]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Measure latency and bandwidth between ranks, in their processes: `ml launch -n 2 -- doctor
    /// --links`
    #[arg(long, conflicts_with_all = ["warm", "model"])]
    pub links: bool,
    /// Let the device compile what requests of all sizes need, and keep it on disk for later
    /// processes
    #[arg(long)]
    pub warm: bool,
    /// The model to compile for: a folder or a pulled model's name [default: `ML_MODEL`, else the
    /// embedded model]
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
}

#[cfg(test)]
mod flags_of_options;
#[cfg(test)]
mod tests;
