//! OpenAI's, Anthropic's and Ollama's HTTP interfaces over any
//! [`TextModel`](inference_core::TextModel).
//!
//! [`serve`] runs a server as a process does; [`Server`] is for programs that have a tokio runtime
//! of their own. A field that could change an answer is honoured or refused by name; one that does
//! not is taken, and told in a header.
//!
//! ```no_run
//! use inference_server::{Config, serve};
//!
//! # fn load() -> inference_core::Result<Box<dyn inference_core::TextModel>> { unreachable!() }
//! let exit = serve(Config::default(), load, |address| eprintln!("http://{address}"))?;
//! # Ok::<(), inference_server::ServeError>(())
//! ```
//!
//! Floors, each of which uses only those below it:
//!
//! - [`serve`], [`Server`], the routes, and what describes and watches the server;
//! - `protocol`: a folder each, with the tables of its fields, what reads them, and a `Wire` that
//!   writes answers and errors;
//! - `http`: connections, the guard (host, origin, key), bodies within bounds;
//! - `run`: generations that are polled without a thread for each, and the parts of answers in no
//!   protocol's words;
//! - `batches`: files and batches of requests, kept in a folder;
//! - `pool`: the models, which are loaded when a request names them, and leases of them;
//! - `fields`: tables of fields and the reader that takes requests apart;
//! - `traces`: spans of requests, on their way to a collector;
//! - `config`, `tls` and `error`.
//!
//! A client that leaves drops the generations of its request, which cancels them.

#![forbid(unsafe_code)]

mod batches;
mod config;
mod error;
mod fields;
mod health;
mod http;
mod notify;
mod openapi;
pub mod page;
mod pool;
mod process;
mod protocol;
mod routes;
mod run;
mod server;
mod tls;
mod traces;
mod watchdog;

pub use config::{
    ApiKey, Batches, Config, ConfigError, EmbeddingService, ImageService, Limits, SpeechService,
    Timeouts, Tools, TranscriptionService,
};
pub use http::connection::Ended;
pub use notify::Notifier;
pub use openapi::document as openapi_document;
pub use pool::models::{Change, Described, Entry, LoadFailure, Loader, Makes, Model, Models};
pub use process::{Exit, hangup_is_ignored, serve, serve_models};
pub use server::{ServeError, Server};
pub use tls::{Tls, TlsError};
pub use traces::settings::{TraceEndpoint, Traces};
