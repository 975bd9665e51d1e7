//! The entry of a tower: patches to vectors.

use mlx_ffi::{Array, Dtype, Indices, Result, ops};

use super::block::TowerNorm;
use crate::layers::Linear;
use crate::sight::Patches;

/// Makes a vector of each patch.
#[derive(Debug)]
pub(crate) struct Entry {
    /// A convolution whose kernel is a patch: a product with the patch's values.
    pub projection: Linear,
    pub positions: PatchPositions,
    /// Before the first block.
    pub norm: Option<TowerNorm>,
    /// Values come from 0 to 1 and are taken from -1 to 1 (Gemma 4).
    pub centres: bool,
    pub dtype: Dtype,
}

/// The encoding of a patch's position: a vector that is added to its own.
#[derive(Debug)]
pub(crate) enum PatchPositions {
    /// Nothing.
    None,
    /// A vector for each place of the one grid that there is, `[n, hidden_size]`.
    Grid(Array),
    /// Vectors of a square grid of so many places a side, between which those of another grid lie.
    Between { table: Array, side: i32 },
    /// A vector for the column and one for the row: `[2, size, hidden_size]`.
    Axes(Array),
}

impl Entry {
    /// The vectors of a picture's patches, `[1, n, hidden_size]`.
    pub fn forward(&self, patches: &Patches) -> Result<Array> {
        let count = patches.count() as i32;
        let size = patches.values.len() as i32 / count.max(1);
        let x = Array::passing_f32(&patches.values, &[1, count, size])?;
        let x = match self.centres {
            false => x,
            true => {
                let scalar = |value| Array::scalar(value, Dtype::F32);
                ops::multiply(&ops::subtract(&x, &scalar(0.5)?)?, &scalar(2.0)?)?
            }
        };
        let h = self.projection.forward(&ops::astype(&x, self.dtype)?)?;
        let h = match self.positions.of(patches)? {
            None => h,
            Some(positions) => ops::add(&h, &ops::astype(&positions, h.dtype())?)?,
        };
        self.norm.as_ref().map_or_else(|| h.share(), |norm| norm.forward(&h))
    }
}

impl PatchPositions {
    /// The vectors to add to the patches, `[n, hidden_size]`.
    fn of(&self, patches: &Patches) -> Result<Option<Array>> {
        match self {
            PatchPositions::None => Ok(None),
            PatchPositions::Grid(table) => table.share().map(Some),
            PatchPositions::Between { table, side } => between(table, *side, patches).map(Some),
            PatchPositions::Axes(table) => {
                let [_, size, _] = table.dims()?;
                let of_axis = |axis: i32, places: Vec<u32>| {
                    let count = places.len() as i32;
                    let last = (size - 1).max(0) as u32;
                    let places: Vec<u32> =
                        places.into_iter().map(|place| place.min(last)).collect();
                    let rows = ops::squeeze(&ops::slice_axis(table, 0, axis, axis + 1)?, 0)?;
                    ops::take(&rows, &Indices::from_u32(&places, &[count])?, 0)
                };
                let places = || patches.places();
                let columns = places().map(|[_, column]| column as u32).collect();
                let rows = places().map(|[row, _]| row as u32).collect();
                ops::add(&of_axis(0, columns)?, &of_axis(1, rows)?).map(Some)
            }
        }
    }
}

/// The vectors of `table`, a square of `side` places, where the grid of a picture is spread over it
/// from corner to corner: between four of them, by nearness.
fn between(table: &Array, side: i32, patches: &Patches) -> Result<Array> {
    let [rows, columns] = patches.grid;
    let place = |index: i32, count: i32| {
        let step = if count > 1 { (side - 1) as f32 / (count - 1) as f32 } else { 0.0 };
        let at = index as f32 * step;
        let low = (at as i32).min(side - 1);
        (low, (low + 1).min(side - 1), at - low as f32)
    };
    let count = patches.count() as i32;
    let (mut indices, mut weights) = (vec![Vec::new(); 4], vec![Vec::new(); 4]);
    for [row, column] in patches.places() {
        let (top, bottom, down) = place(row, rows);
        let (left, right, across) = place(column, columns);
        let corners = [
            (top, left, (1.0 - down) * (1.0 - across)),
            (top, right, (1.0 - down) * across),
            (bottom, left, down * (1.0 - across)),
            (bottom, right, down * across),
        ];
        for (corner, (row, column, weight)) in corners.into_iter().enumerate() {
            indices[corner].push((row * side + column) as u32);
            weights[corner].push(weight);
        }
    }
    let mut sum: Option<Array> = None;
    for (indices, weights) in indices.iter().zip(&weights) {
        let rows = ops::take(table, &Indices::from_u32(indices, &[count])?, 0)?;
        let weights = ops::astype(&Array::from_f32(weights, &[count, 1])?, rows.dtype())?;
        let part = ops::multiply(&rows, &weights)?;
        sum = Some(match sum {
            None => part,
            Some(sum) => ops::add(&sum, &part)?,
        });
    }
    sum.ok_or_else(|| mlx_ffi::Error::new("a grid has four corners"))
}
