//! Events that a backend reports to the program's log.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// Receives events, on the thread that called the backend. An event's text is a line for a log.
pub type Log = Arc<dyn Fn(&Event) + Send + Sync>;

/// Something that a log may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A model is about to be loaded.
    Loading {
        /// Its folder.
        path: PathBuf,
    },
    /// A model was loaded.
    Loaded {
        /// Its architecture.
        architecture: String,
        /// The device that computes.
        device: String,
        /// Transformer layers.
        num_layers: usize,
        /// Bytes of its weights.
        weight_bytes: u64,
    },
    /// After a request, the process held more than three times the model's own memory.
    MemoryHigh {
        /// Bytes in use by arrays of the process, the request's own freed.
        active_bytes: u64,
        /// The most bytes that were in use during the request.
        peak_bytes: u64,
        /// Bytes of the model's weights.
        weight_bytes: u64,
        /// Of the bytes in use, those of other requests that run now.
        kv_bytes: u64,
        /// Of the bytes in use, those kept for prompts that begin alike.
        prefix_cache_bytes: u64,
    },
}

impl Event {
    /// Writes the event to stderr, as a line. That stderr is closed is nobody's loss.
    pub fn print(&self) {
        // One write, so that lines of several threads do not mix.
        let _ = io::stderr().write_all(format!("{self}\n").as_bytes());
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: &u64| bytes / 1_000_000;
        match self {
            Event::Loading { path } => write!(f, "mlx: loading {}", path.display()),
            Event::Loaded { architecture, device, num_layers, weight_bytes } => write!(
                f,
                "mlx: {architecture} on {device}: {num_layers} layers, {} MB",
                mb(weight_bytes)
            ),
            Event::MemoryHigh {
                active_bytes,
                peak_bytes,
                weight_bytes,
                kv_bytes,
                prefix_cache_bytes,
            } => write!(
                f,
                "mlx: {} MB in use, {} MB at the peak, over three times the model's {} MB; running requests hold {} MB, the prefix cache {} MB",
                mb(active_bytes),
                mb(peak_bytes),
                mb(weight_bytes),
                mb(kv_bytes),
                mb(prefix_cache_bytes)
            ),
        }
    }
}
