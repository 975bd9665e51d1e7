//! One file a format: its header, its pixels and its errors.

pub mod gif;
pub mod jpeg;
mod kept;
pub mod png;
pub mod webp;
