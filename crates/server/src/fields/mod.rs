//! Requests as fields: the tables that say what each is, and the reader that takes them apart.

pub mod bounds;
pub mod json;
pub mod parse;
pub mod prompts;
pub mod reader;
pub mod table;
pub mod told;
