//! Rows that take the slots of others which left, and copies of rows.

use mlx_ffi::cuda::{self, Place, Places};
use mlx_ffi::{Array, Result, on_cpu, on_cuda, ops};

/// The places of rows, which layers of one kind share on the device.
#[derive(Debug, Default)]
pub(super) struct Placing {
    known: Vec<(Vec<Place>, Places)>,
}

impl Placing {
    /// The buffer `into`, `[slots, n_kv_heads, capacity, …]`, with rows of `from` in slots of it. On a GPU it is
    /// written in place, by a kernel of CUDA.
    pub fn place(&mut self, from: &Array, into: &Array, places: &[Place]) -> Result<Array> {
        if on_cpu()? {
            return by_operations(from, into, places);
        }
        cuda::place(from, into, self.on_device(places)?)
    }

    /// Copies of the positions that `place` reads, of keys and of values, by a kernel of CUDA; `None` where there
    /// is none.
    pub fn copied(&mut self, of: [&Array; 2], place: Place) -> Result<Option<[Array; 2]>> {
        if on_cuda()? { cuda::copied(of, self.on_device(&[place])?).map(Some) } else { Ok(None) }
    }

    fn on_device(&mut self, places: &[Place]) -> Result<&Places> {
        let at = match self.known.iter().position(|(known, _)| known == places) {
            Some(at) => at,
            None => {
                self.known.push((places.to_vec(), Places::new(places)?));
                self.known.len() - 1
            }
        };
        Ok(&self.known[at].1)
    }
}

fn by_operations(from: &Array, into: &Array, places: &[Place]) -> Result<Array> {
    places.iter().try_fold(into.share()?, |into, place| {
        let Place { row, slot, first, at, count } = *place;
        let held =
            ops::slice_axis(&ops::slice_axis(from, 0, row, row + 1)?, 2, first, first + count)?;
        let old = ops::slice_axis(&into, 0, slot, slot + 1)?;
        let new = ops::slice_update_axis(&old, &held, 2, at, at + count)?;
        ops::slice_update_axis(&into, &new, 0, slot, slot + 1)
    })
}
