//! The inputs of a pass beside its ids.

use std::ops::Range;

use mlx_ffi::{Array, Result, ops};

/// The inputs of a pass of one row beside its ids.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The vectors that stand for pictures, `[1 + deep, n, hidden_size]`, and the columns in whose
    /// place, in ascending order. The first ones stand there, the others are added behind the first
    /// layers.
    pub features: Vec<(Range<i32>, Array)>,
    /// For each column, the positions that rotations take instead of its own: by time, row and
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
            parts.push(ops::astype(&of_layer(features, 0)?, h.dtype())?);
            done = columns.end;
        }
        if done < l {
            parts.push(ops::slice_axis(h, 1, done, l)?);
        }
        ops::concatenate(&parts.iter().collect::<Vec<_>>(), 1)
    }

    /// The terms added behind each of the first layers, `[1, l, hidden_size]` like `h`: 0 for
    /// columns of text.
    pub fn behind_layers(&self, h: &Array) -> Result<Vec<Array>> {
        let deep =
            self.features.iter().map(|(_, features)| features.dims::<3>().map(|[n, ..]| n - 1));
        let deep = deep.collect::<Result<Vec<i32>>>()?.into_iter().max().unwrap_or(0);
        let nothing = ops::multiply(h, &Array::scalar(0.0, h.dtype())?)?;
        let of = |index: i32| {
            let own = |(columns, features): &(Range<i32>, Array)| {
                Ok((columns.clone(), of_layer(features, index)?))
            };
            let features = self.features.iter().map(own).collect::<Result<_>>()?;
            Seen { features, ..Seen::default() }.in_place(&nothing)
        };
        (1..=deep).map(of).collect()
    }
}

/// Those vectors of a picture, `[1 + deep, n, hidden_size]`, that are for so many layers: `[1, n,
/// hidden_size]`.
fn of_layer(features: &Array, layers: i32) -> Result<Array> {
    ops::slice_axis(features, 0, layers, layers + 1)
}
