//! Which crate may depend on which: the arrows of ARCHITECTURE.md as a table.

use super::violation::Violation;
use crate::manifest::{Dependency, dependencies, package_name};
use crate::repository::File;

/// The workspace crates that a crate may use.
struct Arrows {
    name: &'static str,
    uses: &'static [&'static str],
    /// Further ones that its build script may use.
    build: &'static [&'static str],
}

const ARROWS: &[Arrows] = &[
    Arrows { name: "inference-core", uses: &[], build: &[] },
    Arrows { name: "inference-text", uses: &["inference-core"], build: &[] },
    Arrows { name: "pictures", uses: &[], build: &[] },
    Arrows { name: "sound", uses: &[], build: &[] },
    Arrows { name: "mlx-build", uses: &[], build: &[] },
    Arrows { name: "cpu-kernels", uses: &[], build: &[] },
    Arrows { name: "mlx-ffi", uses: &["cpu-kernels"], build: &["mlx-build"] },
    Arrows {
        name: "metal-backend",
        uses: &["inference-core", "inference-text", "mlx-ffi", "pictures", "sound"],
        // Here and below: for the search path of the shared libraries, which each crate with
        // executables, tests among them, sets for itself.
        build: &["mlx-build"],
    },
    Arrows { name: "hub", uses: &[], build: &[] },
    Arrows { name: "mcp", uses: &[], build: &[] },
    Arrows { name: "ml", uses: &["inference-core"], build: &[] },
    Arrows { name: "load-generator", uses: &[], build: &[] },
    Arrows {
        name: "inference-server",
        uses: &["inference-core", "inference-text", "pictures", "sound"],
        build: &[],
    },
    Arrows {
        name: "ml-on-mlx",
        uses: &[
            "hub",
            "inference-core",
            "inference-text",
            "load-generator",
            "mcp",
            "metal-backend",
            "pictures",
            "sound",
            "inference-server",
        ],
        build: &["mlx-build"],
    },
    Arrows {
        name: "benches",
        uses: &["inference-core", "inference-text", "metal-backend", "ml", "mlx-ffi"],
        build: &["mlx-build"],
    },
    Arrows {
        name: "fuzz",
        uses: &[
            "fake-model",
            "inference-core",
            "inference-server",
            "inference-text",
            "metal-backend",
            "pictures",
        ],
        build: &["mlx-build"],
    },
    Arrows { name: "xtask", uses: &["mlx-build"], build: &[] },
    Arrows { name: "echo-backend", uses: &["inference-core"], build: &[] },
    Arrows {
        name: "programs",
        uses: &["inference-core", "inference-text", "metal-backend", "ml"],
        build: &["mlx-build"],
    },
    Arrows { name: "fake-model", uses: &["inference-core"], build: &[] },
    Arrows { name: "fake-hub", uses: &[], build: &[] },
];

/// Further arrows for tests alone, as (crate, what its tests use).
const TESTS_USE: &[(&str, &str)] = &[
    // The facade is tested over a real model here, so that its own tests need no MLX.
    ("metal-backend", "ml"),
    // One model that does what a test tells it, for all who are tested without an engine.
    ("inference-core", "fake-model"),
    ("ml", "fake-model"),
    ("inference-server", "fake-model"),
    ("ml-on-mlx", "fake-model"),
    // One hub with repositories and faults, for the library and for the program.
    ("hub", "fake-hub"),
    ("ml-on-mlx", "fake-hub"),
    // Its measurements are held to a server whose times are known.
    ("load-generator", "fake-model"),
    ("load-generator", "inference-core"),
    ("load-generator", "inference-server"),
];

/// A crate that takes no dependency at all, so that downstream crates get none through it.
const WITHOUT_DEPENDENCIES: &str = "inference-core";

