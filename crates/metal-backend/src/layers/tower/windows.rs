//! Windows of a picture: which patches see each other where a block does not see all of them.

use std::collections::BTreeMap;

use mlx_ffi::{Array, Indices, Result, ops};

use crate::sight::Patches;

/// The windows inside of which most of a tower's blocks see (Qwen 2.5 VL).
#[derive(Debug)]
pub(crate) struct Windows {
    /// Squares of patches a side; those at the right and at the bottom may have fewer.
    pub side: i32,
    /// The blocks that see the whole picture.
    pub whole: Vec<usize>,
}

/// The squares of a picture's patches in the order of windows, those of equal size beside each
/// other.
#[derive(Debug)]
pub(crate) struct Arrangement {
    /// The usual place of each square.
    squares: Vec<u32>,
    /// Patches of a square.
    many: i32,
    /// Patches of a window, and how many windows of that size follow each other.
    sizes: Vec<[i32; 2]>,
}

impl Windows {
    /// The order of a picture's squares.
    pub fn of(&self, patches: &Patches) -> Arrangement {
        let [rows, columns] = patches.grid.map(|side| side / patches.square);
        let many = patches.square * patches.square;
        let mut by_size: BTreeMap<i32, Vec<Vec<u32>>> = BTreeMap::new();
        let starts = |end: i32| (0..end).step_by(self.side as usize);
        for (top, left) in starts(rows).flat_map(|top| starts(columns).map(move |left| (top, left)))
        {
            let (bottom, right) = (rows.min(top + self.side), columns.min(left + self.side));
            let places = (top..bottom).flat_map(|row| (left..right).map(move |at| (row, at)));
            let squares: Vec<u32> = places.map(|(row, at)| (row * columns + at) as u32).collect();
            by_size.entry(squares.len() as i32 * many).or_default().push(squares);
        }
        let sizes = by_size.iter().map(|(size, all)| [*size, all.len() as i32]).collect();
        let squares = by_size.into_values().flatten().flatten().collect();
        Arrangement { squares, many, sizes }
    }
}

impl Arrangement {
    /// `[1, n, size]` of patches in their usual order to that of windows.
    pub fn arranged(&self, x: &Array) -> Result<Array> {
        let [b, n, size] = x.dims()?;
        let squares = ops::reshape(x, &[b, n / self.many, self.many * size])?;
        ops::reshape(&taken(&squares, &self.squares)?, &[b, n, size])
    }

    /// `[1, t, size]` of squares in the order of windows to their usual one.
    pub fn restored(&self, x: &Array) -> Result<Array> {
        let mut places = vec![0; self.squares.len()];
        for (at, square) in (0..).zip(&self.squares) {
            places[*square as usize] = at;
        }
        taken(x, &places)
    }

    /// The results of `attend` for the queries, keys and values of each window, `[windows, n_heads,
    /// patches, head_dim]`; they come as `[1, n_heads, n, head_dim]`.
    pub fn attended(
        &self,
        qkv: [&Array; 3],
        attend: impl Fn([&Array; 3]) -> Result<Array>,
    ) -> Result<Array> {
        let [_, n_heads, _, head_dim] = qkv[0].dims()?;
        let (mut parts, mut first) = (Vec::new(), 0);
        for &[size, windows] in &self.sizes {
            let last = first + size * windows;
            let cut = |x: &Array| {
                let x = ops::slice_axis(x, 2, first, last)?;
                let x = ops::reshape(&x, &[n_heads, windows, size, head_dim])?;
                ops::swap_axes(&x, 0, 1)
            };
            let (q, k, v) = (cut(qkv[0])?, cut(qkv[1])?, cut(qkv[2])?);
            let seen = attend([&q, &k, &v])?;
            parts.push(ops::reshape(&seen, &[1, size * windows, n_heads * head_dim])?);
            first = last;
        }
        ops::concatenate(&parts.iter().collect::<Vec<_>>(), 1)
    }
}

/// The rows of `x`, `[1, n, size]`, at these places.
fn taken(x: &Array, places: &[u32]) -> Result<Array> {
    ops::take(x, &Indices::from_u32(places, &[places.len() as i32])?, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_equal_size_follow_each_other() {
        // Three rows and five columns of squares, in windows of two.
        let patches = Patches { values: Vec::new(), grid: [6, 10], square: 2 };
        let arrangement = Windows { side: 2, whole: Vec::new() }.of(&patches);
        assert_eq!(arrangement.sizes, [[4, 1], [8, 3], [16, 2]]);
        let places = [14, 4, 9, 10, 11, 12, 13, 0, 1, 5, 6, 2, 3, 7, 8];
        assert_eq!(arrangement.squares, places);
    }

    #[test]
    fn what_is_arranged_can_be_restored() {
        let patches = Patches { values: Vec::new(), grid: [6, 10], square: 2 };
        let arrangement = Windows { side: 2, whole: Vec::new() }.of(&patches);
        let values: Vec<f32> = (0..60).map(|value| value as f32).collect();
        let x = Array::from_f32(&values, &[1, 60, 1]).expect("an array");
        let arranged = arrangement.arranged(&x).expect("the same");
        let found = arranged.to_vec_f32().expect("values");
        assert_eq!(found[..5], [56.0, 57.0, 58.0, 59.0, 16.0]);
        let squares = ops::reshape(&arranged, &[1, 15, 4]).expect("squares");
        let restored = arrangement.restored(&squares).expect("the same");
        assert_eq!(restored.to_vec_f32().expect("values"), values);
    }
}
