//! Servers of tools that speak the Model Context Protocol, over stdio and streamable HTTP.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use mcp::{Server, Settings, Wait};
//!
//! let text = r#"{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}"#;
//! let settings = Settings::parse(text, "mcp.json", |name| std::env::var(name).ok())?;
//! let wait = Wait { limit: Duration::from_secs(60), is_cancelled: &|| false };
//! for launch in settings.servers {
//!     let mut server = Server::start(launch, &wait)?;
//!     let tool = server.tools()[0].name.clone();
//!     println!("{}", server.call(&tool, &serde_json::Map::new(), &wait)?.text);
//! }
//! # Ok::<(), mcp::Error>(())
//! ```
//!
//! A server is not trusted: what it sends is bounded in bytes and counts, each wait has a limit and
//! can be cancelled, and its texts come as they are, so that whoever shows them must make them
//! harmless. A server that has ended is started again by the next call.

#![forbid(unsafe_code)]

mod error;
mod event;
mod http;
mod link;
mod process;
mod result;
mod server;
mod settings;

pub use error::Error;
pub use link::Wait;
pub use result::Outcome;
pub use server::{Server, Tool};
pub use settings::{Launch, Place, Settings};
