//! The licences of what an archive holds.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use mlx_build::HOST;
use serde_json::Value;

use super::files::copy;
use crate::repository::root;

/// How files with licences begin, in capitals.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];
/// The package of the program.
const PACKAGE: &str = "ml-on-mlx";

/// Writes `rust.txt`, with the licences of all crates in the program, those of MLX, and those of
/// the libraries in the server's page.
pub fn write(folder: &Path, mlx_lib: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("rust.txt"), of_crates(&crates()?)?)?;
    // The wheel's own, with a list of what it holds besides.
    let dist = mlx_lib.ancestors().nth(2).context("MLX lies in a folder of its own")?;
    let mut found = 0;
    for entry in fs::read_dir(dist)? {
        let info = entry?.path();
        if info.extension().is_none_or(|end| end != "dist-info") {
            continue;
        }
        let licence = info.join("licenses/LICENSE");
        copy(&licence, &folder.join("mlx.txt"))?;
        found += 1;
        let contents = info.join("sboms/auditwheel.cdx.json");
        if contents.is_file() {
            copy(&contents, &folder.join("mlx-libraries.cdx.json"))?;
        }
    }
    ensure!(found == 1, "{}: {found} wheels of MLX", dist.display());
    for (name, licence) in of_page()? {
        copy(&licence, &folder.join(format!("page-{name}.txt")))?;
    }
    Ok(())
}

/// The names of the libraries in the server's page, each with the file of its licence.
fn of_page() -> Result<Vec<(String, PathBuf)>> {
    let vendor = root().join("crates/server/page/vendor");
    let mut found = Vec::new();
    for entry in fs::read_dir(&vendor).with_context(|| format!("no {}", vendor.display()))? {
        let folder = entry?.path();
        if let Some(name) = folder.file_name().filter(|_| folder.is_dir()) {
            found.push((name.to_string_lossy().into_owned(), folder.join("LICENSE")));
        }
    }
    Ok(found)
}

/// A crate that is part of the program.
struct Crate {
    name: String,
    version: String,
    /// The licence by its manifest.
    licence: String,
    folder: PathBuf,
}

/// All crates of others in the program: what is compiled into it, and what wrote code of it.
fn crates() -> Result<Vec<Crate>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root())
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform", HOST])
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    part_of_program(&serde_json::from_slice(&output.stdout)?)
}

/// Those that the program depends on, other than for tests and builds.
fn part_of_program(metadata: &Value) -> Result<Vec<Crate>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]);
    let nodes: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .filter_map(|node| Some((node["id"].as_str()?.to_owned(), node)))
        .collect();
    let program = packages.iter().find(|package| package["name"] == PACKAGE);
    let program = program.and_then(|package| package["id"].as_str());
    let mut open = vec![program.context("the program has a package")?.to_owned()];
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        for dependency in nodes.get(&id).map(|node| list(&node["deps"])).unwrap_or_default() {
            let is_normal =
                list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            open.extend(dependency["pkg"].as_str().filter(|_| is_normal).map(str::to_owned));
        }
    }
    let of = |package: &Value| {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let folder = Path::new(&text("manifest_path")).parent().map(Path::to_owned);
        Some(Crate {
            name: text("name"),
            version: text("version"),
            licence: text("license"),
            folder: folder?,
        })
    };
    // What has no source is of this workspace.
    let others = packages.iter().filter(|package| !package["source"].is_null());
    let parts = others.filter(|package| package["id"].as_str().is_some_and(|id| seen.contains(id)));
    Ok(parts.filter_map(of).collect())
}

/// Each text once, below the names of the crates that have it.
fn of_crates(crates: &[Crate]) -> Result<String> {
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without = Vec::new();
    for one in crates {
        let title = format!("{} {} ({})", one.name, one.version, one.licence);
        let texts = texts(&one.folder)?;
        if texts.is_empty() {
            without.push(title.clone());
        }
        for text in texts {
            by_text.entry(text).or_default().push(title.clone());
        }
    }
    let mut all = String::from("The crates in this program and their licences.\n");
    if !without.is_empty() {
        all += "\nWithout a text in their packages, under the licence in brackets:\n";
        without.iter().for_each(|title| all += &format!("  {title}\n"));
    }
    for (text, titles) in by_text {
        all += &format!("\n{}\n{}\n\n{}\n", "=".repeat(80), titles.join("\n"), text.trim());
    }
    Ok(all)
}

/// The texts of licences that a crate's folder has.
fn texts(folder: &Path) -> Result<BTreeSet<String>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut texts = BTreeSet::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if path.is_file() && NAMES.iter().any(|known| name.starts_with(known)) {
            texts.insert(String::from_utf8_lossy(&fs::read(&path)?).replace("\r\n", "\n"));
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_library_of_the_page_has_its_licence() {
        let libraries = of_page().unwrap();
        assert!(!libraries.is_empty());
        for (name, licence) in libraries {
            assert!(licence.is_file(), "{name}: no {}", licence.display());
        }
    }

    #[test]
    fn the_programs_crates_have_licences_that_may_be_shipped() {
        let crates = crates().unwrap();
        let has = |name: &str| crates.iter().any(|one| one.name == name);
        // The server's, and none of the tests' or of this program's own.
        assert!(has("axum") && has("tokenizers") && !has("proptest") && !has("tar"));
        for one in &crates {
            // The last one is that of Mozilla's list of certificates.
            let is_free = [
                "MIT",
                "Apache-2.0",
                "BSD",
                "ISC",
                "Zlib",
                "Unicode-3.0",
                "MPL-2.0",
                "CDLA-Permissive-2.0",
            ];
            let is_known = is_free.iter().any(|name| one.licence.contains(name));
            assert!(is_known, "{} {}: `{}`", one.name, one.version, one.licence);
        }
        let text = of_crates(&crates).unwrap();
        assert!(text.contains("Permission is hereby granted"), "{text}");
    }
}
