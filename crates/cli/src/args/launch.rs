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
}

/// `ml launch`.
#[derive(Args, Debug)]
#[command(after_help = "\
The agent is told of the server by variables and flags of this one run; its own files stay as they are.
ML_LAUNCH_API_KEY holds the key of a server that wants one.

Examples:
  ml launch claude --model mlx-community/Qwen3-0.6B-4bit
  ml launch codex --url http://127.0.0.1:8080
  ml launch codex -- exec 'What does this repository do?'
  ml launch claude -- -p 'What does this repository do?'
  ml launch -n 2 -- generate --model ~/models/Qwen3-0.6B 'Tell me a story about a fox'
  ml launch -n 2 -- serve --model ~/models/Qwen3-0.6B")]
pub struct LaunchArgs {
    /// The agent
    #[arg(value_name = "AGENT", value_enum, required_unless_present = "ranks")]
    pub agent: Option<Agent>,
    /// Run the command of `ml` behind `--` in N processes that compute its model together, on this host's
    /// CPU: `serve`, `chat`, `generate`, `classify` or `bench`
    #[arg(short = 'n', long, value_name = "N", value_parser = values::ranks,
          conflicts_with_all = ["agent", "url", "model", "model_name"])]
    pub ranks: Option<usize>,
    /// Talk to the server at this address
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Serve this model while the agent runs, in place of using a server that runs already
    #[arg(short, long, value_name = "MODEL", conflicts_with = "url")]
    pub model: Option<PathBuf>,
    /// The model's name on the server [default: the first that the server lists]
    #[arg(long, value_name = "NAME")]
    pub model_name: Option<String>,
    /// What the agent is given as arguments, or what runs in several processes
    #[arg(last = true, value_name = "ARGUMENT")]
    pub arguments: Vec<OsString>,
}
