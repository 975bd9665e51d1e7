//! A ring of positions, for one row that goes on past the bound of its context.
//!
//! Its order is mlx-lm's: single positions overwrite the oldest one after the first `keep`, and
//! several at once are put behind the held ones in their order.

use mlx_ffi::{Array, Result, ops};

use super::buffer::{STEP, front, positions};
use super::visible::Visible;

/// Keys and values of a layer for one row.
#[derive(Debug)]
pub(super) struct Ring {
    limit: i32,
    keep: i32,
    /// Each `[1, n_kv_heads, positions, …]`; none before the first update.
    parts: Vec<Array>,
    /// Positions that have passed.
    offset: i32,
    /// The index at which the next position is written.
    index: i32,
}

impl Ring {
    /// Nothing yet; holds `limit` positions, of which the first `keep` stay.
    pub fn new(limit: i32, keep: i32) -> Ring {
        Ring { limit, keep, parts: Vec::new(), offset: 0, index: 0 }
    }

    /// A copy that goes on by itself.
    pub fn share(&self) -> Result<Ring> {
        let Ring { limit, keep, offset, index, .. } = *self;
        let parts = self.parts.iter().map(Array::share).collect::<Result<_>>()?;
        Ok(Ring { limit, keep, parts, offset, index })
    }

    /// The arrays that hold state.
    pub fn parts(&self) -> &[Array] {
        &self.parts
    }

    /// Appends `l` positions of `new`, and returns what they see.
    pub fn update(&mut self, new: &[Array], l: i32) -> Result<(Vec<Array>, Visible)> {
        if l == 1 {
            self.rotate(new)?;
            let seen = self.parts.iter().map(|part| front(part, self.offset));
            return Ok((seen.collect::<Result<_>>()?, Visible::default()));
        }
        self.extend(new, l)?;
        let n = self.parts.first().map_or(0, positions);
        let seen = self.parts.iter().map(Array::share).collect::<Result<_>>()?;
        Ok((seen, Visible::new(Vec::new(), l, n, Some(self.limit))))
    }

    /// Writes one position over the oldest one that need not be kept.
    fn rotate(&mut self, new: &[Array]) -> Result<()> {
        let held = self.parts.first().map_or(0, positions);
        let mut index = self.index;
        let room = if self.offset >= held && held < self.limit {
            index = self.offset;
            STEP.min(self.limit - held)
        } else {
            0
        };
        // A chunk leaves more than the limit behind: drop the oldest.
        let surplus = held - self.limit;
        if surplus > 0 {
            index = self.limit;
        }
        if index == self.limit {
            index = self.keep;
        }
        let mut parts = Vec::with_capacity(new.len());
        for (at, new) in new.iter().enumerate() {
            let buffer = match self.parts.get(at) {
                Some(old) if surplus > 0 => drop_oldest(old, self.keep, surplus)?,
                Some(old) if room == 0 => old.share()?,
                old => {
                    let [b, n, _, width] = new.dims()?;
                    let room = ops::zeros(&[b, n, room, width], new.dtype())?;
                    match old {
                        None => room,
                        Some(old) => ops::concatenate(&[old, &room], 2)?,
                    }
                }
            };
            parts.push((buffer, new));
        }
        // The old buffers go before the new ones are written, so that they can be written in place.
        self.parts.clear();
        self.parts = parts
            .into_iter()
            .map(|(buffer, new)| ops::slice_update_axis(&buffer, new, 2, index, index + 1))
            .collect::<Result<_>>()?;
        self.offset += 1;
        self.index = index + 1;
        Ok(())
    }

    /// Appends a chunk; each of its positions sees at least the limit back.
    fn extend(&mut self, new: &[Array], l: i32) -> Result<()> {
        let mut parts = Vec::with_capacity(new.len());
        for (at, new) in new.iter().enumerate() {
            let Some(old) = self.parts.get(at) else {
                parts.push(new.share()?);
                continue;
            };
            let ordered = self.in_order(old)?;
            let surplus = positions(&ordered) - self.limit + 1;
            let kept =
                if surplus > 0 { drop_oldest(&ordered, self.keep, surplus)? } else { ordered };
            parts.push(ops::concatenate(&[&kept, new], 2)?);
        }
        self.parts = parts;
        self.offset += l;
        self.index = self.parts.first().map_or(0, positions);
        Ok(())
    }

    /// The buffer's positions, oldest first, without room that was never written.
    fn in_order(&self, buffer: &Array) -> Result<Array> {
        let total = positions(buffer);
        if self.index == total {
            return buffer.share();
        }
        if self.index >= self.offset {
            return ops::slice_axis(buffer, 2, 0, self.index);
        }
        let first = ops::slice_axis(buffer, 2, 0, self.keep)?;
        let old = ops::slice_axis(buffer, 2, self.index, total)?;
        let new = ops::slice_axis(buffer, 2, self.keep, self.index)?;
        ops::concatenate(&[&first, &old, &new], 2)
    }
}

fn drop_oldest(buffer: &Array, keep: i32, count: i32) -> Result<Array> {
    let total = positions(buffer);
    let rest = ops::slice_axis(buffer, 2, (keep + count).min(total), total)?;
    if keep == 0 {
        return Ok(rest);
    }
    let first = ops::slice_axis(buffer, 2, 0, keep.min(total))?;
    ops::concatenate(&[&first, &rest], 2)
}
