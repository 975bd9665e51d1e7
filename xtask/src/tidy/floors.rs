//! Which rooms of a crate may use which: a table of floors.
//!
//! A room is a module below the crate's root, with all that is in it: `cache` is `cache.rs` and the
//! folder `cache`. It uses rooms of lower floors alone. The root itself (`lib.rs`, `main.rs`) is
//! above all floors.

use std::collections::{BTreeMap, BTreeSet};

use super::violation::Violation;
use crate::modules::{Arrow, Graph};

/// The path of the table, for those who have to change it.
const HERE: &str = "xtask/src/tidy/floors.rs";

/// The floors of a crate.
struct House {
    /// The folder of the crate, with `/` at its end.
    folder: &'static str,
    /// The rooms of each floor, the lowest one first. Rooms of one floor do not use each other.
    floors: &'static [&'static [&'static str]],
    /// Rooms of the table that are not built yet.
    planned: &'static [&'static str],
    /// Pairs of rooms of which the first one still uses the second one, against the floors. The
    /// list only becomes shorter.
    still_up: &'static [(&'static str, &'static str)],
    /// Pairs of a room and a name below it that it does not use, a crate's for example.
    never: &'static [(&'static str, &'static str)],
}

const HOUSES: &[House] = &[House {
    folder: "crates/metal-backend/",
    floors: &[
        &["error", "plan"],
        &["gguf"],
        &["files", "config"],
        &["sampling", "sight", "special_tokens"],
        &["hearing"],
        &["kernels"],
        &["cache"],
        &["layers"],
        &["weights"],
        &["shape"],
        &["models"],
        &["load"],
        &["engine"],
        &["convert", "embeddings", "images", "model", "speech"],
        &["backend"],
        &["parts"],
    ],
    planned: &[],
    still_up: &[],
    never: &[
        ("plan", "mlx_ffi"),
        ("models", "files"),
        ("models", "sampling"),
        ("models", "inference_text"),
    ],
}];

pub fn check(graphs: &[Graph]) -> Vec<Violation> {
    check_with(graphs, HOUSES)
}

fn check_with(graphs: &[Graph], houses: &[House]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for house in houses {
        if let Some(graph) = graphs.iter().find(|graph| graph.folder == house.folder) {
            violations.extend(house.rooms(graph));
            violations.extend(house.arrows(graph));
        }
    }
    violations
}

impl House {
    fn floor(&self, room: &str) -> Option<usize> {
        self.floors.iter().position(|rooms| rooms.contains(&room))
    }

    /// The table names every room once, and no other.
    fn rooms(&self, graph: &Graph) -> Vec<Violation> {
        let mut violations = Vec::new();
        let mut built = BTreeMap::new();
        for file in graph.files.keys() {
            if let Some(room) = graph.room(file) {
                built.entry(room).or_insert(file.as_str());
            }
        }
        for (room, file) in &built {
            let message = match (self.floor(room), self.planned.contains(room)) {
                (None, _) => format!("room `{room}` has no floor; give it one in {HERE}"),
                (_, true) => format!("room `{room}` is built; take it out of `planned` in {HERE}"),
                (Some(_), false) => continue,
            };
            violations.push(Violation::new(file, 1, message));
        }
        let manifest = format!("{}Cargo.toml", self.folder);
        let mut seen = BTreeSet::new();
        for room in self.floors.iter().copied().flatten() {
            if !built.contains_key(room) && !self.planned.contains(room) {
                let message = format!("{HERE} names a room that is not there: `{room}`; delete it");
                violations.push(Violation::new(&manifest, 1, message));
            }
            if !seen.insert(room) {
                let message = format!("{HERE} has room `{room}` on two floors; choose one");
                violations.push(Violation::new(&manifest, 1, message));
            }
        }
        violations
    }

    fn arrows(&self, graph: &Graph) -> Vec<Violation> {
        let mut violations = Vec::new();
        let mut used = BTreeSet::new();
        for arrow in &graph.arrows {
            let Some(from) = graph.room(&arrow.from) else { continue };
            let to = graph.room(&arrow.to).unwrap_or("the root");
            if from == to {
                continue;
            }
            let is_down = self.floor(from).zip(self.floor(to)).is_some_and(|(from, to)| to < from);
            let pair = self.still_up.iter().find(|pair| **pair == (from, to));
            match (is_down, pair) {
                (false, Some(pair)) => drop(used.insert(pair)),
                (false, None) => violations.push(self.upward(arrow, from, to)),
                (true, _) if self.never.contains(&(from, to)) => {
                    violations.push(never(arrow, from, to));
                }
                (true, _) => {}
            }
        }
        for outside in &graph.outside {
            let (Some(room), [name, ..]) = (graph.room(&outside.from), outside.path.as_slice())
            else {
                continue;
            };
            if self.never.contains(&(room, name)) {
                let path = outside.path.join("::");
                let message = format!(
                    "`{room}` may not use `{name}` ({HERE}), and `{path}` is of it; take what it \
                     gives as a parameter, or move this code"
                );
                violations.push(Violation::new(&outside.from, outside.line, message));
            }
        }
        for (from, to) in self.still_up.iter().filter(|pair| !used.contains(pair)) {
            let message = format!(
                "`{from}` does not use `{to}` any more; take the pair out of `still_up` in {HERE}"
            );
            violations.push(Violation::new(&format!("{}Cargo.toml", self.folder), 1, message));
        }
        violations
    }

