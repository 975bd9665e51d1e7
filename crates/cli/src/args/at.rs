//! A running server, and what is asked of it.

use std::path::PathBuf;

use clap::Args;

/// A running server.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server")]
pub struct AtArgs {
    /// Address of the server
    #[arg(
        long,
        env = "ML_SERVER_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080"
    )]
    pub url: String,
    /// File with the server's API keys, of which the first is used; ML_SERVE_API_KEY holds one
    #[arg(long, env = "ML_SERVE_API_KEY_FILE", value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Trust certificates of the authorities in this PEM file, in place of those that browsers
    /// trust; a server's own certificate does, too
    #[arg(long, env = "ML_SERVER_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
}

/// `ml ps`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ml ps
  ml ps --url http://127.0.0.1:8000
  ml ps --json | jq -r '.[].id'")]
pub struct PsArgs {
    /// Print a JSON array
    #[arg(long)]
    pub json: bool,
    /// The server.
    #[command(flatten)]
    pub at: AtArgs,
}

/// `ml stop`.
#[derive(Args, Debug)]
#[command(after_help = "\
A model with running requests is unloaded when they have ended, and loaded again when a request
names it. A model that is alone or pinned stays. A server ends so where it was started with
--allow-shutdown; running requests have its --drain-timeout.

Examples:
  ml stop mlx-community/Qwen3-0.6B-4bit
  ml stop --server")]
pub struct StopArgs {
    /// The model to unload
    #[arg(value_name = "MODEL", required_unless_present = "server")]
    pub model: Option<String>,
    /// End the server itself
    #[arg(long, conflicts_with = "model")]
    pub server: bool,
    /// The server.
    #[command(flatten)]
    pub at: AtArgs,
}

/// `ml show`.
#[derive(Args, Debug)]
#[command(after_help = "\
`ml info` tells the same, and more, of a model that no server has.

Examples:
  ml show
  ml show Qwen3-0.6B --json | jq .capabilities")]
pub struct ShowArgs {
    /// The model's name on the server [default: each]
    #[arg(value_name = "MODEL")]
    pub model: Option<String>,
    /// Print a JSON array
    #[arg(long)]
    pub json: bool,
    /// The server.
    #[command(flatten)]
    pub at: AtArgs,
}
