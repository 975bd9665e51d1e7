//! The modules of a crate as a page: a picture in Mermaid, and a table beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::graph::Graph;

/// The beginning of every page, below its title.
const HEAD: &str = "Made by `cargo xtask modules` from the source; `cargo xtask tidy` checks it.\n\
    An arrow leads to what is used. An arrow that others imply is left out of the picture; the\n\
    table has all. Rooms with a double border are folders.\n";

/// A folder with fewer files has no picture of its own.
const FEW: usize = 4;

/// A name and the names that it uses.
type Uses<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The page of a crate; `None` for one whose modules need no picture.
pub fn page(graph: &Graph) -> Option<String> {
    let rooms = uses(graph, &[]);
    if rooms.len() < FEW {
        return None;
    }
    let mut page = format!("# Modules of `{}`\n\n{HEAD}\n", graph.name);
    if let Some(says) = graph.says(&[]) {
        let _ = writeln!(page, "{says}\n");
    }
    let folders: BTreeSet<&str> =
        rooms.keys().copied().filter(|room| uses(graph, &[room]).len() > 1).collect();
    page += &picture(&rooms, &folders);
    page += &table(graph, &[], &rooms);
    for room in from_top(&rooms) {
        let inner = uses(graph, &[room]);
        if inner.len() >= FEW {
            let _ = write!(page, "\n## `{room}`\n\n{}", picture(&inner, &BTreeSet::new()));
            page += &table(graph, &[room], &inner);
        }
    }
    Some(page)
}

/// The page that leads to the others, with the arrows between crates.
pub fn index(crates: &Uses<'_>, pages: &BTreeSet<&str>) -> String {
    let mut page = format!("# Modules\n\n{HEAD}\n{}| crate | uses |\n|---|---|\n", {
        picture(crates, &BTreeSet::new())
    });
    for name in from_top(crates) {
        let link = match pages.contains(name) {
            true => format!("[`{name}`]({name}.md)"),
            false => format!("`{name}`"),
        };
        let _ = writeln!(page, "| {link} | {} |", listed(&crates[name]));
    }
    page
}

/// Who uses whom among the modules right below `above`. A file's own code counts as the module
/// right below that it is in; what is outside of `above`, and the root, are left out.
fn uses<'a>(graph: &'a Graph, above: &[&str]) -> Uses<'a> {
    let room = |file: &str| {
        let path = graph.files.get(file)?;
        let is_within = path.len() >= above.len() && path.iter().zip(above).all(|(a, b)| a == b);
        // The folder's own file is called after it.
        let name = path.get(above.len()).or(if above.is_empty() { None } else { path.last() });
        name.filter(|_| is_within).map(String::as_str)
    };
    let mut uses = Uses::new();
    for file in graph.files.keys() {
        if let Some(room) = room(file) {
            uses.entry(room).or_default();
        }
    }
    for arrow in &graph.arrows {
        if let (Some(from), Some(to)) = (room(&arrow.from), room(&arrow.to))
            && from != to
        {
            uses.entry(from).or_default().insert(to);
        }
    }
    uses
}

fn picture(uses: &Uses<'_>, folders: &BTreeSet<&str>) -> String {
    let mut text = String::from("```mermaid\nflowchart TD\n");
    for name in from_top(uses) {
        let label = match folders.contains(name) {
            true => format!("[[\"{name}\"]]"),
            false => format!("[\"{name}\"]"),
        };
        let _ = writeln!(text, "  {}{label}", id(name));
    }
    for (from, to) in without_implied(uses) {
        let _ = writeln!(text, "  {} --> {}", id(from), id(to));
    }
    text + "```\n\n"
}

/// A name that is no word of Mermaid's.
fn id(name: &str) -> String {
    format!("m_{}", name.replace('-', "_"))
}

fn table(graph: &Graph, above: &[&str], uses: &Uses<'_>) -> String {
    let mut text = String::from("| module | is | uses |\n|---|---|---|\n");
    for name in from_top(uses) {
        let path: Vec<&str> = match above.last() == Some(&name) {
            true => above.to_vec(),
            false => above.iter().copied().chain([name]).collect(),
        };
        let says = graph.says(&path).unwrap_or_default().replace('|', "\\|");
        let _ = writeln!(text, "| `{name}` | {says} | {} |", listed(&uses[name]));
    }
    text
}

