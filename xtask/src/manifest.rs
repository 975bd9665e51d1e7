//! Names and dependencies in a crate's manifest.

/// A line of a manifest that names a dependency.
pub struct Dependency<'a> {
    pub line: usize,
    pub name: &'a str,
    pub of_build_script: bool,
    pub of_tests: bool,
}

impl<'a> Dependency<'a> {
    fn new(line: usize, name: &'a str, section: &str) -> Self {
        Dependency {
            line,
            name,
            of_build_script: section.ends_with("build-dependencies"),
            of_tests: section.ends_with("dev-dependencies"),
        }
    }
}

/// The package's name; `None` for a manifest of a workspace alone.
pub fn package_name(manifest: &str) -> Option<&str> {
    let package = manifest.lines().skip_while(|line| line.trim() != "[package]").skip(1);
    let mut keys = package.take_while(|line| !line.starts_with('[')).filter_map(key_value);
    keys.find(|(key, _)| *key == "name").map(|(_, value)| value.trim_matches('"'))
}

fn key_value(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    let key = key.trim();
    (!key.starts_with('#')).then_some((key, value.trim()))
}

/// The dependencies of every kind, by the name of the package.
pub fn dependencies(manifest: &str) -> Vec<Dependency<'_>> {
    let mut found = Vec::new();
    let mut section = "";
    for (index, text) in manifest.lines().enumerate() {
        let line = index + 1;
        if let Some(header) = text.trim().strip_prefix('[') {
            section = header.split(']').next().unwrap_or_default();
            // `[dependencies.name]` names its dependency in the header.
            if let Some((table, name)) = section.rsplit_once('.')
                && table.ends_with("dependencies")
                && !table.starts_with("workspace")
            {
                found.push(Dependency::new(line, name, table));
            }
        } else if section.ends_with("dependencies")
            && !section.starts_with("workspace")
            && let Some((key, value)) = key_value(text)
        {
            let renamed = value.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
            let name = renamed.unwrap_or_else(|| key.split('.').next().unwrap_or(key));
            found.push(Dependency::new(line, name, section));
        }
    }
    found
}

/// The files below `src` that targets give as their `path`.
pub fn target_paths(manifest: &str) -> Vec<&str> {
    let values = manifest.lines().filter_map(key_value).filter(|(key, _)| *key == "path");
    values
        .map(|(_, value)| value.trim_matches('"'))
        .filter(|path| path.starts_with("src/"))
        .collect()
}
