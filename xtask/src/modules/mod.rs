//! The modules of each crate, read from its source: the graph of files that `cargo xtask tidy`
//! checks and `cargo xtask modules` draws.

mod circles;
mod crates;
mod graph;
mod names;
mod picture;
mod source;
mod tree;

pub use circles::{circles, shortest};
pub use crates::graphs;
pub use graph::{Arrow, Graph};
pub use picture::{index, page};
