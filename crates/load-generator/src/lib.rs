//! Load on a server that speaks OpenAI's protocol, and what its clients see: tokens a second, the
//! time to the first token, and the times between tokens.
//!
//! ```no_run
//! use load_generator::{Load, Options, measure};
//!
//! let loads = vec![Load::Clients(1), Load::Clients(64)];
//! let options = Options { url: "http://127.0.0.1:8080".into(), loads, ..Options::default() };
//! let report = measure(&options, |_| {})?;
//! for round in &report.results {
//!     eprintln!("{}: {:.1} tokens/s", round.test, round.output_tokens_per_second);
//! }
//! # Ok::<(), load_generator::Error>(())
//! ```
//!
//! All times are measured at the client: a text counts from the moment when its bytes were read.

#![forbid(unsafe_code)]

mod answer;
mod drive;
mod error;
mod exchange;
mod figures;
mod form;
mod frames;
mod http;
mod lines;
mod measure;
mod options;
mod probe;
mod prompts;

pub use error::{Error, Result};
pub use figures::{Round, Spread};
pub use lines::{Api, Line, parse_lines};
pub use measure::{Report, measure};
pub use options::{Extent, IgnoreEos, Load, Options, Prompts};
