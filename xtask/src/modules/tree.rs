//! The tree of a crate's modules, and the file that each of them is in.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Inner, Source};

/// A crate's modules. The first one is the root of the library or of the program.
pub struct Tree {
    pub modules: Vec<Module>,
    /// Every file that a module is in, tests' ones too.
    pub reached: BTreeSet<String>,
    pub problems: Vec<Problem>,
}

pub struct Module {
    /// The names from the root down to it; empty for a root.
    pub path: Vec<String>,
    pub file: String,
    pub parent: Option<usize>,
    pub is_public: bool,
    pub children: Vec<usize>,
    pub source: Source,
}

/// A place of which the modules cannot be told.
pub struct Problem {
    pub file: String,
    pub line: usize,
    pub message: String,
}

/// The place in which a module's own modules are looked for.
#[derive(Clone, Copy)]
struct Place<'a> {
    parent: usize,
    file: &'a str,
    folder: &'a str,
    of_tests: bool,
}

impl Tree {
    /// Reads the modules below `roots` from the texts of all files.
    pub fn read(roots: &[String], texts: &BTreeMap<&str, &str>) -> Tree {
        let mut tree = Tree { modules: Vec::new(), reached: BTreeSet::new(), problems: Vec::new() };
        for root in roots {
            let module = Module {
                path: Vec::new(),
                file: root.clone(),
                parent: None,
                is_public: true,
                children: Vec::new(),
                source: Source::default(),
            };
            let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
            if let Some(source) = tree.parse(root, texts) {
                tree.add(module, source, folder, false, texts);
            }
        }
        tree
    }

    fn parse(&mut self, file: &str, texts: &BTreeMap<&str, &str>) -> Option<Source> {
        self.reached.insert(file.to_owned());
        match Source::parse(texts.get(file)?) {
            Ok(source) => Some(source),
            Err(error) => {
                let (line, message) = (error.span().start().line, format!("no Rust: {error}"));
                self.problems.push(Problem { file: file.to_owned(), line, message });
                None
            }
        }
    }

    /// Takes a module and, from `folder`, those below it. Those of tests are only walked through.
    fn add(
        &mut self,
        module: Module,
        mut source: Source,
        folder: &str,
        of_tests: bool,
        texts: &BTreeMap<&str, &str>,
    ) {
        let id = self.modules.len();
        let file = module.file.clone();
        for name in std::mem::take(&mut source.included) {
            if let Some(other) = self.parse(&beside(&file, &name), texts) {
                source.include(other);
            }
        }
        let inner = std::mem::take(&mut source.modules);
        if !of_tests {
            if let Some(parent) = module.parent {
                self.modules[parent].children.push(id);
            }
            self.modules.push(Module { source, ..module });
        }
        for inner in inner {
            let place = Place { parent: id, file: &file, folder, of_tests };
            self.add_inner(inner, place, texts);
        }
    }

    fn add_inner(&mut self, inner: Inner, place: Place<'_>, texts: &BTreeMap<&str, &str>) {
        let of_tests = place.of_tests || inner.of_tests;
        let mut path = Vec::new();
        if !of_tests {
            path.clone_from(&self.modules[place.parent].path);
            path.push(inner.name.clone());
        }
        let module = |file: String| Module {
            path,
            file,
            parent: Some(place.parent),
            is_public: inner.is_public,
            children: Vec::new(),
            source: Source::default(),
        };
        let name = &inner.name;
        if let Some(source) = inner.content {
            let folder = format!("{}/{name}", place.folder);
            self.add(module(place.file.to_owned()), source, &folder, of_tests, texts);
            return;
        }
        let candidates = match &inner.path {
            Some(path) => vec![beside(place.file, path)],
            None => ["{name}.rs", "{name}/mod.rs"]
                .map(|form| format!("{}/{}", place.folder, form.replace("{name}", name)))
                .to_vec(),
        };
        let Some(file) = candidates.iter().find(|file| texts.contains_key(file.as_str())) else {
            let message = format!("no file for `mod {name}`; looked for {}", candidates.join(", "));
            let file = place.file.to_owned();
            self.problems.push(Problem { file, line: inner.line, message });
            return;
        };
        // A file named by `#[path]` has its own modules beside it, as `mod.rs` has.
        let folder = match inner.path.is_some() || file.ends_with("/mod.rs") {
            true => file.rsplit_once('/').map_or("", |(folder, _)| folder),
            false => file.trim_end_matches(".rs"),
        };
        if let Some(source) = self.parse(file, texts) {
            self.add(module(file.clone()), source, folder, of_tests, texts);
        }
    }

    /// Returns true when `module` is `above` or somewhere below it.
    pub fn is_within(&self, module: usize, above: usize) -> bool {
        let mut at = Some(module);
        while let Some(id) = at {
            if id == above {
                return true;
            }
            at = self.modules[id].parent;
        }
        false
    }

    /// The root that `module` is below.
    pub fn root(&self, module: usize) -> usize {
        self.modules[module].parent.map_or(module, |parent| self.root(parent))
    }
}

/// `path` as seen from the folder of `file`, without `.` and `..`.
fn beside(file: &str, path: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}