pub fn check(files: &[File]) -> Vec<Violation> {
    let manifests: Vec<_> = files
        .iter()
        .filter(|file| file.name() == "Cargo.toml")
        .filter_map(|file| Some((file, package_name(&file.text)?)))
        .collect();
    let is_ours = |name: &str| manifests.iter().any(|(_, package)| *package == name);

    let mut violations = Vec::new();
    for (file, package) in &manifests {
        let Some(arrows) = ARROWS.iter().find(|arrows| arrows.name == *package) else {
            let message = format!(
                "crate `{package}` has no arrows; add it to the table in xtask/src/tidy/arrows.rs \
                 and to ARCHITECTURE.md"
            );
            violations.push(Violation::new(&file.path, 1, message));
            continue;
        };
        for Dependency { line, name, of_build_script, of_tests } in dependencies(&file.text) {
            let allowed = arrows.uses.contains(&name)
                || of_build_script && arrows.build.contains(&name)
                || of_tests && TESTS_USE.contains(&(*package, name))
                || !is_ours(name) && *package != WITHOUT_DEPENDENCIES;
            if !allowed {
                let allowed = match arrows.uses {
                    [] => "no workspace crate".to_owned(),
                    uses => uses.join(", "),
                };
                let message = format!(
                    "`{package}` may not depend on `{name}`; it may use {allowed}: move the code \
                     to where the arrows of ARCHITECTURE.md point"
                );
                violations.push(Violation::new(&file.path, line, message));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use crate::tidy::tests::Tree;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{rest}\n")
    }

    #[test]
    fn allowed_arrows_and_outside_crates_pass() {
        let metal = "[dependencies]\ninference-core.workspace = true\nmlx-ffi = { path = \"x\" }\n\
                     serde = \"1\"\n[dev-dependencies]\ntempfile = \"3\"";
        Tree::new()
            .with("Cargo.toml", "[workspace.dependencies]\ninference-core = { path = \"a\" }\n")
            .with("a/Cargo.toml", &manifest("inference-core", "[dependencies]\n# none = \"1\""))
            .with("b/Cargo.toml", &manifest("mlx-ffi", "[build-dependencies]\nmlx-build = \"1\""))
            .with("c/Cargo.toml", &manifest("mlx-build", ""))
            .with("d/Cargo.toml", &manifest("metal-backend", metal))
            .expect(&[]);
    }

    #[test]
    fn an_arrow_that_points_up_or_aside_is_named_at_its_line() {
        Tree::new()
            .with("a/Cargo.toml", &manifest("metal-backend", ""))
            .with(
                "b/Cargo.toml",
                &manifest("inference-server", "[dependencies]\nmetal-backend = \"1\""),
            )
            .expect(&[("b/Cargo.toml:4", "`inference-server` may not depend on `metal-backend`")]);
    }

    #[test]
    fn tests_targets_tables_and_renamed_packages_are_seen_too() {
        let rest = [
            "[dev-dependencies]\nmetal-backend = \"1\"",
            "[target.'cfg(unix)'.dependencies]\nmetal-backend = \"1\"",
            "[dependencies]\nother = { package = \"metal-backend\", path = \"x\" }",
            "[dependencies]\n\n[dependencies.metal-backend]",
        ];
        for (rest, line) in rest.into_iter().zip([4, 4, 4, 5]) {
            Tree::new()
                .with("a/Cargo.toml", &manifest("metal-backend", ""))
                .with("b/Cargo.toml", &manifest("inference-server", rest))
                .expect(&[(&format!("b/Cargo.toml:{line}"), "metal-backend")]);
        }
    }

    #[test]
    fn a_build_script_may_use_more_than_the_crate_itself() {
        let tree = |section| {
            let rest = format!("[{section}]\nmlx-build.workspace = true");
            Tree::new()
                .with("a/Cargo.toml", &manifest("mlx-build", ""))
                .with("b/Cargo.toml", &manifest("ml-on-mlx", &rest))
        };
        tree("build-dependencies").expect(&[]);
        tree("dependencies")
            .expect(&[("b/Cargo.toml:4", "`ml-on-mlx` may not depend on `mlx-build`")]);
    }

    #[test]
    fn tests_may_use_more_than_the_crate_itself() {
        let tree = |section| {
            Tree::new().with("a/Cargo.toml", &manifest("ml", "")).with(
                "b/Cargo.toml",
                &manifest("metal-backend", &format!("[{section}]\nml = \"1\"")),
            )
        };
        tree("dev-dependencies").expect(&[]);
        tree("dependencies")
            .expect(&[("b/Cargo.toml:4", "`metal-backend` may not depend on `ml`")]);
    }

    #[test]
    fn the_contract_takes_no_dependency_not_even_for_its_tests() {
        Tree::new()
            .with("a/Cargo.toml", &manifest("inference-core", "[dev-dependencies]\nserde = \"1\""))
            .expect(&[("a/Cargo.toml:4", "`inference-core` may not depend on `serde`")]);
    }

    #[test]
    fn a_crate_without_arrows_is_told_where_to_add_them() {
        Tree::new()
            .with("a/Cargo.toml", &manifest("new", ""))
            .expect(&[("a/Cargo.toml:1", "xtask/src/tidy/arrows.rs")]);
    }
}
