//! The folder of `--models-dir`, into which models are put and from which they are taken while a
//! server runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::sources::{self, Named};

/// The folder, and what is known to be in it.
pub struct Folder {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    /// The models that are there, by their folders: their names and numbers.
    there: BTreeMap<PathBuf, (String, usize)>,
    /// Names of models that were given by themselves.
    taken: BTreeSet<String>,
    /// Folders that are passed over, which was said.
    passed: BTreeSet<PathBuf>,
    /// The next model's number.
    next: usize,
    /// The folder could not be listed, which was said.
    is_unreadable: bool,
}

impl Folder {
    /// The folder at `path`, from which some of `all` are.
    pub fn new(path: PathBuf, all: &[Named]) -> Folder {
        let (mut there, mut taken) = (BTreeMap::new(), BTreeSet::new());
        for (index, one) in all.iter().enumerate() {
            match one.place.folder().filter(|_| !one.is_asked_for) {
                Some(folder) => drop(there.insert(folder.to_owned(), (one.name.clone(), index))),
                None => drop(taken.insert(one.name.clone())),
            }
        }
        let (passed, next) = (BTreeSet::new(), all.len());
        let state = State { there, taken, passed, next, is_unreadable: false };
        Folder { path, state: Mutex::new(state) }
    }

    /// The models that came since the last call, which have the next numbers, and the numbers of
    /// those that went. Nothing went while the folder cannot be listed.
    pub fn changes(&self) -> (Vec<Named>, Vec<usize>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match sources::under(&self.path) {
            Ok(found) => found,
            Err(failure) => {
                if !std::mem::replace(&mut state.is_unreadable, true) {
                    tracing::warn!(target: "models", "--models-dir: {failure}");
                }
                return Default::default();
            }
        };
        state.is_unreadable = false;
        let paths: BTreeSet<_> = found.iter().map(|found| found.path.clone()).collect();
        let mut removed = Vec::new();
        state.there.retain(|path, (_, index)| {
            let stays = paths.contains(path);
            if !stays {
                removed.push(*index);
            }
            stays
        });
        state.passed.retain(|path| paths.contains(path));
        let is_new = |path: &PathBuf| !state.there.contains_key(path);
        let new: Vec<_> = found.iter().filter(|found| is_new(&found.path)).collect();
        let came = new.into_iter().filter_map(|one| sources::found(&self.path, one));
        (came.filter(|one| state.takes(one)).collect(), removed)
    }
}

impl State {
    /// Takes in a model that came, unless another one has its name.
    fn takes(&mut self, one: &Named) -> bool {
        let Some(folder) = one.place.folder() else { return false };
        let is_taken = self.there.values().any(|(name, _)| *name == one.name);
        if is_taken || self.taken.contains(&one.name) {
            if self.passed.insert(folder.to_owned()) {
                let folder = folder.display();
                tracing::warn!(target: "models", "{folder}: another model is called `{}`", one.name);
            }
            return false;
        }
        self.there.insert(folder.to_owned(), (one.name.clone(), self.next));
        self.next += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{Folder, Named, sources};
    use crate::commands::serve::sources::Place;

    fn put(folder: &Path, name: &str) {
        let model = folder.join(name);
        fs::create_dir(&model).unwrap();
        fs::write(model.join("config.json"), "{}").unwrap();
        fs::write(model.join("model.safetensors"), "").unwrap();
    }

    fn there(folder: &Path) -> Vec<Named> {
        let found = sources::under(folder).unwrap();
        found.iter().filter_map(|one| sources::found(folder, one)).collect()
    }

    fn names(came: &[Named]) -> Vec<&str> {
        came.iter().map(|one| one.name.as_str()).collect()
    }

    #[test]
    fn models_that_come_have_new_numbers_and_names_that_are_free() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "fox");
        let mut all = there(folder.path());
        let place = Place::Image("elsewhere".into());
        all.push(Named { name: "owl".into(), place, is_asked_for: true });
        let watched = Folder::new(folder.path().into(), &all);
        let none = watched.changes();
        assert!(none.0.is_empty() && none.1.is_empty());

        put(folder.path(), "bear");
        put(folder.path(), "owl");
        let (came, went) = watched.changes();
        assert_eq!((names(&came), went), (vec!["bear"], vec![]));
        fs::remove_dir_all(folder.path().join("fox")).unwrap();
        assert_eq!(watched.changes().1, [0]);
        put(folder.path(), "fox");
        fs::remove_dir_all(folder.path().join("bear")).unwrap();
        let (came, went) = watched.changes();
        assert_eq!((names(&came), went), (vec!["fox"], vec![2]));
        fs::remove_dir_all(folder.path().join("fox")).unwrap();
        assert_eq!(watched.changes().1, [3]);
    }

    #[test]
    fn files_of_gguf_that_share_a_folder_are_named_with_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("fox")).unwrap();
        for name in ["fox/fox-Q4_0.gguf", "fox/fox-Q8_0.gguf", "loose.gguf"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let expected = ["fox/fox-Q4_0.gguf", "fox/fox-Q8_0.gguf", "loose.gguf"];
        assert_eq!(names(&there(folder.path())), expected);
        let watched = Folder::new(folder.path().into(), &[]);
        assert_eq!(names(&watched.changes().0), expected);
    }

    #[test]
    fn nothing_went_from_a_folder_that_cannot_be_listed() {
        let folder = tempfile::tempdir().unwrap();
        let models = folder.path().join("models");
        fs::create_dir(&models).unwrap();
        put(&models, "fox");
        let watched = Folder::new(models.clone(), &there(&models));
        fs::rename(&models, folder.path().join("away")).unwrap();
        assert!(watched.changes().1.is_empty());
    }
}