    fn upward(&self, arrow: &Arrow, from: &str, to: &str) -> Violation {
        let floor = |room| match self.floor(room) {
            Some(floor) => format!("floor {floor}"),
            None => "above all floors".to_owned(),
        };
        let message = format!(
            "`{from}` ({}) may not use `{to}` ({}), and `{}` is in {}; move it down to `{from}` or \
             below, or hand it in from above",
            floor(from),
            floor(to),
            arrow.path,
            arrow.to
        );
        Violation::new(&arrow.from, arrow.line, message)
    }
}

fn never(arrow: &Arrow, from: &str, to: &str) -> Violation {
    let message = format!(
        "`{from}` may not use `{to}` ({HERE}), and `{}` is in {}; take what it gives as a \
         parameter, or move this code",
        arrow.path, arrow.to
    );
    Violation::new(&arrow.from, arrow.line, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::graphs;
    use crate::repository::File;

    const HOUSE: House = House {
        folder: "a/",
        floors: &[&["error"], &["low", "beside"], &["high"]],
        planned: &[],
        still_up: &[],
        never: &[],
    };

    /// Checks a crate with the rooms of `HOUSE`, these texts in their files.
    fn check(house: House, texts: &[(&str, &str)]) -> Vec<String> {
        let rooms = ["error", "low", "beside", "high"];
        let declared: String = rooms.map(|room| format!("mod {room};\n")).concat();
        let file = |path: &str, text: &str| File {
            path: format!("a/{path}"),
            bytes: 0,
            text: text.to_owned(),
        };
        let mut files = vec![
            file("Cargo.toml", "[package]\nname = \"a\"\n"),
            file("src/lib.rs", &format!("{declared}pub struct Root;")),
        ];
        for room in rooms {
            let text = texts.iter().find(|(name, _)| *name == room).map_or("", |(_, text)| *text);
            let text = format!("mod inner;\npub use inner::Item;\n{text}");
            files.push(file(&format!("src/{room}/mod.rs"), &text));
            files.push(file(&format!("src/{room}/inner.rs"), "pub struct Item;"));
        }
        check_with(&graphs(&files), &[house]).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn arrows_down_pass_over_any_number_of_floors() {
        let high = "fn f(_: crate::low::Item, _: crate::error::Item, _: Item) {}";
        let low = "fn f(_: crate::error::Item) {}";
        assert_eq!(check(HOUSE, &[("high", high), ("low", low)]), [""; 0]);
    }

    #[test]
    fn an_arrow_up_aside_or_to_the_root_is_named_with_both_ends() {
        let up = check(HOUSE, &[("low", "\nuse crate::high::Item as Other;")]);
        assert_eq!(
            up,
            ["a/src/low/mod.rs:4: `low` (floor 1) may not use `high` (floor 2), and \
              `crate::high::Item` is in a/src/high/inner.rs; move it down to `low` or below, or \
              hand it in from above"]
        );
        let aside = check(HOUSE, &[("low", "fn f(_: crate::beside::Item) {}")]);
        assert!(aside[0].contains("`low` (floor 1) may not use `beside` (floor 1)"), "{aside:?}");
        let root = check(HOUSE, &[("low", "fn f(_: crate::Root) {}")]);
        assert!(root[0].contains("may not use `the root` (above all floors)"), "{root:?}");
    }

    #[test]
    fn an_arrow_that_is_still_there_passes_and_leaves_the_list_once_it_is_gone() {
        let house = || House { still_up: &[("low", "high")], ..HOUSE };
        assert_eq!(check(house(), &[("low", "use crate::high::Item as Other;")]), [""; 0]);
        let gone = check(house(), &[]);
        assert!(gone[0].contains("`low` does not use `high` any more"), "{gone:?}");
    }

    #[test]
    fn what_a_room_never_uses_is_found_inside_and_outside_the_crate() {
        let house = || House { never: &[("high", "error"), ("high", "outside_crate")], ..HOUSE };
        let inside = check(house(), &[("high", "fn f(_: crate::error::Item) {}")]);
        assert!(inside[0].contains("`high` may not use `error`"), "{inside:?}");
        let outside = check(house(), &[("high", "use outside_crate::{a, b::C};\nfn f(_: C) {}")]);
        assert_eq!(outside.len(), 2, "{outside:?}");
        assert!(outside[0].starts_with("a/src/high/mod.rs:3: `high` may not use `outside_crate`"));
    }

    #[test]
    fn the_table_and_the_rooms_are_the_same() {
        let floors: &[&[&str]] = &[&["error"], &["low"], &["high"]];
        let missing = check(House { floors, ..HOUSE }, &[]);
        assert!(missing[0].contains("`beside` has no floor"), "{missing:?}");

        let floors: &[&[&str]] = &[&["error", "none"], &["low", "beside"], &["high", "error"]];
        let absent = check(House { floors, ..HOUSE }, &[]);
        assert!(absent[0].contains("names a room that is not there: `none`"), "{absent:?}");
        assert!(absent[1].contains("`error` on two floors"), "{absent:?}");

        let planned = check(House { floors, planned: &["none", "low"], ..HOUSE }, &[]);
        assert!(planned.iter().any(|text| text.contains("`low` is built")), "{planned:?}");
        assert!(!planned.iter().any(|text| text.contains("not there")), "{planned:?}");
    }
}
