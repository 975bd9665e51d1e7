//! What a pass sees beside its ids.

use std::ops::Range;

use mlx_ffi::{Array, Result, ops};

/// What a pass of one row sees beside its ids.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The vectors that stand for pictures, `[1, n, hidden_size]`, and the columns in whose place, in
    /// ascending order.
    pub features: Vec<(Range<i32>, Array)>,
    /// Of each column, the positions that rotations take, where they are not its place: by time, row and
    /// column.
    pub positions: Option<Vec<[i32; 3]>>,
    /// Columns that see each other, whatever comes first.
    pub spans: Vec<Range<i32>>,
}

impl Seen {
    /// `h`, `[1, l, hidden_size]`, with the pictures' vectors in their places.
    pub fn in_place(&self, h: &Array) -> Result<Array> {
        let [_, l, _] = h.dims()?;
        let mut parts = Vec::with_capacity(2 * self.features.len() + 1);
        let mut done = 0;
        for (columns, features) in &self.features {
            if columns.start > done {
                parts.push(ops::slice_axis(h, 1, done, columns.start)?);
            }
            parts.push(ops::astype(features, h.dtype())?);
            done = columns.end;
        }
        if done < l {
            parts.push(ops::slice_axis(h, 1, done, l)?);
        }
        ops::concatenate(&parts.iter().collect::<Vec<_>>(), 1)
    }
}
