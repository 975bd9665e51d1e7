//! The buffers into which the kernel of a step writes.

use mlx_ffi::{Array, Result};

/// Buffers into which a kernel writes one more position of each row in place.
#[derive(Debug)]
pub(crate) struct Slot {
    /// `[b, n_kv_heads, capacity, head_dim]`.
    pub keys: Array,
    /// As the keys; the same buffer where a value is the beginning of its key.
    pub values: Array,
    /// The index of that position in the buffers.
    pub at: i32,
    /// Each row's first position.
    pub starts: Vec<i32>,
}

impl Slot {
    /// Hides the first position of each row from the one that is written, unless that is it, if so.
    pub fn hide_first(&mut self, hides: bool) {
        let hidden = i32::from(hides);
        self.starts.iter_mut().for_each(|start| *start = (*start + hidden).min(self.at));
    }

    /// Another handle on the same buffers.
    pub fn share(&self) -> Result<Slot> {
        let (keys, values) = (self.keys.share()?, self.values.share()?);
        Ok(Slot { keys, values, at: self.at, starts: self.starts.clone() })
    }
}
