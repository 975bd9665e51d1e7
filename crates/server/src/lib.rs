//! OpenAI's HTTP interface over any [`TextModel`](inference_core::TextModel).
//!
//! [`serve`] runs a server as a process does; [`Server`] is for programs that have a tokio runtime
//! of their own. Nothing that a client asks is ignored: every field is honoured or refused by name.
//!
//! ```no_run
//! use server::{Config, serve};
//!
//! # fn load() -> inference_core::Result<Box<dyn inference_core::TextModel>> { unreachable!() }
//! let exit = serve(Config::default(), load, |address| eprintln!("http://{address}"))?;
//! # Ok::<(), server::ServeError>(())
//! ```
//!
//! A request passes `guard` (host, origin, key), `body` (its size and time), `fields` (the tables
//! of what a request may hold), its endpoint in `openai` or `extras`, and `admission` (how many
//! generations may be held). `run` then polls the generations, without a thread for each, and
//! `answers` makes a response of them, whole or as events. A client that leaves drops the `Run`,
//! which cancels.

#![forbid(unsafe_code)]

mod admission;
pub mod answer;
mod answers;
mod body;
mod config;
mod effort;
mod error;
mod extras;
mod fields;
mod guard;
mod health;
mod json;
mod metrics;
mod openai;
mod openapi;
pub mod page;
mod parse;
mod process;
mod prompts;
mod reader;
mod routes;
mod run;
mod serve;
mod state;
mod timed_io;

pub use config::{ApiKey, Config, ConfigError, Limits, Timeouts};
pub use json::{from_value, to_value};
pub use openapi::document as openapi_document;
pub use process::{Exit, serve};
pub use serve::{Ended, ServeError, Server};
