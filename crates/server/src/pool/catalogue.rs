//! The models of a pool by number and by name, at one moment. A number is never given twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::known::Known;
use super::models::Entry;
use super::names::Names;

/// The models of a pool at one moment.
#[derive(Clone)]
pub struct Catalogue {
    all: Vec<Arc<Known>>,
    gone: BTreeSet<usize>,
    names: Names,
}

impl Catalogue {
    /// A catalogue without models.
    pub fn new() -> Catalogue {
        Catalogue { all: Vec::new(), gone: BTreeSet::new(), names: Names::new(&[]) }
    }

    /// Takes `entry` in, which `known` makes a model of; it has the next number.
    pub fn add(&mut self, entry: Entry, known: impl FnOnce(Entry) -> Known) {
        self.names.add(self.all.len(), &entry);
        self.all.push(Arc::new(known(entry)));
    }

    /// The model of this number is gone: no name means it any more.
    pub fn remove(&mut self, index: usize) {
        self.gone.insert(index);
        self.names.remove(index);
    }

    /// The model of this number, be it gone or not.
    pub fn known(&self, index: usize) -> &Arc<Known> {
        &self.all[index]
    }

    /// All models that there ever were.
    pub fn all(&self) -> &[Arc<Known>] {
        &self.all
    }

    /// The models that are gone, without those whose names others have now.
    pub fn gone(&self) -> impl Iterator<Item = &Arc<Known>> {
        let gone = self.gone.iter().map(|index| &self.all[*index]);
        gone.filter(|gone| self.there().all(|(_, known)| known.name != gone.name))
    }

    /// Returns true while the model of this number is still there.
    pub fn is_there(&self, index: usize) -> bool {
        !self.gone.contains(&index)
    }

    /// The models that are there, with their numbers.
    pub fn there(&self) -> impl Iterator<Item = (usize, &Arc<Known>)> {
        self.all.iter().enumerate().filter(|(index, _)| self.is_there(*index))
    }

    /// The names of those that are there.
    pub fn names(&self) -> &Names {
        &self.names
    }
}
