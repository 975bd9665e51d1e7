//! Ancestors and descendants of a prefix's files, by digests of ids from the root on.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::buffer::BLOCK;
use super::stored::Origin;

/// The digest of all ids to the end of a block.
type End = [u8; 32];

/// The place of a stored part of a prefix among those of the same model.
pub(super) struct Lineage {
    /// Blocks before it.
    first: usize,
    /// The end of these; `None` at the root.
    parent: Option<End>,
    /// The ends of its own blocks, behind which others begin.
    ends: Vec<End>,
}

impl Lineage {
    pub fn new(origin: &Origin) -> Lineage {
        let mut digest = Sha256::new();
        digest.update([u8::from(origin.has_long_factors)]);
        let end = |block: &[u32]| {
            block.iter().for_each(|id| digest.update(id.to_le_bytes()));
            digest.clone().finalize().into()
        };
        let mut ends: Vec<End> = origin.ids.chunks_exact(BLOCK).map(end).collect();
        let first = origin.first.min(ends.len());
        let own = ends.split_off(first);
        Lineage { first, parent: ends.pop(), ends: own }
    }
}

/// When a file was used, or what needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    /// `None`: it cannot be used, as what comes before it is not there.
    last: Option<SystemTime>,
    /// Of two that were used at once, what comes before the other one is worth more.
    worth: Reverse<usize>,
}

impl Use {
    /// Of what is no file of a prefix.
    pub const NONE: Use = Use { last: None, worth: Reverse(usize::MAX) };

    /// Returns true when it follows a prefix that is not there.
    pub fn is_orphan(self) -> bool {
        self.last.is_none() && self != Use::NONE
    }
}

/// The uses of a model's files, by their lineages and when each was written or used itself. What
/// follows a prefix is never worth more than the prefix.
pub(super) fn uses(files: &[(Option<&Lineage>, SystemTime)]) -> Vec<Use> {
    let mut uses = vec![Use::NONE; files.len()];
    let known = files.iter().enumerate();
    let known = known.filter_map(|(at, (lineage, time))| Some((at, (*lineage)?, *time)));
    let mut known: Vec<(usize, &Lineage, SystemTime)> = known.collect();
    known.sort_by_key(|(_, lineage, _)| lineage.first);
    // What follows comes later: from behind, each tells what it needs when it was used.
    let mut needed: HashMap<End, SystemTime> = HashMap::new();
    for (at, lineage, time) in known.iter().rev() {
        let followed = lineage.ends.iter().filter_map(|end| needed.get(end)).max();
        let last = followed.map_or(*time, |followed| *time.max(followed));
        uses[*at] = Use { last: Some(last), worth: Reverse(lineage.first) };
        if let Some(parent) = lineage.parent {
            let needed = needed.entry(parent).or_insert(last);
            *needed = last.max(*needed);
        }
    }
    let mut reached: HashSet<End> = HashSet::new();
    for (at, lineage, _) in known {
        match lineage.parent {
            Some(parent) if !reached.contains(&parent) => uses[at].last = None,
            _ => reached.extend(&lineage.ends),
        }
    }
    uses
}
