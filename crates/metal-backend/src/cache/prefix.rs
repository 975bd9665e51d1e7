//! Keys and values of earlier prompts and answers, by the ids that they stand for.
//!
//! A tree whose nodes are blocks of ids: a node's path from the root is a prefix, and holds each
//! layer's keys and values of its own positions only, so that prefixes share what they have in
//! common. What sees a window only is kept for every position too, so that any block's end can be
//! gone on from.

use std::collections::HashMap;

use inference_core::CacheMiss;
use mlx_ffi::{Result, eval_all};

use super::buffer::{BLOCK, Parts};
use super::caches::Caches;
use super::rope_factors::RopeFactors;

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

/// What is kept, within a budget of bytes.
pub(crate) struct PrefixCache {
    budget: u64,
    bytes: u64,
    nodes: HashMap<u64, Node>,
    /// Blocks that begin a prefix; those of longer sequences are encoded otherwise (LongRoPE).
    roots: HashMap<RopeFactors, Children>,
    /// Counts uses; also the next node's key.
    clock: u64,
}

/// A block at the end of a prefix.
struct Node {
    ids: Box<[u32]>,
    factors: RopeFactors,
    parent: Option<u64>,
    children: Children,
    layers: Vec<Parts>,
    bytes: u64,
    last_used: u64,
}

impl PrefixCache {
    /// Nothing yet, at most `budget` bytes.
    pub fn new(budget: u64) -> PrefixCache {
        PrefixCache { budget, bytes: 0, nodes: HashMap::new(), roots: HashMap::new(), clock: 0 }
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `caches`, empty ones of one row, with the longest known prefix of `ids` that is `usable`,
    /// short of the last id. Returns why it is no longer, unless it is as long as can be.
    pub fn fill(
        &mut self,
        caches: &mut Caches,
        ids: &[u32],
        usable: Usable,
    ) -> Result<Option<CacheMiss>> {
        if self.budget == 0 {
            return Ok(Some(CacheMiss::Off));
        }
        if !caches.can_join() {
            return Ok(Some(CacheMiss::Bound));
        }
        let (mut path, mut miss) =
            self.path(&ids[..ids.len().saturating_sub(1)], caches.rope_factors());
        while !(path.len() * BLOCK).is_multiple_of(usable.grid) {
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
                node.last_used = self.clock;
            }
        }
        let blocks: Vec<&[Parts]> = path
            .iter()
            .filter_map(|key| self.nodes.get(key))
            .map(|node| &node.layers[..])
            .collect();
        caches.restore(&blocks)?;
        Ok(miss)
    }

    /// Keeps what row `row` of `caches` holds of whole blocks of `ids`, its ids.
    pub fn keep(&mut self, ids: &[u32], caches: &Caches, row: usize) -> Result<()> {
        if self.budget == 0 {
            return Ok(());
        }
        let held = caches.offsets()[row] as usize;
        let ids = &ids[..ids.len().min(held)];
        let (path, _) = self.path(ids, caches.rope_factors());
        let mut parent = path.last().copied();
        self.clock += 1;
        for (index, block) in ids.chunks_exact(BLOCK).enumerate().skip(path.len()) {
            let first = (index * BLOCK) as i32;
            let Some(layers) = caches.copy(row, first, first + BLOCK as i32)? else { break };
            let arrays = || layers.iter().flatten();
            let bytes = arrays().map(|array| array.nbytes() as u64).sum();
            if !self.make_room(bytes, parent) {
                break;
            }
            // Now, so that the buffers they come from can be written in place again.
            eval_all(arrays())?;
            let (ids, children) = (Box::from(block), Children::new());
            let (factors, last_used) = (caches.rope_factors(), self.clock);
            let node = Node { ids, factors, parent, children, layers, bytes, last_used };
            parent = Some(self.insert(node));
        }
        Ok(())
    }

    /// Whether a row of so many ids has just filled a block.
    pub fn fills_a_block(ids: usize) -> bool {
        ids.is_multiple_of(BLOCK)
    }

    /// Forgets what was not used for the longest time, until at least `bytes` are free. False
    /// where nothing is left to forget.
    pub fn evict(&mut self, bytes: u64) -> bool {
        let goal = self.bytes.saturating_sub(bytes);
        let before = self.bytes;
        while self.bytes > goal && self.evict_one(None) {}
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
        self.bytes += node.bytes;
        self.nodes.insert(key, Node { last_used: key, ..node });
        key
    }

    /// The blocks that follow what `node` follows.
    fn siblings(&mut self, node: &Node) -> &mut Children {
        match node.parent.and_then(|parent| self.nodes.get_mut(&parent)) {
            Some(parent) => &mut parent.children,
            None => self.roots.entry(node.factors).or_default(),
        }
    }

    /// Whether `bytes` more fit, after forgetting what need not stay; `last` must.
    fn make_room(&mut self, bytes: u64, last: Option<u64>) -> bool {
        while self.bytes + bytes > self.budget {
            if !self.evict_one(last) {
                return false;
            }
        }
        true
    }

    /// Forgets the end of a prefix that was not used for the longest time.
    fn evict_one(&mut self, last: Option<u64>) -> bool {
        let ends =
            self.nodes.iter().filter(|(key, node)| node.children.is_empty() && Some(**key) != last);
        let Some(key) = ends.min_by_key(|(_, node)| node.last_used).map(|(key, _)| *key) else {
            return false;
        };
        if let Some(node) = self.nodes.remove(&key) {
            self.bytes -= node.bytes;
            self.siblings(&node).remove(&node.ids);
        }
        true
    }
}
