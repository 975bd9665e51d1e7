//! A vocabulary of which several ranks have some ids each.

use std::ops::Range;

use mlx_ffi::distributed::Group;
use mlx_ffi::{Array, Dtype, Indices, Result, ops};

/// Which ids of a vocabulary this rank has.
#[derive(Debug)]
pub(crate) struct OwnIds {
    ranks: Group,
    /// For each id, its row among this rank's; 0 where another rank has it: `[vocab_size]`.
    rows: Indices,
    /// Whether this rank has it: `[vocab_size, 1]`.
    are_own: Array,
}

impl OwnIds {
    /// The ids `own` of `vocab_size`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn new(ranks: Group, own: &Range<i32>, vocab_size: i32) -> Result<OwnIds> {
        let row = |id: i32| if own.contains(&id) { (id - own.start) as u32 } else { 0 };
        let rows: Vec<u32> = (0..vocab_size).map(row).collect();
        let are_own: Vec<u8> = (0..vocab_size).map(|id| u8::from(own.contains(&id))).collect();
        Ok(OwnIds {
            ranks,
            rows: Indices::from_u32(&rows, &[vocab_size])?,
            are_own: Array::from_bytes(&are_own, &[vocab_size, 1], Dtype::Bool)?,
        })
    }

    /// The vectors of `ids`, `[…]`, each of which one rank has: `[…, n]`. `of_rows` gives those of this rank's rows.
    pub fn embed(
        &self,
        ids: &Indices,
        of_rows: impl FnOnce(&Indices) -> Result<Array>,
    ) -> Result<Array> {
        let y = of_rows(&self.rows.take(ids, 0)?)?;
        let nothing = Array::scalar(0.0, y.dtype())?;
        let are_own = ops::take(&self.are_own, ids, 0)?;
        self.ranks.all_sum(&ops::where_(&are_own, &y, &nothing)?)
    }
}