fn listed(names: &BTreeSet<&str>) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The names, those before that use others over the most steps.
fn from_top<'a>(uses: &Uses<'a>) -> Vec<&'a str> {
    let mut height: BTreeMap<&str, usize> = uses.keys().map(|&name| (name, 0)).collect();
    // As many rounds as the longest way can have steps; a circle ends there too.
    for _ in 0..uses.len() {
        for (name, used) in uses {
            let below = used.iter().map(|used| height.get(used).map_or(0, |height| height + 1));
            let above = below.max().unwrap_or(0).min(uses.len());
            height.insert(name, above);
        }
    }
    let mut names: Vec<&str> = uses.keys().copied().collect();
    names.sort_by_key(|name| (usize::MAX - height[name], *name));
    names
}

/// The arrows that no way over others implies.
fn without_implied<'a>(uses: &Uses<'a>) -> Vec<(&'a str, &'a str)> {
    let mut kept = uses.clone();
    for (from, used) in uses {
        for to in used {
            kept.entry(from).or_default().remove(to);
            if !leads(&kept, from, to) {
                kept.entry(from).or_default().insert(to);
            }
        }
    }
    kept.iter().flat_map(|(from, used)| used.iter().map(|to| (*from, *to))).collect()
}

fn leads(uses: &Uses<'_>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(name) = waiting.pop() {
        for &next in uses.get(name).into_iter().flatten() {
            if next == to {
                return true;
            }
            if seen.insert(next) {
                waiting.push(next);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::graphs;
    use crate::repository::File;

    fn graph() -> Graph {
        let file = |(path, text): &(&str, &str)| File {
            path: format!("a/{path}"),
            bytes: 0,
            text: (*text).to_owned(),
        };
        let files = [
            ("Cargo.toml", "[package]\nname = \"house\"\n"),
            ("src/lib.rs", "//! A house. With rooms.\nmod top;\nmod middle;\nmod low;\nmod attic;"),
            ("src/top.rs", "//! On [`middle`]\n//! it stands.\nuse crate::{low::L, middle::M};"),
            ("src/middle/mod.rs", "//! Between: a|b\nmod b;\nmod c;\nmod d;\npub use b::M;"),
            ("src/middle/b.rs", "pub struct M(super::c::C, crate::low::L);"),
            ("src/middle/c.rs", "pub struct C(super::d::D);"),
            ("src/middle/d.rs", "pub struct D;"),
            ("src/low.rs", "pub struct L;"),
            ("src/attic.rs", "//! Empty."),
        ];
        graphs(&files.each_ref().map(file)).remove(0)
    }

    #[test]
    fn a_page_draws_the_rooms_and_the_files_of_a_large_one() {
        let page = page(&graph()).unwrap();
        let picture = "```mermaid\nflowchart TD\n  m_top[\"top\"]\n  m_middle[[\"middle\"]]\n  \
                       m_attic[\"attic\"]\n  m_low[\"low\"]\n  m_middle --> m_low\n  m_top --> \
                       m_middle\n```\n";
        assert!(page.starts_with("# Modules of `house`\n\nMade by `cargo xtask modules`"));
        assert!(page.contains(&format!("\n\nA house.\n\n{picture}")), "{page}");
        assert!(page.contains("| `top` | On `middle` it stands. | `low`, `middle` |"), "{page}");
        assert!(page.contains("| `middle` | Between: a\\|b | `low` |"), "{page}");
        let inner = "  m_b --> m_c\n  m_c --> m_d\n```\n";
        assert!(page.contains("\n## `middle`\n\n```mermaid\n"), "{page}");
        assert!(page.contains(inner) && page.contains("| `b` |  | `c` |"), "{page}");
    }

    #[test]
    fn rooms_that_use_each_other_keep_both_arrows() {
        let uses = Uses::from([("a", BTreeSet::from(["b"])), ("b", BTreeSet::from(["a"]))]);
        assert_eq!(without_implied(&uses), [("a", "b"), ("b", "a")]);
        assert_eq!(from_top(&uses), ["a", "b"]);
    }

    #[test]
    fn the_index_leads_to_the_pages() {
        let crates = Uses::from([("a", BTreeSet::from(["b-c"])), ("b-c", BTreeSet::new())]);
        let index = index(&crates, &BTreeSet::from(["a"]));
        assert!(index.contains("  m_a --> m_b_c\n"), "{index}");
        assert!(index.ends_with("| [`a`](a.md) | `b-c` |\n| `b-c` |  |\n"), "{index}");
    }
}
