//! Several models in one server.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values;
use crate::bytes;

/// Which models there are, and when they are loaded and unloaded.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Several models")]
pub struct PoolArgs {
    /// Serve each model folder directly under this one, by its folder's name; those that
    /// are put there later are served, too
    #[arg(long, env = "ML_SERVE_MODELS_DIR", value_name = "FOLDER")]
    pub models_dir: Option<PathBuf>,
    /// Load this model at the start and never unload it; can be given more than once
    #[arg(long, env = "ML_SERVE_PIN", value_name = "NAME", value_delimiter = ',')]
    pub pin: Vec<String>,
    /// Load this model at the start; it may be unloaded later; can be given more than once
    #[arg(long = "load", env = "ML_SERVE_LOAD", value_name = "NAME", value_delimiter = ',')]
    pub at_start: Vec<String>,
    /// Unload a model that nobody used for so long, such as 90s, 10m or 2h [default: never]
    #[arg(long, env = "ML_SERVE_IDLE_UNLOAD", value_name = "DURATION",
          value_parser = values::duration)]
    pub idle_unload: Option<Duration>,
    /// Bytes for the weights of all loaded models; the least recently used one gives way
    /// [default: three quarters of --memory-limit or of the device's]
    #[arg(long, env = "ML_SERVE_MODELS_MEMORY", value_name = "BYTES", value_parser = bytes::parse)]
    pub models_memory: Option<u64>,
    /// Requests that may wait for models to be loaded; further ones get 429 [default: 64]
    #[arg(long, env = "ML_SERVE_LOAD_QUEUE", value_name = "N", value_parser = values::count)]
    pub load_queue: Option<usize>,
    /// How long each of them waits [default: 5m]
    #[arg(long, env = "ML_SERVE_LOAD_WAIT", value_name = "DURATION",
          value_parser = values::duration)]
    pub load_wait: Option<Duration>,
}

impl PoolArgs {
    /// Returns true when any of these is given.
    pub fn is_given(&self) -> bool {
        self.models_dir.is_some()
            || !self.pin.is_empty()
            || !self.at_start.is_empty()
            || self.idle_unload.is_some()
            || self.models_memory.is_some()
            || self.load_queue.is_some()
            || self.load_wait.is_some()
    }
}
