//! No two public types of a crate have one name.

use std::collections::BTreeMap;

use super::violation::Violation;
use crate::modules::Graph;

pub fn check(graphs: &[Graph]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for graph in graphs {
        let mut first = BTreeMap::new();
        for found in &graph.public_types {
            let other = *first.entry(found.name.as_str()).or_insert(found);
            if other != found {
                let message = format!(
                    "another public type of `{}` is called `{}` too ({}:{}); say in the name what \
                     it is of, or do not make it public",
                    graph.name, found.name, other.file, other.line
                );
                violations.push(Violation::new(&found.file, found.line, message));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use crate::tidy::tests::Tree;

    const FORBID: &str = "//! A.\n#![forbid(unsafe_code)]\n";

    fn tree(root: &str) -> Tree {
        Tree::new()
            .with("a/Cargo.toml", "[package]\nname = \"inference-server\"\n")
            .with("a/src/lib.rs", &format!("{FORBID}{root}"))
            .with("a/src/b.rs", "//! B.\npub struct Kind;\npub fn kind() {}\n")
            .with("a/src/c.rs", "//! C.\npub enum Kind {}\npub fn kind() {}\n")
    }

    #[test]
    fn two_public_types_of_one_name_are_found_where_both_can_be_reached() {
        let found = [("a/src/c.rs:2", "called `Kind` too (a/src/b.rs:2)")];
        tree("pub mod b;\npub mod c;\n").expect(&found);
        tree("mod b;\npub mod c;\npub use b::*;\n").expect(&found);
        tree("mod b;\nmod c;\npub use b::Kind as First;\npub use c::Kind as First;\n")
            .expect(&[("a/src/c.rs:2", "called `First` too (a/src/b.rs:2)")]);
    }

    #[test]
    fn a_type_that_others_cannot_name_or_that_is_named_apart_passes() {
        tree("pub mod b;\nmod c;\n").expect(&[]);
        tree("mod b;\nmod c;\npub use b::Kind;\npub use c::Kind as Other;\n").expect(&[]);
        tree("pub mod b;\nmod c;\npub use b::Kind;\n").expect(&[]);
        tree("pub mod b;\npub(crate) mod c;\n").expect(&[]);
    }
}
