//! The pictures of the modules are those of the source.

use super::violation::Violation;
use crate::pictures::{FOLDER, pages};
use crate::repository::File;

pub fn check(files: &[File]) -> Vec<Violation> {
    let drawn: Vec<&File> = files.iter().filter(|file| file.path.starts_with(FOLDER)).collect();
    if drawn.is_empty() {
        return Vec::new();
    }
    let mut pages = pages(files);
    let mut violations = Vec::new();
    for file in drawn {
        let message = match pages.remove(&file.path) {
            Some(text) if text == file.text => continue,
            Some(_) => "not what the source says any more; run `cargo xtask modules`",
            None => "the page of no crate; run `cargo xtask modules`",
        };
        violations.push(Violation::new(&file.path, 1, message));
    }
    for path in pages.keys() {
        violations.push(Violation::new(path, 1, "not there; run `cargo xtask modules`"));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pictures::run;
    use crate::tidy::tests::Tree;

    fn tree() -> Tree {
        let tree =
            Tree::new().with("a/Cargo.toml", "[package]\nname = \"inference-server\"\n").with(
                "a/src/lib.rs",
                "//! A.\n#![forbid(unsafe_code)]\nmod b;\nmod c;\nmod d;\nmod e;\n",
            );
        let tree = ["b", "c", "d", "e"]
            .iter()
            .fold(tree, |tree, name| tree.with(&format!("a/src/{name}.rs"), "//! B.\n"));
        run(tree.path()).unwrap();
        tree
    }

    #[test]
    fn pages_that_were_just_drawn_pass() {
        tree().expect(&[]);
    }

    #[test]
    fn a_page_that_the_source_left_behind_is_found() {
        let page = format!("{FOLDER}inference-server.md:1");
        let remedy = "run `cargo xtask modules`";
        tree().with("a/src/c.rs", "//! C.\nfn c(_: super::b::B) {}\n").expect(&[(&page, remedy)]);
        let other = format!("{FOLDER}x.md");
        tree().with(&other, "").expect(&[(&format!("{other}:1"), "of no crate")]);
    }

    #[test]
    fn a_page_that_is_missing_is_found_and_one_too_many_is_deleted() {
        let tree = tree();
        std::fs::remove_file(tree.path().join(FOLDER).join("inference-server.md")).unwrap();
        let tree = tree.with(&format!("{FOLDER}x.md"), "");
        run(tree.path()).unwrap();
        assert!(!tree.path().join(FOLDER).join("x.md").exists());
        std::fs::remove_file(tree.path().join(FOLDER).join("inference-server.md")).unwrap();
        let (index, page) = (format!("{FOLDER}README.md"), format!("{FOLDER}inference-server.md"));
        tree.expect(&[(&index, "leads nowhere"), (&page, "not there")]);
    }
}
