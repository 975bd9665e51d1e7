//! What the server is told of a model: its names, whether it stays, and what can be told without loading it.

use inference_core::{Capabilities, LoadOptions, ModelInfo};
use inference_server::Entry;

use super::sources::{Named, Place};
use crate::failure::Result;

/// What can be told of a model without loading it.
///
/// # Errors
/// It is broken. One of a folder is served all the same, so that its requests are told what is wrong with it.
pub fn describe(one: &Named, load: &LoadOptions) -> Result<Option<(ModelInfo, Capabilities)>> {
    let Place::Text(source) = &one.place else { return Ok(None) };
    source.describe(load).map(Some)
}

/// What was asked for by models' names. It holds for models that come later, too.
pub struct Naming {
    /// Further names, each with the name of its model.
    pub aliases: Vec<(String, String)>,
    /// The names of models that stay.
    pub pins: Vec<String>,
}

impl Naming {
    /// The table's entry of a model.
    pub fn entry(&self, one: &Named, described: Option<(ModelInfo, Capabilities)>) -> Entry {
        let of_this = self.aliases.iter().filter(|(_, name)| *name == one.name);
        Entry {
            aliases: of_this.map(|(alias, _)| alias.clone()).collect(),
            makes: one.place.makes(),
            pinned: self.pins.contains(&one.name),
            described,
            ..Entry::text(&one.name)
        }
    }
}
