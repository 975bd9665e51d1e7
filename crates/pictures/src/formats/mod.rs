//! One file a format: its header, its pixels and its errors.

mod chunks;
pub mod gif;
pub mod jpeg;
mod kept;
pub mod png;
mod prefix_codes;
pub mod webp;
