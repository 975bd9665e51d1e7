//! How the attention of a tower sees rows and columns: rotations of two axes.

use mlx_ffi::{Array, Dtype, Result, ops};

use super::windows::Arrangement;
use crate::sight::Patches;

/// Which values of a head turn by the row of a patch, and which by its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axes {
    /// Angles of rows, then of columns, each with a quarter of the head's frequencies; the halves
    /// of the head are rotated together (Qwen).
    RowsThenColumns,
    /// Like `RowsThenColumns`. Rows have the even frequencies of a whole head, columns the odd ones
    /// (Pixtral).
    Alternating,
    /// The first half of the head turns by columns, the second by rows, each by itself (Gemma 4).
    ColumnsApart,
}

/// The rotation of a tower's heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TowerRope {
    pub axes: Axes,
    pub head_dim: i32,
    pub theta: f64,
}

/// Cosines and sines of all patches' angles.
#[derive(Debug)]
pub(crate) struct Turns {
    /// `[n, head_dim]` F32.
    cos: Array,
    sin: Array,
    /// Parts of a head whose halves are rotated together.
    parts: i32,
}

/// The places of patches: how they turn, and the windows that a block sees by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    pub turns: Option<&'a Turns>,
    pub windows: Option<&'a Arrangement>,
}

impl TowerRope {
    /// The rotation of a picture's patches.
    pub fn turns(&self, patches: &Patches) -> Result<Turns> {
        let TowerRope { axes, head_dim, theta } = *self;
        // Of the pairs, the first half is for rows; where their number is odd, with the one in the
        // middle.
        let pairs = head_dim / 2;
        let counts = [(pairs + 1) / 2, pairs / 2];
        let frequency = |power: f64| theta.powf(-power) as f32;
        let size = f64::from(head_dim);
        let of = |i: i32, offset: i32| match axes {
            Axes::Alternating => frequency(f64::from(2 * (2 * i + offset)) / size),
            _ => frequency(f64::from(4 * i) / size),
        };
        let count = patches.count() as i32;
        let mut angles = Vec::with_capacity((count * head_dim) as usize);
        let [by_row, by_column]: [Vec<f32>; 2] =
            [0, 1].map(|offset: i32| (0..counts[offset as usize]).map(|i| of(i, offset)).collect());
        for [row, column] in patches.places() {
            let rows = by_row.iter().map(|frequency| row as f32 * frequency);
            let columns = by_column.iter().map(|frequency| column as f32 * frequency);
            match axes {
                Axes::ColumnsApart => {
                    angles.extend(columns.clone().chain(columns).chain(rows.clone()).chain(rows));
                }
                _ => {
                    let both = rows.chain(columns);
                    angles.extend(both.clone().chain(both));
                }
            }
        }
        let values = |turn: fn(f32) -> f32| {
            let values: Vec<f32> = angles.iter().map(|angle| turn(*angle)).collect();
            Array::from_f32(&values, &[count, head_dim])
        };
        let parts = if axes == Axes::ColumnsApart { 2 } else { 1 };
        Ok(Turns { cos: values(f32::cos)?, sin: values(f32::sin)?, parts })
    }
}

impl Turns {
    /// Of the patches in the order of windows.
    pub fn arranged(self, arrangement: &Arrangement) -> Result<Turns> {
        let arranged = |x: &Array| {
            let wide = arrangement.arranged(&ops::expand_dims(x, 0)?)?;
            ops::squeeze(&wide, 0)
        };
        Ok(Turns { cos: arranged(&self.cos)?, sin: arranged(&self.sin)?, parts: self.parts })
    }

    /// `x`, `[1, n_heads, n, head_dim]`, rotated in float32.
    pub fn apply(&self, x: &Array) -> Result<Array> {
        let dtype = x.dtype();
        let x = ops::astype(x, Dtype::F32)?;
        let shape = x.shape().to_vec();
        let head_dim = shape.last().copied().unwrap_or(0);
        let half = head_dim / self.parts / 2;
        let mut turned = Vec::new();
        for part in 0..self.parts {
            let first = part * 2 * half;
            let upper = ops::slice_axis(&x, -1, first + half, first + 2 * half)?;
            turned.push(ops::negative(&upper)?);
            turned.push(ops::slice_axis(&x, -1, first, first + half)?);
        }
        let turned = ops::concatenate(&turned.iter().collect::<Vec<_>>(), -1)?;
        let (cos, sin) = (ops::multiply(&x, &self.cos)?, ops::multiply(&turned, &self.sin)?);
        ops::astype(&ops::add(&cos, &sin)?, dtype)
    }
}
