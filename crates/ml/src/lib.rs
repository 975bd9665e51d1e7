//! The older way in, for programs written to its interface: [`Backend`] answers with whole texts,
//! [`StreamingBackend`] hands each piece to a callback, [`MlxBackend`] is both over a model of
//! `inference-core`. New programs use that crate's contract, which does more; `docs/facade.md` has
//! a table from here to there.
//!
//! The program registers its backends first; this crate knows none of them.
//!
//! ```no_run
//! # mod metal_backend { pub fn register() -> inference_core::Result<()> { Ok(()) } }
//! use ml::{Backend, GenOpts, Message, MlxBackend, StreamingBackend};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! metal_backend::register()?;
//! let mlx = MlxBackend::new("path/to/model")?;
//! let reply = mlx.generate("Tell me about the fox", &GenOpts::default())?;
//! println!("{}", reply.text);
//!
//! let opts = GenOpts { temperature: Some(0.0), max_tokens: Some(64), ..GenOpts::default() };
//! let question = [Message::user("Why is the sky blue?")];
//! let reply = mlx.chat_stream(&question, &opts, &mut |piece| {
//!     print!("{piece}");
//!     Ok(())
//! })?;
//! println!("{} tokens", reply.outcome.metrics.generated_tokens);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod backend;
mod error;
mod event;
mod first_word;
mod mlx;
mod options;
mod system_turn;

pub use inference_core::{CancelToken, FinishReason, GenerateMetrics, Message, Outcome, Role};

pub use backend::{Backend, OnPiece, Reply, StreamingBackend};
pub use error::{BoxError, Cause, Error, Result};
pub use event::{Event, Log};
pub use mlx::{MlxBackend, MlxOptions};
pub use options::GenOpts;
