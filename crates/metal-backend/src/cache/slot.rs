//! The buffers into which the kernel of a step writes.

use mlx_ffi::step::Packing;
use mlx_ffi::{Array, Dtype, Error, Result, ops};

use super::storage::Storage;

/// Buffers into which a kernel writes one more position of each row in place.
#[derive(Debug)]
pub(crate) struct Slot {
    /// As a [storage](Storage::pack) has them, `[b, n_kv_heads, capacity, …]` each: those of keys,
    /// then those of values. One alone where a value is the beginning of its key.
    pub parts: Vec<Array>,
    /// How the parts hold keys and values.
    pub storage: Storage,
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
        let parts = self.parts.iter().map(Array::share).collect::<Result<_>>()?;
        Ok(Slot { parts, starts: self.starts.clone(), ..*self })
    }

    /// The keys, `[b, n_kv_heads, capacity, head_dim]`; their codes where they are packed.
    pub fn keys(&self) -> Result<&Array> {
        self.parts.first().ok_or_else(lost)
    }

    /// The values, likewise.
    pub fn values(&self) -> Result<&Array> {
        self.parts.get(self.parts.len() / 2).ok_or_else(lost)
    }

    /// The scales and biases of codes, where keys and values are packed.
    pub fn packing(&self) -> Option<Packing<'_>> {
        match (self.storage, &self.parts[..]) {
            (Storage::Packed(quantization), [_, scales, biases, _, of_values @ ..]) => {
                let values = [of_values.first()?, of_values.get(1)?];
                Some(Packing { quantization, keys: [scales, biases], values })
            }
            _ => None,
        }
    }

    /// Keys and values of `dtype` from `first` to the end of the position that was written.
    pub fn held(&self, first: i32, dtype: Dtype) -> Result<[Array; 2]> {
        let of = |parts: &[Array]| {
            let held = |part| ops::slice_axis(part, 2, first, self.at + 1);
            self.storage.unpack(&parts.iter().map(held).collect::<Result<Vec<_>>>()?, dtype)
        };
        let (keys, values) = self.parts.split_at(self.parts.len() / 2);
        Ok([of(keys)?, of(values)?])
    }
}

fn lost() -> Error {
    Error::new("a slot without keys")
}
