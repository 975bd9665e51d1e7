//! Where the positions of a step stand, and what they see.

use mlx_ffi::{Array, Result};

use super::rope::Turn;
use super::{Reach, Rope, Seen};
use crate::cache::{Caches, Mask, View, Visible};

/// The positions of one pass through the layers: `l` for each row of the batch.
#[derive(Debug)]
pub(crate) struct Positions {
    /// The first position of each row.
    offsets: Vec<i32>,
    /// The same as `[b]`, where the rows differ.
    each: Option<Array>,
    /// How they are encoded.
    reach: Reach,
    /// Layers of one kind are in the same state, so they share a mask: (visible, l, n).
    masks: Vec<((Visible, i32, i32), Mask)>,
    /// What rotates them, for each kind of layer.
    turns: Vec<(Turn, Array)>,
    /// What attention leaves for one who looks at it.
    seen: Option<Option<Seen>>,
}

impl Positions {
    /// The positions that follow those which the rows of `caches` have passed.
    pub fn after(caches: &Caches) -> Result<Positions> {
        let offsets = caches.offsets().to_vec();
        let differ = offsets.windows(2).any(|pair| pair[0] != pair[1]);
        let each = differ.then(|| Array::from_i32(&offsets, &[offsets.len() as i32]));
        let (each, reach) = (each.transpose()?, caches.reach());
        Ok(Positions { offsets, each, reach, masks: Vec::new(), turns: Vec::new(), seen: None })
    }

    /// From now on, each layer leaves what its attention sees.
    pub fn watch(&mut self) {
        self.seen = Some(None);
    }

    /// Where a layer is to leave that.
    pub fn watched(&mut self) -> Option<&mut Option<Seen>> {
        self.seen.as_mut()
    }

    /// The first position of each row.
    pub fn offsets(&self) -> &[i32] {
        &self.offsets
    }

    /// The first positions, `[b]`, where the rows differ.
    pub fn each(&self) -> Option<&Array> {
        self.each.as_ref()
    }

    /// How the positions are encoded.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// What rotates the `l` positions of each row, `[b or 1, l, dims]` F32: the cosines of all pairs'
    /// angles, then their sines.
    pub fn turns(&mut self, rope: &Rope, l: i32) -> Result<Array> {
        let turn = rope.turn(self.reach);
        let is_known = |(known, turns): &&(Turn, Array)| *known == turn && turns.shape()[1] == l;
        if let Some((_, turns)) = self.turns.iter().find(is_known) {
            return turns.share();
        }
        let same = self.offsets.get(..1).unwrap_or(&[0]);
        let rows = if self.each.is_some() { &self.offsets[..] } else { same };
        let mut values = Vec::new();
        for offset in rows {
            (0..l).for_each(|i| turn.push(offset + i, &mut values));
        }
        let dims = values.len() as i32 / (rows.len() as i32 * l).max(1);
        let turns = Array::from_f32(&values, &[rows.len() as i32, l, dims])?;
        self.turns.push((turn, turns.share()?));
        Ok(turns)
    }

    /// The mask for `l` queries over a view.
    pub fn mask(&mut self, view: &View, l: i32) -> Result<&Mask> {
        let [_, _, n, _] = view.keys.dims()?;
        let known = self.masks.iter().position(|((visible, queries, keys), _)| {
            (queries, keys) == (&l, &n) && *visible == view.visible
        });
        let index = match known {
            Some(index) => index,
            None => {
                let mask = view.visible.mask(l, n)?;
                self.masks.push(((view.visible.clone(), l, n), mask));
                self.masks.len() - 1
            }
        };
        Ok(&self.masks[index].1)
    }
}
