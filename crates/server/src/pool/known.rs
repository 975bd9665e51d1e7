//! A model of the pool, as far as it does not change.

use std::sync::Arc;

use super::admission::Admission;
use super::models::{Described, Entry, Makes};

/// A model of the pool, as far as it does not change.
pub struct Known {
    /// The name under which it is served.
    pub name: Arc<str>,
    /// The kind of its outputs.
    pub makes: Makes,
    /// Its description, found out without loading it.
    pub described: Option<Described>,
    /// Room for its generations.
    pub admission: Arc<Admission>,
    /// It stays once it is loaded.
    pub pinned: bool,
    /// It is loaded before the server is ready.
    pub at_start: bool,
}

impl Known {
    /// The model of `entry`, with this room for generations.
    pub fn new(entry: Entry, admission: Arc<Admission>) -> Known {
        Known {
            name: entry.name.into(),
            makes: entry.makes,
            described: entry.described,
            admission,
            pinned: entry.pinned,
            at_start: entry.at_start || entry.pinned,
        }
    }

    /// Bytes that it would take, as far as that is known without loading it.
    pub fn bytes(&self) -> Option<u64> {
        match self.described.as_ref()? {
            Described::Text(info, _) => Some(info.weight_bytes),
            Described::Embedding(info) => Some(info.weight_bytes),
            Described::Transcription(info) => Some(info.weight_bytes),
            Described::Speech(info) => Some(info.weight_bytes),
            // How many of its components are held at once depends on how it is loaded.
            Described::Image(_) => None,
        }
    }
}
