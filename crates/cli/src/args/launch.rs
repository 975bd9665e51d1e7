//! An agent that others wrote, and the server that it talks to.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::values;

/// Programs that read, write and run on behalf of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Agent {
    /// Claude Code, of Anthropic.
    Claude,
    /// Codex, of OpenAI.
    Codex,
    /// opencode.
    Opencode,
    /// Qwen Code, of Alibaba.
    Qwen,
    /// Aider.
    Aider,
    /// Gemini CLI, of Google.
    Gemini,
    /// Crush, of Charm.
    Crush,
    /// goose.
    Goose,
    /// Cline.
    Cline,
    /// Continue's `cn`.
    Continue,
}

/// `ml launch`.
#[derive(Args, Debug)]
#[command(after_help = "\
The agent is told of the server by variables and flags of this one run, and by files in a folder
that goes with it; its user's own files stay as they are. ML_LAUNCH_API_KEY holds the key of a
server that wants one.

Examples:
  ml launch claude --model mlx-community/Qwen3-0.6B-4bit
  ml launch codex --url http://127.0.0.1:8080
  ml launch codex -- exec 'What does this repository do?'
  ml launch claude -- -p 'What does this repository do?'
  ml launch crush --print
  ml launch -n 2 -- generate --model ~/models/Qwen3-0.6B 'Tell me a story about a fox'
  ml launch -n 2 -- serve --model ~/models/Qwen3-0.6B
  ml launch --hostfile hosts.json --insecure-ranks -- serve --model /models/Qwen3-4B")]
pub struct LaunchArgs {
    /// The agent
    #[arg(value_name = "AGENT", value_enum)]
    pub agent: Option<Agent>,
    /// Print what the agent would be started with, and start nothing; `KEY` stands for the key
    #[arg(long, conflicts_with_all = ["ranks", "hostfile"])]
    pub print: bool,
    /// Run the command of `ml` behind `--` in N processes that compute its model together, on this
    /// host's CPU, or on an NVIDIA GPU each: `serve`, `chat`, `generate`, `classify`, `bench` or
    /// `doctor --links`
    #[arg(short = 'n', long, value_name = "N", value_parser = values::ranks,
          conflicts_with_all = ["agent", "url", "tls_ca", "model", "model_name"])]
    pub ranks: Option<usize>,
    /// Run it on the hosts of this file, one process on each, which `ssh` starts: a JSON array as
    /// `mlx.launch` reads it, of objects with `ssh`, a host's name for ssh, and `ips`, of which the
    /// rank listens on the first
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["agent", "ranks", "url", "tls_ca", "model", "model_name"])]
    pub hostfile: Option<PathBuf>,
    /// Talk to the server at this address
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Trust certificates of the authorities in this PEM file, in place of those that browsers
    /// trust; the agent is told of it, too
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub tls_ca: Option<PathBuf>,
    /// Serve this model while the agent runs, in place of using a server that runs already
    #[arg(short, long, value_name = "MODEL", conflicts_with = "url")]
    pub model: Option<PathBuf>,
    /// The model's name on the server [default: the first that the server lists]
    #[arg(long, value_name = "NAME")]
    pub model_name: Option<String>,
    /// Arguments of the agent, or the command to run in several processes
    #[arg(last = true, value_name = "ARGUMENT")]
    pub arguments: Vec<OsString>,
    /// How it runs on several hosts. Last: what is behind would stand under its heading.
    #[command(flatten)]
    pub hosts: HostArgs,
}

/// How several ranks run on several hosts.
#[derive(Args, Debug)]
#[command(next_help_heading = "Several hosts")]
pub struct HostArgs {
    /// Port of the first rank; each further one listens on the next
    #[arg(long, value_name = "PORT", default_value_t = 32323,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub starting_port: u16,
    /// The program `ml` on the hosts [default: where this one is here]
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
    /// Folder on the hosts in which it runs [default: this one]
    #[arg(long, value_name = "FOLDER")]
    pub cwd: Option<PathBuf>,
    /// Listen on addresses that other computers reach, although the traffic of ranks is neither
    /// encrypted nor authenticated: whoever reaches it reads prompts and answers, and can disturb
    /// them
    #[arg(long)]
    pub insecure_ranks: bool,
}
