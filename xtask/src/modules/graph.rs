//! The arrows between the files of a crate: who uses what another one declares.
//!
//! An arrow leads to the file that declares an item, not to the ones that re-export it. A file
//! that only declares its modules and re-exports their items uses nothing, whatever stands below
//! it. A method or a field that is reached through a value, without the name of its type, is no
//! arrow.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{Names, Target};
use super::source::{Kind, Reach};
use super::tree::{Problem, Tree};

/// The files of a crate and the arrows between them.
pub struct Graph {
    /// The crate's name.
    pub name: String,
    /// The folder of its manifest, with `/` at its end.
    pub folder: String,
    /// The files, but those for tests alone, each with the path of its module.
    pub files: BTreeMap<String, Vec<String>>,
    /// The first sentence of each file's header.
    headers: BTreeMap<String, String>,
    /// One arrow for each pair of files.
    pub arrows: Vec<Arrow>,
    /// Names of outside crates in paths, with the place.
    pub outside: Vec<Outside>,
    pub public_types: Vec<PublicType>,
    pub problems: Vec<Problem>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrow {
    pub from: String,
    pub to: String,
    /// The line of the first use; `path` is its path as written.
    pub line: usize,
    pub path: String,
}

/// A path that leads out of the crate, or to a name that is none.
pub struct Outside {
    pub from: String,
    pub line: usize,
    pub path: Vec<String>,
}

/// A type that other crates can name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicType {
    pub name: String,
    pub file: String,
    pub line: usize,
}

impl Graph {
    /// Reads the crate `name` in `folder`, of which `roots` are the targets' first files.
    pub fn read(name: &str, folder: &str, roots: &[String], texts: &BTreeMap<&str, &str>) -> Self {
        let mut tree = Tree::read(roots, texts);
        let mut problems = std::mem::take(&mut tree.problems);
        for file in texts.keys().filter(|file| file.starts_with(&format!("{folder}src/"))) {
            if !tree.reached.contains(*file) {
                let message = "no module declares this file; declare it with `mod`, or delete it";
                let file = (*file).to_owned();
                problems.push(Problem { file, line: 1, message: message.to_owned() });
            }
        }
        let names = Names::new(&tree, name);
        let (mut files, mut headers) = (BTreeMap::new(), BTreeMap::new());
        for module in &tree.modules {
            files.entry(module.file.clone()).or_insert_with(|| module.path.clone());
            let header = texts.get(module.file.as_str()).and_then(|text| first_sentence(text));
            headers.extend(header.map(|header| (module.file.clone(), header)));
        }
        let mut collected = Collected::default();
        for module in 0..tree.modules.len() {
            collected.add(&tree, &names, module);
        }
        let public_types = public_types(&tree, &names);
        drop(names);
        Graph {
            name: name.to_owned(),
            folder: folder.to_owned(),
            files,
            headers,
            arrows: collected.arrows.into_values().collect(),
            outside: collected.outside,
            public_types,
            problems,
        }
    }

    /// The module below the root that a file is in; `None` for a root itself.
    pub fn room(&self, file: &str) -> Option<&str> {
        self.files.get(file)?.first().map(String::as_str)
    }

    /// The first sentence of the file of the module at `path`.
    pub fn says(&self, path: &[&str]) -> Option<&str> {
        let (file, _) = self.files.iter().find(|(_, module)| *module == path)?;
        self.headers.get(file).map(String::as_str)
    }
}

/// The first sentence of the comment that a file begins with, links without their brackets.
fn first_sentence(text: &str) -> Option<String> {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let paragraph: Vec<&str> = lines.map(str::trim).take_while(|line| !line.is_empty()).collect();
    let text = paragraph.join(" ");
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    let sentence = text[..end].replace("[`", "`").replace("`]", "`");
    (!sentence.is_empty()).then_some(sentence)
}

#[derive(Default)]
struct Collected {
    arrows: BTreeMap<(String, String), Arrow>,
    outside: Vec<Outside>,
}

impl Collected {
    fn add(&mut self, tree: &Tree, names: &Names<'_>, module: usize) {
        let source = &tree.modules[module].source;
        for import in &source.imports {
            for target in names.resolve(module, &import.path) {
                // To hand on what lies below is to be its face, not to use it.
                let is_face = import.reach != Reach::Private
                    && matches!(target, Target::Item(at, _) if tree.is_within(at, module));
                if !is_face {
                    self.arrow(tree, module, target, (&import.path, import.line));
                }
            }
            self.leave(tree, names, module, (&import.path, import.line));
        }
        for mention in &source.mentions {
            let mut targets = names.resolve(module, &mention.path);
            if mention.is_macro
                && targets.is_empty()
                && let [name] = mention.path.as_slice()
            {
                targets.extend(names.macro_named(name));
            }
            for target in targets {
                self.arrow(tree, module, target, (&mention.path, mention.line));
            }
            self.leave(tree, names, module, (&mention.path, mention.line));
        }
    }

    fn arrow(&mut self, tree: &Tree, from: usize, to: Target, (path, line): (&[String], usize)) {
        let Target::Item(to, _) = to else { return };
        let (from, to) = (tree.modules[from].file.clone(), tree.modules[to].file.clone());
        if from == to {
            return;
        }
        let arrow = Arrow { from: from.clone(), to: to.clone(), line, path: path.join("::") };
        let first = self.arrows.entry((from, to)).or_insert_with(|| arrow.clone());
        if line < first.line {
            *first = arrow;
        }
    }

    fn leave(
        &mut self,
        tree: &Tree,
        names: &Names<'_>,
        module: usize,
        (path, line): (&[String], usize),
    ) {
        if path.len() > 1 && names.resolve(module, path).is_empty() {
            let from = tree.modules[module].file.clone();
            self.outside.push(Outside { from, line, path: path.to_vec() });
        }
    }
}

/// The types that can be named from outside the library, each under its public names.
fn public_types(tree: &Tree, names: &Names<'_>) -> Vec<PublicType> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let is_library = tree.modules.first().is_some_and(|root| root.file.ends_with("/lib.rs"));
    let mut waiting: Vec<usize> = is_library.then_some(0).into_iter().collect();
    while let Some(module) = waiting.pop() {
        if !seen.insert(module) {
            continue;
        }
        for (name, target) in names.public_names(module) {
            match target {
                Target::Module(inner) => waiting.push(inner),
                Target::Item(at, Some(index)) => {
                    let declared = &tree.modules[at].source.declared[index];
                    if declared.kind == Kind::Type {
                        found.insert(PublicType {
                            name: name.to_owned(),
                            file: tree.modules[at].file.clone(),
                            line: declared.line,
                        });
                    }
                }
                Target::Item(_, None) => {}
            }
        }
    }
    found.into_iter().collect()
}
