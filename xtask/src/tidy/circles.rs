//! No files of a crate use each other in a circle.
//!
//! A parent and its child are one where the child uses what the parent's own file declares, and the
//! code of the parent uses what the child declares. `mod child` and `pub use child::Item` are no
//! use: a file that only hands on what lies below it is a face.

use std::collections::BTreeSet;

use super::violation::Violation;
use crate::modules::{Graph, circles, shortest};

pub fn check(graphs: &[Graph]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for graph in graphs {
        let pairs = || graph.arrows.iter().map(|arrow| (arrow.from.as_str(), arrow.to.as_str()));
        for circle in circles(pairs()) {
            violations.push(violation(graph, &shortest(&circle, pairs()), &circle));
        }
        for problem in &graph.problems {
            violations.push(Violation::new(&problem.file, problem.line, problem.message.as_str()));
        }
    }
    violations
}

/// `way` is the shortest way around, its first file at the end again.
fn violation(graph: &Graph, way: &[&str], circle: &BTreeSet<&str>) -> Violation {
    let arrow = |pair: &[&str]| {
        graph.arrows.iter().find(|arrow| arrow.from == pair[0] && arrow.to == pair[1])
    };
    let arrows: Vec<_> = way.windows(2).filter_map(arrow).collect();
    let told: Vec<String> = arrows
        .iter()
        .map(|arrow| format!("{}:{} uses `{}` of {}", arrow.from, arrow.line, arrow.path, arrow.to))
        .collect();
    let others: Vec<&str> = circle.iter().copied().filter(|file| !way.contains(file)).collect();
    let others = match others.as_slice() {
        [] => String::new(),
        others => format!(" (with it in larger circles: {})", others.join(", ")),
    };
    let message = format!(
        "files in a circle: {}{others}; move what one of them uses into a file below both",
        told.join(", ")
    );
    let (path, line) = arrows.first().map_or(("", 1), |arrow| (arrow.from.as_str(), arrow.line));
    Violation::new(path, line, message)
}

#[cfg(test)]
mod tests {
    use crate::tidy::tests::Tree;

    const ROOT: &str = "//! A.\n#![forbid(unsafe_code)]\n";

    /// A crate of a root with `declares` in it and these files.
    fn tree(declares: &str, files: &[(&str, &str)]) -> Tree {
        let tree = Tree::new()
            .with("a/Cargo.toml", "[package]\nname = \"inference-server\"\n")
            .with("a/src/lib.rs", &format!("{ROOT}{declares}\n"));
        files.iter().fold(tree, |tree, (path, text)| {
            tree.with(&format!("a/src/{path}"), &format!("//! A.\n{text}\n"))
        })
    }

    #[test]
    fn two_files_that_use_each_other_are_named_with_both_lines() {
        tree(
            "mod b;\nmod c;",
            &[
                ("b.rs", "use crate::c::C;\npub struct B(C);"),
                ("c.rs", "pub struct C(super::b::B);"),
            ],
        )
        .expect(&[(
            "a/src/b.rs:2",
            "a/src/b.rs:2 uses `crate::c::C` of a/src/c.rs, a/src/c.rs:2 uses `super::b::B` of \
             a/src/b.rs; move what one of them uses into a file below both",
        )]);
    }

    #[test]
    fn files_that_use_each_other_one_way_are_no_circle() {
        tree(
            "mod b;\nmod c;",
            &[("b.rs", "pub struct B(crate::c::C);"), ("c.rs", "pub struct C;")],
        )
        .expect(&[]);
    }

    #[test]
    fn an_arrow_to_a_face_is_one_to_the_file_behind_it() {
        let face = "mod d;\nmod e;\npub use d::{D as Renamed, inner::{self, Deep}};\npub use e::*;";
        let behind = "pub struct D;\npub mod inner { pub struct Deep; }";
        for used in ["c::Renamed", "c::Deep", "c::inner::Deep"] {
            let back = format!("{behind}\nfn f(_: crate::b::B) {{}}");
            tree(
                "mod b;\nmod c;",
                &[
                    ("b.rs", &format!("use crate::{used} as Used;\npub struct B(Used);")),
                    ("c/mod.rs", face),
                    ("c/d.rs", &back),
                    ("c/e.rs", ""),
                ],
            )
            .expect(&[("a/src/b.rs:2", "of a/src/c/d.rs, a/src/c/d.rs:4 uses `crate::b::B`")]);
        }
        // Through a glob, with the items of the face beside it.
        tree(
            "mod b;\nmod c;\npub use c::E;",
            &[
                ("b.rs", "pub struct B(crate::E);"),
                ("c/mod.rs", face),
                ("c/d.rs", behind),
                ("c/e.rs", "pub struct E;\nfn f(_: crate::b::B) {}"),
            ],
        )
        .expect(&[("a/src/b.rs:2", "a/src/c/e.rs")]);
    }

