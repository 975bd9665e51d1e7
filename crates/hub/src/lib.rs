//! Models by name: what the hub has of a model, fetched into the cache that Python's
//! `huggingface_hub` uses.
//!
//! ```no_run
//! use hub::{Cache, Name, Pull, Settings};
//!
//! let settings = Settings::from_env()?;
//! let name: Name = "mlx-community/Qwen3-0.6B-4bit".parse()?;
//! let folder = Pull::new(&settings).run(&name, &|_| {})?.folder;
//! assert_eq!(Cache::new(&settings.cache).find(&name)?.folder, folder);
//! # Ok::<(), hub::Error>(())
//! ```
//!
//! A file counts once its size and its hash are right; until then it is an `.incomplete` blob, from
//! which a later pull goes on. Several processes may pull one model at once, Python's among them.

#![forbid(unsafe_code)]

mod address;
mod blob;
mod cache;
mod client;
mod error;
mod event;
mod gguf;
mod hash;
mod index;
mod known;
mod listing;
mod name;
mod own;
mod pull;
mod pulled;
mod remove;
mod select;
mod settings;
mod space;

pub use cache::{Cache, Cached, Snapshot};
pub use client::Patience;
pub use error::{Error, Result};
pub use event::{Event, Planned};
pub use known::{Ability, Known, known, known_as, recommended, short};
pub use name::Name;
pub use pull::{Pull, Pulled};
pub use pulled::pulled;
pub use settings::{Settings, Token};
