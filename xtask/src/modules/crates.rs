//! The crates of the repository, and the first file of each of their targets.

use std::collections::BTreeMap;

use super::graph::Graph;
use crate::manifest::{package_name, target_paths};
use crate::repository::File;

/// The graph of every crate.
pub fn graphs(files: &[File]) -> Vec<Graph> {
    let sources = files.iter().filter(|file| file.has_extension(&["rs"]));
    let texts: BTreeMap<&str, &str> =
        sources.map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let manifests = files.iter().filter(|file| file.name() == "Cargo.toml");
    let packages = manifests.filter_map(|file| Some((file, package_name(&file.text)?)));
    let graph = |(file, name): (&File, &str)| {
        let folder = file.path.trim_end_matches("Cargo.toml");
        Graph::read(name, folder, &roots(folder, &file.text, &texts), &texts)
    };
    packages.map(graph).collect()
}

/// The first files of a crate's library and programs, the library's before the others.
fn roots(folder: &str, manifest: &str, texts: &BTreeMap<&str, &str>) -> Vec<String> {
    let usual = ["src/lib.rs", "src/main.rs"].map(|path| format!("{folder}{path}"));
    let named = target_paths(manifest).into_iter().map(|path| format!("{folder}{path}"));
    let programs = format!("{folder}src/bin/");
    let programs = texts.keys().filter(|path| {
        path.strip_prefix(&programs).is_some_and(|name| {
            name.matches('/').count() == usize::from(name.ends_with("/main.rs"))
        })
    });
    let mut roots = Vec::new();
    for root in usual.into_iter().chain(named).chain(programs.map(|path| (*path).to_owned())) {
        if texts.contains_key(root.as_str()) && !roots.contains(&root) {
            roots.push(root);
        }
    }
    roots
}
