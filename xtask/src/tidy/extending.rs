//! The guide to extensions names files, folders and items that are there.

use super::violation::Violation;
use super::words::has_word;
use crate::repository::File;

const GUIDE: &str = "docs/design/extending.md";

/// Folders that its paths may begin in.
const BELOW: [&str; 3] = ["", "crates/metal-backend/", "crates/metal-backend/src/"];

/// Stands for a name that whoever extends chooses.
const OWN: &str = "NAME";

pub fn check(files: &[File]) -> Vec<Violation> {
    let Some(guide) = files.iter().find(|file| file.path == GUIDE) else { return Vec::new() };
    let mut violations = Vec::new();
    for (index, line) in guide.text.lines().enumerate() {
        for code in line.split('`').skip(1).step_by(2) {
            let message = if is_path(code) && !exists(code, files) {
                format!("there is no `{code}`; name the file or folder that is there")
            } else if let Some(item) = item(code)
                && !files
                    .iter()
                    .any(|file| file.has_extension(&["rs"]) && has_word(&file.text, item))
            {
                format!("no source has `{item}`; name what is there")
            } else {
                continue;
            };
            violations.push(Violation::new(GUIDE, index + 1, message));
        }
    }
    violations
}

fn is_path(code: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    code.chars().all(is_part) && (code.contains('/') || code.ends_with(".rs"))
}

/// Returns true when there is such a file or folder; for one still to be named, its folder.
fn exists(path: &str, files: &[File]) -> bool {
    let path = path.split(OWN).next().unwrap_or_default().trim_end_matches('/');
    BELOW.iter().any(|below| {
        let whole = format!("{below}{path}");
        let folder = format!("{whole}/");
        files.iter().any(|file| file.path == whole || file.path.starts_with(&folder))
    })
}

/// The last name of a type, a function or a variant, such as `Caches::copies`.
fn item(code: &str) -> Option<&str> {
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let is_items = code.contains("::") || code.starts_with(|c: char| c.is_ascii_uppercase());
    (is_items && code.split("::").all(is_name)).then(|| code.rsplit("::").next()).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::tests::Tree;

    #[test]
    fn files_folders_and_items_that_are_there_pass() {
        let guide = "Write `models/NAME.rs` as `models/own.rs` is, `tests/parity` and `crates/cli`.\n\
                     `Own::load` and `Own` of `crates/metal-backend/src/models/own.rs`, \
                     `cargo xtask tidy`, `x.y`, `--flag` and `own`.\n";
        Tree::new()
            .with("docs/design/extending.md", guide)
            .with("crates/metal-backend/src/models/own.rs", "//! Own.\nstruct Own;\nfn load() {}\n")
            .with("crates/metal-backend/tests/parity/main.rs", "//! Parity.\n")
            .with("crates/cli/README.md", "The program.\n")
            .expect(&[]);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let guide =
            "Write `rooms/NAME.rs`.\nChange `models/other.rs`.\nSee `Own::leave`, `Others`.\n";
        Tree::new()
            .with("docs/design/extending.md", guide)
            .with(
                "crates/metal-backend/src/models/own.rs",
                "//! Own.\nstruct Own;\nfn leaves() {}\n",
            )
            .expect(&[
                ("docs/design/extending.md:1", "`rooms/NAME.rs`"),
                ("docs/design/extending.md:2", "`models/other.rs`"),
                ("docs/design/extending.md:3", "`Others`"),
                ("docs/design/extending.md:3", "`leave`"),
            ]);
    }
}
