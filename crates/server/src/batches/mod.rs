//! Files, and batches of requests, kept in a folder: what survives the end of the server.
//!
//! Nothing here has a protocol's words, and no name of a client's becomes a path: ids are the
//! store's own, and what is not in its tables is not there.

pub mod journal;
pub mod lines;
pub mod record;
pub mod store;
pub mod upload;
