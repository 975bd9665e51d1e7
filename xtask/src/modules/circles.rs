//! Circles in a graph: nodes that reach each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

type Edges<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The largest sets of nodes of which each reaches each other, single nodes left out.
pub fn circles<'a>(arrows: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<BTreeSet<&'a str>> {
    let mut ahead = Edges::new();
    for (from, to) in arrows {
        ahead.entry(from).or_default().insert(to);
    }
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        ahead.keys().map(|&node| (node, reached(&ahead, node))).collect();
    let reaches = |from: &str, to: &str| reach.get(from).is_some_and(|found| found.contains(to));
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for &node in ahead.keys() {
        let is_new = !circles.iter().any(|circle| circle.contains(node));
        if is_new && reaches(node, node) {
            let others = reach[node].iter().copied();
            circles.push(others.filter(|other| reaches(other, node)).collect());
        }
    }
    circles
}

/// The nodes at the end of some way from `start`; `start` itself where one leads back.
fn reached<'a>(ahead: &Edges<'a>, start: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(node) = waiting.pop() {
        let next = ahead.get(node).into_iter().flatten();
        waiting.extend(next.copied().filter(|next| found.insert(*next)));
    }
    found
}

/// The shortest way from a node of `circle` back to itself, that node first and last.
pub fn shortest<'a>(
    circle: &BTreeSet<&'a str>,
    arrows: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<&'a str> {
    let mut ahead = Edges::new();
    for (from, to) in arrows {
        if circle.contains(from) && circle.contains(to) {
            ahead.entry(from).or_default().insert(to);
        }
    }
    let ways = circle.iter().filter_map(|start| way_back(&ahead, start));
    ways.min_by_key(Vec::len).unwrap_or_default()
}

fn way_back<'a>(ahead: &Edges<'a>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(node) = waiting.pop_front() {
        for &next in ahead.get(node)? {
            if next == start {
                let mut way = vec![start, node];
                while way.last() != Some(&start) {
                    way.push(before[way[way.len() - 1]]);
                }
                way.reverse();
                return Some(way);
            }
            if !before.contains_key(next) {
                before.insert(next, node);
                waiting.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_reach_each_other_are_a_circle_and_its_shortest_way_is_told() {
        let arrows = [("a", "b"), ("b", "c"), ("c", "a"), ("b", "a"), ("c", "d"), ("d", "e")];
        let found = circles(arrows.into_iter());
        assert_eq!(found, [BTreeSet::from(["a", "b", "c"])]);
        assert_eq!(shortest(&found[0], arrows.into_iter()), ["a", "b", "a"]);
    }

    #[test]
    fn two_circles_stay_apart_and_a_graph_without_one_has_none() {
        let arrows = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "c")];
        let found = circles(arrows.into_iter());
        assert_eq!(found, [BTreeSet::from(["a", "b"]), BTreeSet::from(["c", "d"])]);
        assert!(circles([("a", "b"), ("b", "c"), ("a", "c")].into_iter()).is_empty());
    }
}
