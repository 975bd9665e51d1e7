//! Hidden states that are needed behind the last layer, where not all are.

use mlx_ffi::{Array, Indices, Result, ops};

/// The positions of a pass whose hidden states are needed behind its last layer.
#[derive(Debug)]
pub(crate) struct Tail(Indices);

impl Tail {
    /// The positions with these indices, all rows' positions counted one after the other.
    pub fn new(positions: &[u32]) -> Result<Tail> {
        Ok(Tail(Indices::from_u32(positions, &[positions.len() as i32, 1])?))
    }

    /// Another handle on them.
    pub fn share(&self) -> Result<Tail> {
        Ok(Tail(self.0.share()?))
    }

    /// The indices, `[positions, 1]`.
    pub fn indices(&self) -> &Array {
        &self.0
    }

    /// The values of `x`, `[b, l, size]`, at these positions: `[positions, 1, size]`.
    pub fn of(&self, x: &Array) -> Result<Array> {
        ops::take_positions(x, &self.0)
    }
}
