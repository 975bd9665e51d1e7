//! How blocks of rows get into a prefix cache: those of several rows are copied at once.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::rc::Rc;

use mlx_ffi::Result;

use super::{Children, Moment, Node, PrefixCache, Stretch, settle};
use crate::cache::buffer::BLOCK;
use crate::cache::caches::Caches;
use crate::cache::place::copies_together;
use crate::cache::rope_factors::RopeFactors;

/// Blocks of a row that share buffers at most: they are copied at once, and freed at once.
const MOST_BLOCKS: usize = 16;
/// Rows that share buffers at most.
const MOST_ROWS: usize = 8;
/// The part of what it may have that rows share which are copied at once.
const SHARE: u64 = 16;

/// A row whose whole blocks are kept.
pub(crate) struct Keeping<'a> {
    /// Its first ids.
    pub ids: Cow<'a, [u32]>,
    /// How many ids the caches hold.
    pub held: usize,
    /// Its place in the caches.
    pub row: usize,
}

impl Keeping<'_> {
    /// The ids that the caches hold.
    fn ids(&self) -> &[u32] {
        &self.ids[..self.ids.len().min(self.held)]
    }
}

/// A row of which blocks are left to keep.
#[derive(Clone, Copy)]
struct Left<'a> {
    of: &'a Keeping<'a>,
    /// Blocks that were kept of it. Where others have displaced them, the row is given up:
    /// otherwise they would displace each other for ever.
    kept: usize,
}

/// The blocks of a row that are copied next.
struct Next<'a> {
    of: &'a Keeping<'a>,
    parent: Option<u64>,
    first: usize,
    blocks: usize,
}

impl Next<'_> {
    /// Their ids.
    fn ids(&self) -> impl Iterator<Item = &[u32]> {
        self.of.ids().chunks_exact(BLOCK).skip(self.first)
    }

    /// Returns true when both are copied at once: they have as many blocks, and not the same ones.
    fn goes_with(&self, other: &Next<'_>) -> bool {
        let is_same = self.parent == other.parent && self.ids().next() == other.ids().next();
        self.blocks == other.blocks && !is_same
    }
}

impl PrefixCache {
    /// Keeps what `caches` hold of whole blocks of rows.
    pub fn keep(&mut self, rows: &[Keeping<'_>], caches: &Caches, moment: Moment) -> Result<()> {
        if self.most == 0 {
            return Ok(());
        }
        self.clock += 1;
        let is_one_by_one = self.is_one_by_one || !copies_together()?;
        let together = if is_one_by_one { 1 } else { MOST_ROWS };
        let mut left: Vec<Left<'_>> = rows.iter().map(|of| Left { of, kept: 0 }).collect();
        while !left.is_empty() {
            left = self.keep_some(left, caches, together)?;
        }
        let end_whole =
            rows.iter().filter(|of| of.ids.len() >= of.held && of.held.is_multiple_of(BLOCK));
        for of in end_whole.filter(|_| caches.need_snapshots()) {
            let (path, _) = self.path(of.ids(), caches.rope_factors());
            if let Some(end) = path.last().filter(|_| path.len() * BLOCK == of.held) {
                self.keep_snapshot(*end, caches, of.row, moment)?;
            }
        }
        Ok(())
    }

    /// Keeps the next blocks of some rows, up to `together` at once. Returns those that may have
    /// more.
    fn keep_some<'a>(
        &mut self,
        rows: Vec<Left<'a>>,
        caches: &Caches,
        together: usize,
    ) -> Result<Vec<Left<'a>>> {
        let (mut next, mut left): (Vec<Next<'_>>, Vec<Left<'_>>) = (Vec::new(), Vec::new());
        for row in rows {
            let of = row.of;
            let (path, _) = self.path(of.ids(), caches.rope_factors());
            if path.len() < row.kept {
                continue;
            }
            let (first, parent) = (path.len(), path.last().copied());
            let blocks = (of.ids().len() / BLOCK - first).min(MOST_BLOCKS);
            let own = Next { of, parent, first, blocks };
            let most = (self.most / SHARE).checked_div(self.of_block * blocks as u64);
            let fits = next.is_empty() || most.is_none_or(|most| (next.len() as u64) < most);
            let is_along = next.len() < together && next.iter().all(|other| own.goes_with(other));
            match fits && is_along {
                _ if blocks == 0 => {}
                true => next.push(own),
                false => left.push(row),
            }
        }
        while !next.is_empty() {
            if let Some(stretch) = self.stretch(caches, &next)? {
                let stretch = Rc::new(stretch);
                for (row, next) in next.iter().enumerate() {
                    self.insert_blocks(&stretch, row, next, caches.rope_factors());
                }
                let kept = |next: Next<'a>| Left { of: next.of, kept: next.first + stretch.blocks };
                left.extend(next.into_iter().map(kept));
                return Ok(left);
            }
            // Fewer rows, down to one alone, of which nothing more is kept then.
            let others = next.split_off(next.len() / 2);
            if !next.is_empty() {
                left.extend(others.into_iter().map(|next| Left { of: next.of, kept: next.first }));
            }
        }
        Ok(left)
    }

    /// Takes note of the blocks of a row of a stretch.
    fn insert_blocks(
        &mut self,
        stretch: &Rc<Stretch>,
        row: usize,
        next: &Next<'_>,
        factors: RopeFactors,
    ) {
        let mut parent = next.parent;
        for (at, block) in next.ids().take(stretch.blocks).enumerate() {
            let (ids, children) = (Box::from(block), Children::new());
            let (stretch, snapshot, last_used) = (Rc::clone(stretch), None, self.clock);
            let node =
                Node { ids, factors, parent, children, stretch, row, at, snapshot, last_used };
            parent = Some(self.insert(node));
        }
    }

    /// A copy of the next blocks of rows, of one row as many as there is room for; `None` where
    /// that is none, or a layer no longer holds them.
    fn stretch(&mut self, caches: &Caches, next: &[Next<'_>]) -> Result<Option<Stretch>> {
        let stay: Vec<u64> = next.iter().filter_map(|next| next.parent).collect();
        let mut blocks = next.first().map_or(0, |next| next.blocks);
        while blocks > 0 {
            let of = |next: &Next<'_>| {
                let [from, to] =
                    [next.first, next.first + blocks].map(|block| (block * BLOCK) as i32);
                (next.of.row, from, to)
            };
            let Some(layers) = caches.copy(&next.iter().map(of).collect::<Vec<_>>())? else {
                return Ok(None);
            };
            let bytes = (self.weigh)(layers.bytes())?;
            self.of_block = bytes.div_ceil((blocks * layers.rows()) as u64).max(1);
            let is_alone = next.len() == 1;
            if (is_alone || bytes <= self.most / SHARE) && self.make_room(bytes, &stay) {
                settle(layers.arrays().iter())?;
                self.bytes += bytes;
                self.may_be_unsaved = true;
                let files = vec![OnceCell::new(); layers.rows()];
                return Ok(Some(Stretch { layers, blocks, bytes, files }));
            }
            if !is_alone {
                return Ok(None);
            }
            blocks = (self.most.saturating_sub(self.bytes) / self.of_block) as usize;
        }
        Ok(None)
    }
}
