//! `cargo xtask tidy`: what a program can check of the rules in ARCHITECTURE.md and
//! CONTRIBUTING.md. It runs as a test too, so that `cargo test --workspace` covers it.

mod arrows;
mod documents;
mod lexer;
mod rust;
mod text;

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The largest file that the repository takes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// A broken rule: where, what, and what to do about it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    message: String,
}

impl Violation {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Violation { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// A file of the repository; its path is relative to the root, with `/`.
struct File {
    path: String,
    bytes: u64,
    /// Empty for a file that is too large or no UTF-8.
    text: String,
}

impl File {
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    fn has_extension(&self, extensions: &[&str]) -> bool {
        self.name().rsplit_once('.').is_some_and(|(_, ext)| extensions.contains(&ext))
    }
}

/// Prints every violation under `root` and fails where there is one.
pub fn run(root: &Path) -> Result<()> {
    let violations = check(root)?;
    for violation in &violations {
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
    let mut violations = arrows::check(&files);
    violations.extend(rust::check(&files));
    violations.extend(text::check(&files));
    violations.extend(documents::check(root, &files));
    violations.sort();
    Ok(violations)
}

/// What git tracks or would track; every file where `root` is no git checkout.
fn files(root: &Path) -> Result<Vec<File>> {
    let mut paths = Vec::new();
    if root.join(".git").exists() {
        let git = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git ls-files did not start")?;
        if !git.status.success() {
            bail!("git ls-files failed: {}", String::from_utf8_lossy(&git.stderr).trim());
        }
        let listed = String::from_utf8(git.stdout).context("a path is not UTF-8")?;
        paths.extend(listed.split_terminator('\0').map(str::to_owned));
    } else {
        walk(root, "", &mut paths)?;
    }
    paths.sort();
    paths.dedup();
    // A file that was deleted but is still in git's index is gone for our purposes.
    paths.retain(|path| root.join(path).is_file());
    paths.into_iter().map(|path| read(root, path)).collect()
}

fn walk(root: &Path, below: &str, paths: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(below)).with_context(|| format!("cannot list {below}"))? {
        let entry = entry?;
        let name = entry.file_name().into_string().ok().context("a path is not UTF-8")?;
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        match entry.file_type()?.is_dir() {
            true if path == "target" => {}
            true => walk(root, &path, paths)?,
            false => paths.push(path),
        }
    }
    Ok(())
}

fn read(root: &Path, path: String) -> Result<File> {
    let full = root.join(&path);
    let bytes = fs::metadata(&full).with_context(|| format!("cannot read {path}"))?.len();
    let text = match bytes > MAX_FILE_BYTES {
        true => String::new(),
        false => {
            let content = fs::read(&full).with_context(|| format!("cannot read {path}"))?;
            String::from_utf8(content).unwrap_or_default()
        }
    };
    Ok(File { path, bytes, text })
}

/// Whether `word` stands in `text` with no letter, digit or underscore on either side.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
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

        pub fn with(self, path: &str, text: &str) -> Self {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        /// Whether the violations are exactly these, given by `path:line` and a part of the text.
        #[track_caller]
        pub fn expect(self, expected: &[(&str, &str)]) {
            let found: Vec<_> = check(&self.0).unwrap().iter().map(Violation::to_string).collect();
            let same = |(text, (place, part)): (&String, &(&str, &str))| {
                text.starts_with(&format!("{place}: ")) && text.contains(part)
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
        assert!(run(&tree.0).is_ok());
        tree.expect(&[]);
    }

    #[test]
    fn a_run_fails_when_there_is_a_violation() {
        let tree = Tree::new().with("a.rs", "fn a() {}\n");
        assert_eq!(run(&tree.0).unwrap_err().to_string(), "tidy: 1 violation");
    }

    #[test]
    fn a_word_has_borders() {
        assert!(has_word("an unsafe block", "unsafe"));
        assert!(has_word("unsafe{", "unsafe"));
        assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
        assert!(!has_word("notunsafe", "unsafe"));
    }
}
