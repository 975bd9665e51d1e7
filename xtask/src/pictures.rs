//! `cargo xtask modules`: pictures of the crates' modules, one page a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::manifest::{dependencies, package_name};
use crate::modules::{graphs, index, page};
use crate::repository::{File, files};

/// The folder of the pages.
pub const FOLDER: &str = "docs/design/modules/";

/// Writes the pages, and deletes those of crates that are gone.
pub fn run(root: &Path) -> Result<()> {
    let files = files(root)?;
    let pages = pages(&files);
    fs::create_dir_all(root.join(FOLDER)).with_context(|| format!("cannot make {FOLDER}"))?;
    for (path, text) in &pages {
        fs::write(root.join(path), text).with_context(|| format!("cannot write {path}"))?;
    }
    for file in files.iter().filter(|file| file.path.starts_with(FOLDER)) {
        if !pages.contains_key(&file.path) {
            let path = root.join(&file.path);
            fs::remove_file(path).with_context(|| format!("cannot delete {}", file.path))?;
        }
    }
    Ok(())
}

/// Path and text of every page.
pub fn pages(files: &[File]) -> BTreeMap<String, String> {
    let graphs = graphs(files);
    let pages: BTreeMap<&str, String> =
        graphs.iter().filter_map(|graph| Some((graph.name.as_str(), page(graph)?))).collect();
    let names = pages.keys().copied().collect();
    let mut found = BTreeMap::from([(format!("{FOLDER}README.md"), index(&crates(files), &names))]);
    found.extend(pages.into_iter().map(|(name, text)| (format!("{FOLDER}{name}.md"), text)));
    found
}

/// Each crate and the crates of the repository that it depends on, tests and build scripts aside.
fn crates(files: &[File]) -> BTreeMap<&str, BTreeSet<&str>> {
    let manifests = files.iter().filter(|file| file.name() == "Cargo.toml");
    let packages: BTreeMap<&str, &str> = manifests
        .filter_map(|file| Some((package_name(&file.text)?, file.text.as_str())))
        .collect();
    let uses = |manifest| {
        let ours = dependencies(manifest).into_iter().filter(|dependency| {
            packages.contains_key(dependency.name)
                && !dependency.of_tests
                && !dependency.of_build_script
        });
        ours.map(|dependency| dependency.name).collect()
    };
    packages.iter().map(|(name, manifest)| (*name, uses(manifest))).collect()
}
