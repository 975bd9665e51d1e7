//! Resolves paths in modules: imports and re-exports followed to the declaration of an item.

use std::collections::HashMap;

use super::source::{Kind, Reach};
use super::tree::Tree;

/// The target of a name. One name can have several, a module and a function for example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    Module(usize),
    /// An item of a module; no index where a macro made it.
    Item(usize, Option<usize>),
}

/// The names of each module.
pub struct Names<'a> {
    tree: &'a Tree,
    /// The crate's own name in paths, and the root that it means.
    own: (String, usize),
    scopes: Vec<Scope<'a>>,
    /// Macros are found by name anywhere below their text, so by name alone here.
    macros: HashMap<&'a str, Target>,
}

#[derive(Default)]
struct Scope<'a> {
    found: HashMap<&'a str, Vec<Target>>,
    imports: HashMap<&'a str, Vec<usize>>,
    globs: Vec<usize>,
}

impl<'a> Names<'a> {
    /// `own` is the crate's name.
    pub fn new(tree: &'a Tree, own: &str) -> Self {
        let mut macros = HashMap::new();
        let scope = |(id, module): (usize, &'a super::tree::Module)| {
            let mut scope = Scope::default();
            for (index, declared) in module.source.declared.iter().enumerate() {
                let target = Target::Item(id, Some(index));
                scope.found.entry(declared.name.as_str()).or_default().push(target);
                if declared.kind == Kind::Macro {
                    macros.entry(declared.name.as_str()).or_insert(target);
                }
            }
            for &child in &module.children {
                let name = tree.modules[child].path.last().map_or("", String::as_str);
                scope.found.entry(name).or_default().push(Target::Module(child));
            }
            for (index, import) in module.source.imports.iter().enumerate() {
                match &import.name {
                    Some(name) => scope.imports.entry(name.as_str()).or_default().push(index),
                    None => scope.globs.push(index),
                }
            }
            scope
        };
        let scopes = tree.modules.iter().enumerate().map(scope).collect();
        Names { tree, own: (own.replace('-', "_"), 0), scopes, macros }
    }

    /// The targets of `path` in `module`; none where it leads out of the crate.
    pub fn resolve(&self, module: usize, path: &[String]) -> Vec<Target> {
        self.follow(module, path, &mut Vec::new())
    }

    /// The item that the macro called `name` is.
    pub fn macro_named(&self, name: &str) -> Option<Target> {
        self.macros.get(name).copied()
    }

    /// Everything that `use path::*` in `module` would bring in, as `(name, target)`.
    pub fn public_names(&self, module: usize) -> Vec<(&'a str, Target)> {
        let (source, mut found) = (&self.tree.modules[module].source, Vec::new());
        for (index, declared) in source.declared.iter().enumerate() {
            if declared.is_public {
                found.push((declared.name.as_str(), Target::Item(module, Some(index))));
            }
        }
        for &child in &self.tree.modules[module].children {
            let child_module = &self.tree.modules[child];
            if child_module.is_public {
                let name = child_module.path.last().map_or("", String::as_str);
                found.push((name, Target::Module(child)));
            }
        }
        for import in source.imports.iter().filter(|import| import.reach == Reach::Public) {
            for target in self.resolve(module, &import.path) {
                match (&import.name, target) {
                    (Some(name), target) => found.push((name, target)),
                    (None, Target::Module(inner)) if inner != module => {
                        found.extend(self.public_names(inner));
                    }
                    (None, _) => {}
                }
            }
        }
        found
    }

    fn follow(&self, module: usize, path: &[String], trail: &mut Trail) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let parent = |module: usize| self.tree.modules[module].parent.unwrap_or(module);
        let mut targets = match first.as_str() {
            "crate" => vec![Target::Module(self.tree.root(module))],
            "self" => vec![Target::Module(module)],
            "super" => vec![Target::Module(parent(module))],
            name => {
                let found = self.lookup(module, name, trail);
                match found.is_empty() && *name == self.own.0 {
                    true => vec![Target::Module(self.own.1)],
                    false => found,
                }
            }
        };
        for name in rest {
            let step = |target| match target {
                Target::Module(module) if name == "super" => vec![Target::Module(parent(module))],
                // What nothing declares or imports is made by a macro there.
                Target::Module(module) if !self.knows(module, name) => {
                    vec![Target::Item(module, None)]
                }
                Target::Module(module) => self.lookup(module, name, trail),
                // A variant or an associated item lies with its type; below a function is nothing.
                Target::Item(module, Some(index)) => {
                    match self.tree.modules[module].source.declared[index].kind {
                        Kind::Type => vec![target],
                        Kind::Value | Kind::Macro => Vec::new(),
                    }
                }
                made_by_macro => vec![made_by_macro],
            };
            targets = targets.into_iter().flat_map(step).collect();
        }
        targets
    }

    fn knows(&self, module: usize, name: &str) -> bool {
        let scope = &self.scopes[module];
        let is_named = scope.found.contains_key(name) || scope.imports.contains_key(name);
        is_named || !self.lookup(module, name, &mut Vec::new()).is_empty()
    }

    /// The targets of `name` in `module`.
    ///
    /// `trail` holds the names being looked up, so that imports in a circle end.
    fn lookup(&self, module: usize, name: &str, trail: &mut Trail) -> Vec<Target> {
        let here = (module, name.to_owned());
        if trail.contains(&here) {
            return Vec::new();
        }
        trail.push(here);
        let (scope, source) = (&self.scopes[module], &self.tree.modules[module].source);
        let mut found = scope.found.get(name).cloned().unwrap_or_default();
        for &index in scope.imports.get(name).into_iter().flatten() {
            found.extend(self.follow(module, &source.imports[index].path, trail));
        }
        if found.is_empty() {
            for &index in &scope.globs {
                for target in self.follow(module, &source.imports[index].path, trail) {
                    if let Target::Module(inner) = target {
                        found.extend(self.lookup(inner, name, trail));
                    }
                }
            }
        }
        trail.pop();
        found.sort();
        found.dedup();
        found
    }
}

/// The modules and names that are being looked up.
type Trail = Vec<(usize, String)>;
