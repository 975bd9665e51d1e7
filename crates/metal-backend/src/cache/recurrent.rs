//! The recurrent state of one layer: arrays of a fixed size for each row.

use mlx_ffi::cuda::Place;
use mlx_ffi::{Array, Dtype, Result, ops};

use super::buffer::Parts;
use super::place::Placing;
use super::spec::RecurrentSpec;

/// The recurrent state of one layer, for the rows of a batch. It is that after the last position of
/// each row, and cannot be cut back.
#[derive(Debug)]
pub(crate) struct Recurrent {
    spec: RecurrentSpec,
    rows: usize,
    /// Each `[b, …]`; none before the first update.
    arrays: Vec<Array>,
}

impl Recurrent {
    /// The state of `rows` rows before their first position.
    pub fn new(spec: RecurrentSpec, rows: usize) -> Recurrent {
        Recurrent { spec, rows, arrays: Vec::new() }
    }

    /// The arrays, which [`set`](Self::set) replaces: the inputs of the convolution, `[b, 1,
    /// positions, channels]` in `dtype`, then, if the layer adds something up, its sum, `[b, heads,
    /// rows, columns]` in F32. They are zeros before the first position.
    ///
    /// # Errors
    /// Another number of arrays than the state has.
    pub fn take<const N: usize>(&mut self, dtype: Dtype) -> Result<[Array; N]> {
        let held = match std::mem::take(&mut self.arrays) {
            none if none.is_empty() => self.beginning(dtype)?,
            held => held,
        };
        held.try_into().map_err(|held: Vec<Array>| {
            mlx_ffi::Error::new(format!("a state of {} arrays was taken as {N}", held.len()))
        })
    }

    /// The arrays before the first position.
    fn beginning(&self, dtype: Dtype) -> Result<Vec<Array>> {
        let RecurrentSpec { convolution, state } = self.spec;
        let of_rows = |sizes: &[i32], dtype| zeros(&[&[self.rows as i32], sizes].concat(), dtype);
        let [positions, channels] = convolution;
        let inputs = of_rows(&[1, positions, channels], dtype)?;
        let sum = state.map(|state| of_rows(&state, Dtype::F32)).transpose()?;
        Ok([inputs].into_iter().chain(sum).collect())
    }

    /// The arrays after more positions.
    pub fn set<const N: usize>(&mut self, arrays: [Array; N]) {
        self.arrays = arrays.into();
    }

    /// Handles on the arrays, which a step writes in place; `None` before the first position.
    pub fn buffers(&self) -> Result<Option<Vec<Array>>> {
        if self.arrays.is_empty() { Ok(None) } else { share(&self.arrays).map(Some) }
    }

    /// The arrays that hold it, for evaluation.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// Adds the rows of `other` after its own.
    pub fn join(&mut self, other: Recurrent) -> Result<()> {
        let (mine, others) = (self.like(&other)?, other.like(self)?);
        let pairs = mine.iter().zip(&others);
        self.arrays = pairs
            .map(|(mine, other)| ops::concatenate(&[mine, other], 0))
            .collect::<Result<_>>()?;
        self.rows += other.rows;
        Ok(())
    }

    /// A copy of all rows.
    pub fn copy(&self) -> Result<Recurrent> {
        self.copies(0..self.rows)
    }

    /// Copies of rows; a row may be copied several times.
    pub fn copies(&self, rows: impl Iterator<Item = usize>) -> Result<Recurrent> {
        let rows: Vec<i32> = rows.map(|row| row as i32).collect();
        let copy = |array: &Array| {
            let parts = rows.iter().map(|row| ops::slice_axis(array, 0, *row, row + 1));
            // Never the array itself: what is written in place must have one owner.
            let parts = parts.collect::<Result<Vec<_>>>()?;
            let nothing = ops::slice_axis(array, 0, 0, 0)?;
            ops::concatenate(&parts.iter().chain([&nothing]).collect::<Vec<_>>(), 0)
        };
        let arrays = self.arrays.iter().map(copy).collect::<Result<_>>()?;
        Ok(Recurrent { spec: self.spec, rows: rows.len(), arrays })
    }

    /// Keeps the rows with these indices.
    pub fn keep(&mut self, rows: &[usize]) -> Result<()> {
        *self = self.copies(rows.iter().copied())?;
        Ok(())
    }

    /// Returns true when the rows of `other`, of the same layer, fit into its slots.
    pub fn has_slots_for(&self, other: &Recurrent) -> bool {
        let alike = |(mine, other): (&Array, &Array)| {
            mine.shape()[1..] == other.shape()[1..] && mine.dtype() == other.dtype()
        };
        let (mine, others) = (&self.arrays, &other.arrays);
        !mine.is_empty() && mine.len() == others.len() && mine.iter().zip(others).all(alike)
    }

    /// Puts the rows of `other`, which [fit](Self::has_slots_for), into the places of rows that
    /// left.
    pub(super) fn place(
        &mut self,
        other: &Recurrent,
        slots: &[usize],
        placing: &mut Placing,
    ) -> Result<()> {
        for (into, from) in self.arrays.iter_mut().zip(&other.arrays) {
            let [_, _, count, _] = from.dims()?;
            let place = |(row, slot): (i32, &usize)| Place {
                row,
                slot: *slot as i32,
                first: 0,
                at: 0,
                count,
                before: 0,
            };
            let places: Vec<Place> = (0..).zip(slots).map(place).collect();
            *into = placing.place(from, into, &places)?;
        }
        Ok(())
    }

    /// A copy of the state of one row.
    pub fn snapshot(&self, row: usize) -> Result<Parts> {
        Ok(self.copies([row].into_iter())?.arrays)
    }

    /// Takes the state of one row, as a snapshot has it.
    pub fn restore(&mut self, snapshot: &Parts) -> Result<()> {
        let copied = Recurrent { spec: self.spec, rows: 1, arrays: share(snapshot)? };
        *self = copied.copies([0].into_iter())?;
        Ok(())
    }

    /// The arrays; before the first position zeros where `other` has any.
    fn like(&self, other: &Recurrent) -> Result<Vec<Array>> {
        if !self.arrays.is_empty() {
            return share(&self.arrays);
        }
        let like = |array: &Array| {
            let mut shape = array.shape().to_vec();
            shape[0] = self.rows as i32;
            zeros(&shape, array.dtype())
        };
        other.arrays.iter().map(like).collect()
    }
}

/// Zeros in a buffer of their own, which may be written in place; MLX's are one value many times
/// over. The device makes them: a state has megabytes.
fn zeros(shape: &[i32], dtype: Dtype) -> Result<Array> {
    let many = ops::zeros(shape, dtype)?;
    ops::concatenate(&[&many, &ops::slice_axis(&many, 0, 0, 0)?], 0)
}

fn share(arrays: &[Array]) -> Result<Vec<Array>> {
    arrays.iter().map(Array::share).collect()
}
