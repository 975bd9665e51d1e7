//! Exchange of a prefix cache's parts with files.

use std::cell::OnceCell;
use std::rc::Rc;

use super::{Children, Node, PrefixCache, Snapshot, Stretch, bytes};
use crate::cache::buffer::{BLOCK, Parts};
use crate::cache::place::Copies;
use crate::cache::stored::{Part, Stored};
use crate::error::Result;

impl PrefixCache {
    /// A part that no file holds, which counts as held by one from now on; `None` where there is
    /// none.
    pub fn unsaved(&mut self) -> Option<Result<Stored>> {
        if !self.may_be_unsaved {
            return None;
        }
        let lacks_file = |node: &Node| {
            let snapshot = node.snapshot.as_ref();
            node.stretch.files[node.row].get().is_none()
                || snapshot.is_some_and(|own| own.file.is_none())
        };
        // A prefix comes before what follows it: then a full disk leaves what can be gone on from.
        let waiting = self.nodes.iter().filter(|(_, node)| lacks_file(node));
        let Some((key, node)) = waiting.min_by_key(|(key, _)| **key) else {
            self.may_be_unsaved = false;
            return None;
        };
        match node.stretch.files[node.row].get() {
            None => Some(self.unsaved_blocks(&Rc::clone(&node.stretch), node.row)),
            Some(_) => self.unsaved_state(*key),
        }
    }

    /// The blocks of a row of a stretch that are still there.
    fn unsaved_blocks(&self, stretch: &Rc<Stretch>, row: usize) -> Result<Stored> {
        let is_own = |node: &Node| Rc::ptr_eq(&node.stretch, stretch) && node.row == row;
        let own = self.nodes.iter().filter(|(_, node)| is_own(node));
        let own = || own.clone().map(|(key, node)| (node.at, *key));
        let (first, _) = own().min().unwrap_or_default();
        let (last, key) = own().max().unwrap_or_default();
        let (ids, factors) = (self.ids(key), self.nodes[&key].factors);
        let part = Part::Blocks { first: ids.len() / BLOCK - (last + 1 - first) };
        let layers = stretch.between(row, first, last + 1)?;
        let stored = Stored { ids, factors, part, layers };
        let _ = stretch.files[row].set(stored.name());
        Ok(stored)
    }

    /// The state at the end of a block.
    fn unsaved_state(&mut self, key: u64) -> Option<Result<Stored>> {
        let (ids, node) = (self.ids(key), self.nodes.get_mut(&key)?);
        let snapshot = node.snapshot.as_mut()?;
        let part = Part::State { is_passing: snapshot.is_passing };
        let share = |parts: &Parts| parts.iter().map(|array| array.share()).collect();
        let layers = match snapshot.layers.iter().map(share).collect::<mlx_ffi::Result<_>>() {
            Ok(layers) => layers,
            Err(error) => return Some(Err(error.into())),
        };
        let stored = Stored { ids, factors: node.factors, part, layers };
        snapshot.file = Some(stored.name());
        Some(Ok(stored))
    }

    /// The ids from the root to the end of a node.
    fn ids(&self, key: u64) -> Vec<u32> {
        let mut blocks = Vec::new();
        let mut next = Some(key);
        while let Some(node) = next.and_then(|key| self.nodes.get(&key)) {
            blocks.push(&node.ids);
            next = node.parent;
        }
        blocks.into_iter().rev().flat_map(|ids| ids.iter().copied()).collect()
    }

    /// The names of the files that hold what is here.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.nodes.values().flat_map(|node| {
            let own = node.stretch.files[node.row].get().map(String::as_str);
            let state = node.snapshot.as_ref().and_then(|snapshot| snapshot.file.as_deref());
            // One for all blocks of a row of a stretch: the last ones may be gone.
            own.filter(|_| node.at == 0).into_iter().chain(state)
        })
    }

    /// Takes a part that a file holds, where there is room for it and all before it is here.
    pub fn restore(&mut self, stored: Stored) -> Result<()> {
        let file = stored.name();
        let Stored { ids, factors, part, layers } = stored;
        let bytes = (self.weigh)(bytes(&layers))?;
        let (path, _) = self.path(&ids, factors);
        let blocks = ids.len() / BLOCK;
        if self.bytes + bytes > self.most {
            return Ok(());
        }
        match part {
            Part::Blocks { first } if (first..blocks).contains(&path.len()) => {
                let files = vec![OnceCell::from(file)];
                let blocks = blocks - first;
                let layers = Copies::apart(layers);
                let stretch = Rc::new(Stretch { layers, blocks, bytes, files });
                let mut parent = path.last().copied();
                for (at, ids) in ids.chunks_exact(BLOCK).enumerate().skip(path.len()) {
                    let (stretch, row, at) = (Rc::clone(&stretch), 0, at - first);
                    let (ids, children) = (Box::from(ids), Children::new());
                    let (snapshot, last_used) = (None, self.clock);
                    let node = Node {
                        ids,
                        factors,
                        parent,
                        children,
                        stretch,
                        row,
                        at,
                        snapshot,
                        last_used,
                    };
                    parent = Some(self.insert(node));
                }
                self.bytes += bytes;
            }
            Part::State { is_passing } if path.len() == blocks => {
                let end = path.last().and_then(|key| self.nodes.get_mut(key));
                if let Some(node) = end.filter(|node| node.snapshot.is_none()) {
                    let file = Some(file);
                    node.snapshot = Some(Snapshot { layers, bytes, is_passing, file });
                    self.bytes += bytes;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
