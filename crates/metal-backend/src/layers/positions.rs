//! Where the positions of a step stand, and what they see.

use mlx_ffi::{Array, Result};

use super::{Reach, Seen};
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
        Ok(Positions { offsets, each, reach, masks: Vec::new(), seen: None })
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
