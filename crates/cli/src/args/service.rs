//! `ml serve` in the background.

use std::ffi::OsString;

use clap::{Args, Subcommand};

/// `ml service`.
#[derive(Args, Debug)]
#[command(after_help = "\
On Linux it is a unit of systemd for this user, on macOS an agent of launchd. It starts at login,
and again after a fault. It does not see this shell's variables: give a key by --api-key-file.

Examples:
  ml service install -- --model mlx-community/Qwen3-0.6B-4bit --port 8000
  ml service status
  ml service remove")]
pub struct ServiceArgs {
    /// The step to take.
    #[command(subcommand)]
    pub what: Service,
}

/// The steps with a service.
#[derive(Debug, Subcommand)]
pub enum Service {
    /// Write the service's file, and start it; a former one of `ml` is replaced
    Install {
        /// Arguments of `ml serve`
        #[arg(last = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
    /// Tell how it is, and where its log is
    Status,
    /// Stop it, and take its file away
    Remove,
}
