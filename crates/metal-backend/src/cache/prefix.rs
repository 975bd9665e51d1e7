//! Keys and values of earlier prompts and answers, by the ids that they stand for.
//!
//! A tree whose nodes are blocks of ids: a node's path from the root is a prefix, and holds each
//! layer's keys and values of its own positions only, so that prefixes share what they have in
//! common. Blocks that were kept at once, also of several rows, share their buffers, which are
//! freed with the last of them. What sees a window only is kept for every position too, so that any
//! block's end can be gone on from. A recurrent state is what it is at one position: there, some
//! nodes hold a snapshot, and only these can be gone on from.

mod keeping;
mod saved;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use inference_core::CacheMiss;
use mlx_ffi::{Array, Result, async_eval, eval_all, on_cpu};

use super::buffer::{BLOCK, Parts};
use super::caches::Caches;
use super::place::Copies;
use super::rope_factors::RopeFactors;

pub(crate) use keeping::Keeping;

/// The blocks that follow another one, by their ids.
type Children = HashMap<Box<[u32]>, u64>;

/// Which prefixes a request can go on from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usable {
    /// They are a multiple of so many positions long.
    pub grid: usize,
    /// They are at least so many positions long.
    pub least: usize,
}

/// How many bytes copies count, of so many that they take here.
pub(crate) type Weigh = Box<dyn Fn(u64) -> Result<u64>>;

/// A cache of prefixes, within a budget of bytes.
pub(crate) struct PrefixCache {
    budget: u64,
    /// Of the budget, what it may have at this time.
    most: u64,
    /// Copies count as much in every process that computes the model, so that all keep and forget
    /// the same.
    weigh: Weigh,
    bytes: u64,
    /// Bytes of a block, once one was copied.
    of_block: u64,
    /// Rows are copied one by one.
    is_one_by_one: bool,
    nodes: HashMap<u64, Node>,
    /// When the ends of prefixes were used last, with their keys: the first one is forgotten first.
    ends: BTreeSet<(u64, u64)>,
    /// Blocks that begin a prefix; those of longer sequences are encoded otherwise (LongRoPE).
    roots: HashMap<RopeFactors, Children>,
    /// Counts uses; also the next node's key.
    clock: u64,
    /// True when there may be parts that no file holds.
    may_be_unsaved: bool,
}

/// A block at the end of a prefix.
struct Node {
    ids: Box<[u32]>,
    factors: RopeFactors,
    parent: Option<u64>,
    children: Children,
    /// Holds its keys and values: block `at` of the stretch's row `row`.
    stretch: Rc<Stretch>,
    row: usize,
    at: usize,
    /// Recurrent states at the block's end, if the caches stood there when it was kept.
    snapshot: Option<Snapshot>,
    last_used: u64,
}

/// Each layer's keys and values of consecutive blocks of some rows.
struct Stretch {
    layers: Copies,
    /// Blocks of each row.
    blocks: usize,
    bytes: u64,
    /// The names of the files that hold rows, once there are such.
    files: Vec<OnceCell<String>>,
}

impl Stretch {
    /// The layers' entries of these blocks of a row.
    fn between(&self, row: usize, first: usize, end: usize) -> Result<Vec<Parts>> {
        self.layers.between(row, (first * BLOCK) as i32, (end * BLOCK) as i32)
    }
}

/// A copy of each layer's recurrent state.
struct Snapshot {
    layers: Vec<Parts>,
    bytes: u64,
    /// It was taken as a row generated: the next one of that row takes its place.
    is_passing: bool,
    /// The name of the file that holds it, once there is one.
    file: Option<String>,
}

/// When a row's blocks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Behind a part of its prompt.
    Prefill,
    /// As it generates.
    Decode,
}

impl PrefixCache {
    /// Nothing yet, at most `budget` bytes as `weigh` counts them.
    pub fn new(budget: u64, weigh: Weigh) -> PrefixCache {
        PrefixCache {
            budget,
            most: budget,
            weigh,
            bytes: 0,
            of_block: 0,
            is_one_by_one: false,
            nodes: HashMap::new(),
            ends: BTreeSet::new(),
            roots: HashMap::new(),
            clock: 0,
            may_be_unsaved: false,
        }
    }

