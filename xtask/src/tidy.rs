//! `cargo xtask tidy`: what a program can check of the rules in ARCHITECTURE.md and
//! CONTRIBUTING.md. It runs as a test too, so that `cargo test --workspace` covers it.

mod arrows;
mod circles;
mod doc_comments;
mod documents;
mod extending;
mod floors;
mod lexer;
mod names;
mod pictures;
mod prose;
mod rust;
mod text;
mod violation;
mod words;

use std::path::Path;

use anyhow::{Result, bail};

use crate::modules::graphs;
use crate::repository::files;
use violation::Violation;

/// Prints every violation under `root` and fails where there is one.
pub fn run(root: &Path) -> Result<()> {
    report(&check(root)?)
}

fn report(violations: &[Violation]) -> Result<()> {
    for violation in violations {
        eprintln!("{violation}");
    }
    match violations.len() {
        0 => Ok(()),
        1 => bail!("tidy: 1 violation"),
        count => bail!("tidy: {count} violations"),
    }
}

fn check(root: &Path) -> Result<Vec<Violation>> {
    let files = files(root)?;
    let graphs = graphs(&files);
    let mut violations = arrows::check(&files);
    violations.extend(circles::check(&graphs));
    violations.extend(floors::check(&graphs));
    violations.extend(names::check(&graphs));
    violations.extend(pictures::check(&files));
    violations.extend(prose::check(&files));
    violations.extend(doc_comments::check(&files));
    violations.extend(rust::check(&files));
    violations.extend(text::check(&files));
    violations.extend(documents::check(root, &files));
    violations.extend(extending::check(&files));
    violations.sort();
    Ok(violations)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A folder of the test's own, removed at the end.
    pub struct Tree(PathBuf);

    impl Tree {
        /// A tree without violations.
        pub fn new() -> Self {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("tidy-{}-{count}", std::process::id());
            let tree = Tree(std::env::temp_dir().join(name));
            let _ = fs::remove_dir_all(&tree.0);
            tree.with("CHANGELOG.md", "## [Unreleased]\n")
                .with(
                    "README.md",
                    "<!-- ci: generate -->\n```sh\nrun\n```\n<!-- ci: test -->\n```sh\ntest\n```\n",
                )
                .with(".ci/run", "readme_command test\nreadme_command generate\n")
        }

        pub fn path(&self) -> &Path {
            &self.0
        }

        pub fn with(self, path: &str, text: &str) -> Self {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        /// Asserts that the violations are these alone, by `path:line` and a part of the text.
        #[track_caller]
        pub fn expect(self, expected: &[(&str, &str)]) {
            let found: Vec<_> = check(&self.0).unwrap().iter().map(Violation::to_string).collect();
            let same = |(text, (place, part)): (&String, &(&str, &str))| {
                text.starts_with(&format!("{place}:")) && text.contains(part)
            };
            assert!(
                found.len() == expected.len() && found.iter().zip(expected).all(same),
                "expected {expected:#?}\nfound {found:#?}"
            );
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_repository_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let violations = check(&root).unwrap();
        let listed: Vec<_> = violations.iter().map(Violation::to_string).collect();
        assert!(violations.is_empty(), "{}", listed.join("\n"));
    }

    #[test]
    fn a_tidy_tree_has_no_violations_and_build_outputs_are_not_looked_at() {
        let tree = Tree::new().with("target/x.rs", "no header").with("a/b.rs", "//! Fine.\n");
        assert!(report(&check(&tree.0).unwrap()).is_ok());
        tree.expect(&[]);
    }

    #[test]
    fn a_run_fails_when_there_is_a_violation() {
        let tree = Tree::new().with("a.rs", "fn a() {}\n");
        let violations = check(&tree.0).unwrap();
        assert_eq!(report(&violations).unwrap_err().to_string(), "tidy: 1 violation");
    }
}