    #[test]
    fn a_parent_is_in_a_circle_with_its_child_where_each_uses_the_other() {
        let uses_parent = ("b/c.rs", "pub struct C(super::B);");
        let uses_child = "mod c;\npub struct B;\nfn f(_: c::C) {}";
        tree("mod b;", &[("b.rs", uses_child), uses_parent])
            .expect(&[("a/src/b.rs:4", "`c::C` of a/src/b/c.rs, a/src/b/c.rs:2 uses `super::B`")]);
    }

    #[test]
    fn a_parent_that_only_hands_on_its_child_uses_nothing() {
        let uses_parent = ("b/c.rs", "pub struct C(super::B);");
        for face in ["pub use c::C;", "pub(crate) use c::*;", "pub use self::c as d;"] {
            let parent = format!("mod c;\n{face}\npub struct B;");
            tree("mod b;", &[("b.rs", &parent), uses_parent]).expect(&[]);
        }
        // What the parent itself imports is not the parent's.
        let through = "mod c;\nuse crate::d::D;\npub struct B(D, c::C);";
        let child = ("b/c.rs", "pub struct C(super::D);");
        tree("mod b;\nmod d;", &[("b.rs", through), child, ("d.rs", "pub struct D;")]).expect(&[]);
    }

    #[test]
    fn paths_in_bodies_macros_and_attributes_are_uses() {
        for user in [
            "fn f() { crate::c::new(); }",
            "fn f() { println!(\"{}\", 1 + crate::c::new()); }",
            "fn f() { use crate::c; c::new(); }",
            "macro_rules! m { () => { $crate::c::new() }; }",
            "#[arg(long, value_parser = crate::c::new)]\nstruct S;",
            "#[serde(with = \"crate::c\", default = \"crate::c::new\")]\nstruct S;",
            "fn f() { crate::c::made!(); }",
            "impl crate::c::C { fn f() {} }",
        ] {
            let with = format!("pub struct B;\n{user}");
            let used = "pub struct C(crate::b::B);\npub fn new() {}";
            tree("mod b;\nmod c;", &[("b.rs", &with), ("c.rs", used)])
                .expect(&[("a/src/b.rs:3", "in a circle")]);
        }
    }

    #[test]
    fn code_of_tests_and_names_of_values_are_no_uses() {
        for user in [
            "#[cfg(test)]\nuse crate::c::C;",
            "#[cfg(test)]\nmod tests { use crate::c::C; }",
            "#[cfg(all(test, unix))]\nfn f(_: crate::c::C) {}",
            "#[test]\nfn f() { crate::c::new(); }",
            "impl B { #[cfg(test)] fn f(_: crate::c::C) {} }",
            "/// See [`crate::c::C`].\nfn f(c: u8) { g!(c.new, self.c, 'c); }",
        ] {
            let with = format!("pub struct B;\n{user}");
            let used = "pub struct C(crate::b::B);\npub fn new() {}";
            tree("mod b;\nmod c;", &[("b.rs", &with), ("c.rs", used)]).expect(&[]);
        }
    }

    #[test]
    fn modules_are_found_under_every_name_that_a_file_can_have() {
        let root = "#[path = \"other/name.rs\"]\nmod b;\nmod c;";
        let b = ("other/name.rs", "mod inner;\npub struct B(inner::Inner);");
        let inner = ("other/inner.rs", "pub struct Inner(crate::c::deep::Deep);");
        let c = ("c/mod.rs", "pub mod deep { pub struct Deep(crate::b::B); }");
        tree(root, &[b, inner, c]).expect(&[("a/src/c/mod.rs:2", "in a circle")]);
    }

    #[test]
    fn a_file_that_no_module_declares_and_a_module_without_a_file_are_found() {
        tree("mod b;", &[]).expect(&[("a/src/lib.rs:3", "no file for `mod b`")]);
        tree("", &[("b.rs", "")]).expect(&[("a/src/b.rs:1", "no module declares")]);
        tree("#[cfg(test)]\nmod b;", &[("b.rs", "mod c;"), ("b/c.rs", "")]).expect(&[]);
        tree("mod b;", &[("b.rs", "fn {")]).expect(&[("a/src/b.rs:2", "no Rust")]);
    }
}