    /// Copies rows one by one: what several processes copy has to be the same in all, whatever
    /// their devices are.
    pub fn one_by_one(self) -> PrefixCache {
        PrefixCache { is_one_by_one: true, ..self }
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `caches`, empty ones of one row, with the longest known prefix of `ids` that is
    /// `usable`, short of the last id, and `may_end` where it does. Returns why it is no longer,
    /// unless it is as long as can be.
    pub fn fill(
        &mut self,
        caches: &mut Caches,
        ids: &[u32],
        usable: Usable,
        may_end: impl Fn(usize) -> bool,
    ) -> Result<Option<CacheMiss>> {
        if self.budget == 0 {
            return Ok(Some(CacheMiss::Off));
        }
        if !caches.can_join() {
            return Ok(Some(CacheMiss::Bound));
        }
        let (mut path, mut miss) =
            self.path(&ids[..ids.len().saturating_sub(1)], caches.rope_factors());
        let need_snapshots = caches.need_snapshots();
        let has_snapshot =
            |key: &u64| self.nodes.get(key).is_some_and(|node| node.snapshot.is_some());
        while let Some(last) = path.last()
            && (!(path.len() * BLOCK).is_multiple_of(usable.grid)
                || !may_end(path.len() * BLOCK)
                || need_snapshots && !has_snapshot(last))
        {
            path.pop();
            miss = miss.or(Some(CacheMiss::Ends));
        }
        if path.len() * BLOCK < usable.least && !path.is_empty() {
            path.clear();
            miss = Some(CacheMiss::FirstChunk);
        }
        self.clock += 1;
        for key in &path {
            if let Some(node) = self.nodes.get_mut(key) {
                if self.ends.remove(&(node.last_used, *key)) {
                    self.ends.insert((self.clock, *key));
                }
                node.last_used = self.clock;
            }
        }
        let last = path.last().and_then(|key| self.nodes.get(key));
        let snapshot = last.and_then(|node| node.snapshot.as_ref());
        let nodes: Vec<&Node> = path.iter().filter_map(|key| self.nodes.get(key)).collect();
        let one_by_one = |a: &&Node, b: &&Node| {
            Rc::ptr_eq(&a.stretch, &b.stretch) && (a.row, a.at + 1) == (b.row, b.at)
        };
        let stretch = |nodes: &[&Node]| match nodes {
            [first, ..] => first.stretch.between(first.row, first.at, first.at + nodes.len()),
            [] => Ok(Vec::new()),
        };
        let stretches: Vec<Vec<Parts>> =
            nodes.chunk_by(one_by_one).map(stretch).collect::<Result<_>>()?;
        let positions = (nodes.len() * BLOCK) as i32;
        caches.restore(&stretches, positions, snapshot.map(|snapshot| &snapshot.layers[..]))?;
        Ok(miss)
    }

    /// Keeps a snapshot of row `row` at the end of the block `end`, where there is none yet.
    fn keep_snapshot(
        &mut self,
        end: u64,
        caches: &Caches,
        row: usize,
        moment: Moment,
    ) -> Result<()> {
        if self.nodes.get(&end).is_none_or(|node| node.snapshot.is_some()) {
            return Ok(());
        }
        let layers = caches.snapshot(row)?;
        let bytes = (self.weigh)(bytes(&layers))?;
        let parent = self.nodes.get(&end).and_then(|node| node.parent);
        if moment == Moment::Decode
            && let Some(parent) = parent
        {
            self.drop_passing(parent);
        }
        if !self.make_room(bytes, &[end]) {
            return Ok(());
        }
        // Now, before the state is written in place again.
        settle(layers.iter().flatten())?;
        if let Some(node) = self.nodes.get_mut(&end) {
            let is_passing = moment == Moment::Decode;
            node.snapshot = Some(Snapshot { layers, bytes, is_passing, file: None });
            self.bytes += bytes;
            self.may_be_unsaved = true;
        }
        Ok(())
    }

    /// Forgets the snapshot of a node that a row took in passing.
    fn drop_passing(&mut self, key: u64) {
        if let Some(node) = self.nodes.get_mut(&key)
            && let Some(snapshot) = node.snapshot.take_if(|snapshot| snapshot.is_passing)
        {
            self.bytes -= snapshot.bytes;
        }
    }

    /// Ids of a prompt that the whole blocks before its last id hold.
    pub fn whole_blocks(ids: usize) -> usize {
        ids.saturating_sub(1) / BLOCK * BLOCK
    }

    /// Returns true when the budget is not 0.
    pub fn is_on(&self) -> bool {
        self.budget > 0
    }

    /// Returns true when a row of so many ids has just filled a block.
    pub fn fills_a_block(ids: usize) -> bool {
        ids.is_multiple_of(BLOCK)
    }

    /// From now on it has at most `bytes` of its budget. Returns whether that made it forget
    /// anything.
    pub fn allow(&mut self, bytes: u64) -> bool {
        self.most = self.budget.min(bytes);
        self.evict(self.bytes.saturating_sub(self.most))
    }

    /// Forgets what was not used for the longest time, until at least `bytes` are free. False
    /// where nothing is left to forget.
    pub fn evict(&mut self, bytes: u64) -> bool {
        let goal = self.bytes.saturating_sub(bytes);
        let before = self.bytes;
        while self.bytes > goal && self.evict_one(&[]) {}
        self.bytes < before
    }

    /// The nodes of the longest known prefix of `ids`, and why it is no longer.
    fn path(&self, ids: &[u32], factors: RopeFactors) -> (Vec<u64>, Option<CacheMiss>) {
        let mut path = Vec::new();
        let none = Children::new();
        let mut children = self.roots.get(&factors).unwrap_or(&none);
        for block in ids.chunks_exact(BLOCK) {
            let Some(key) = children.get(block) else {
                let miss = match (self.nodes.is_empty(), children.is_empty() && !path.is_empty()) {
                    (true, _) => CacheMiss::Empty,
                    (false, true) => CacheMiss::Ends,
                    (false, false) => CacheMiss::Differs,
                };
                return (path, Some(miss));
            };
            path.push(*key);
            children = &self.nodes[key].children;
        }
        (path, None)
    }

    fn insert(&mut self, node: Node) -> u64 {
        self.clock += 1;
        let key = self.clock;
        self.siblings(&node).insert(node.ids.clone(), key);
        if let Some((key, parent)) = self.parent_of(&node) {
            let before = (parent.last_used, key);
            self.ends.remove(&before);
        }
        self.ends.insert((key, key));
        self.nodes.insert(key, Node { last_used: key, ..node });
        key
    }

    /// The block that `node` follows, with its key.
    fn parent_of(&self, node: &Node) -> Option<(u64, &Node)> {
        node.parent.and_then(|key| Some((key, self.nodes.get(&key)?)))
    }

    /// The blocks that follow what `node` follows.
    fn siblings(&mut self, node: &Node) -> &mut Children {
        match node.parent.and_then(|parent| self.nodes.get_mut(&parent)) {
            Some(parent) => &mut parent.children,
            None => self.roots.entry(node.factors).or_default(),
        }
    }

    /// Makes room for `bytes` more by forgetting what need not `stay`. Returns true when they fit.
    fn make_room(&mut self, bytes: u64, stay: &[u64]) -> bool {
        while self.bytes + bytes > self.most {
            if !self.evict_one(stay) {
                return false;
            }
        }
        true
    }

    /// Forgets the end of a prefix that was not used for the longest time, of those that need not
    /// `stay`.
    fn evict_one(&mut self, stay: &[u64]) -> bool {
        let Some(end) = self.ends.iter().find(|(_, key)| !stay.contains(key)).copied() else {
            return false;
        };
        self.ends.remove(&end);
        let (_, key) = end;
        if let Some(node) = self.nodes.remove(&key) {
            let of_stretch = match Rc::strong_count(&node.stretch) {
                1 => node.stretch.bytes,
                _ => 0,
            };
            let of_snapshot = node.snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes);
            self.bytes -= of_stretch + of_snapshot;
            let siblings = self.siblings(&node);
            siblings.remove(&node.ids);
            let was_last = siblings.is_empty();
            if let Some((key, parent)) = self.parent_of(&node).filter(|_| was_last) {
                let now = (parent.last_used, key);
                self.ends.insert(now);
            }
        }
        true
    }
}

fn bytes(layers: &[Parts]) -> u64 {
    layers.iter().flatten().map(|array| array.nbytes() as u64).sum()
}

/// Has copies made before the buffers that they come from are written in place again. A GPU makes
/// them in the order in which it was asked. They are kept across steps, and hold nothing of those
/// that made them.
fn settle<'a>(copies: impl Iterator<Item = &'a Array>) -> Result<()> {
    let copies: Vec<&Array> = copies.collect();
    let all = copies.iter().copied();
    if on_cpu()? {
        eval_all(all)?
    } else {
        async_eval(all)?
    }
    copies.into_iter().try_for_each(Array::detach)
}
