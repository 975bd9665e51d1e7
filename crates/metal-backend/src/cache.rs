//! Keys and values of the positions that the rows of a batch have passed.
//!
//! A layer's keys and values lie in buffers `[b, n_kv_heads, capacity, head_dim]`, all rows ending
//! at the same place, so that one write serves the whole batch; a shorter row has padding in
//! front. What the positions of a row are is said once for all layers, by [`Caches::offsets`].

mod arrange;
mod prefix;
mod ring;
mod slab;
#[cfg(test)]
mod tests;
mod visible;

use std::rc::Rc;

use mlx_ffi::{
    Array, Dtype, QuantMode, Quantization, Quantized, Result, dequantize, ops, quantize,
};

pub(crate) use prefix::{PrefixCache, Usable};
use prefix::{BLOCK, Parts};
use ring::Ring;
use slab::Slab;
pub(crate) use visible::{Mask, Visible};

use crate::layers::{KeptStep, Reach, SharedPlaces};

/// Positions by which a buffer grows.
const STEP: i32 = 256;

/// How a layer's cache behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheSpec {
    /// Keeps every position.
    Growing,
    /// Keeps the last positions, as many as the layer sees.
    Sliding {
        /// Positions that a position sees, itself included.
        window: i32,
    },
    /// Keeps the first `keep` and the last positions, `limit` in all: what a context length asks
    /// for.
    Bounded {
        /// Positions held.
        limit: i32,
        /// Of these, how many from the beginning.
        keep: i32,
    },
}

impl CacheSpec {
    /// Positions kept from the beginning where a context length bounds a cache.
    const CONTEXT_KEEP: i32 = 4;

    /// The cache of a layer that sees `window` positions, under a context length.
    pub fn new(window: Option<i32>, context_length: Option<i32>) -> CacheSpec {
        match (window, context_length) {
            (Some(window), limit) if limit.is_none_or(|limit| window <= limit) => {
                CacheSpec::Sliding { window }
            }
            (_, Some(limit)) => {
                CacheSpec::Bounded { limit, keep: CacheSpec::CONTEXT_KEEP.min(limit - 1) }
            }
            _ => CacheSpec::Growing,
        }
    }

    /// The most positions held at once when `tokens` have passed, at most `chunk` of them
    /// together.
    pub fn positions(self, tokens: u64, chunk: u64) -> u64 {
        let grown = tokens.next_multiple_of(STEP as u64);
        match self {
            CacheSpec::Growing => grown,
            CacheSpec::Sliding { window } => {
                grown.min((window + slab::slack(window)) as u64 + chunk)
            }
            CacheSpec::Bounded { limit, .. } => grown.min(limit as u64 + chunk),
        }
    }
}

/// How keys and values are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// As they are.
    Plain,
    /// Packed, in groups along a head's values.
    Packed(Quantization),
}

impl Storage {
    /// Keys and values in `bits` bits; values that share a scale are `group_size`.
    pub fn packed(bits: i32, group_size: i32) -> Storage {
        Storage::Packed(Quantization { mode: QuantMode::Affine, bits, group_size })
    }

    /// Bytes that `elements` take, whose own type takes `dtype_size` bytes each.
    pub fn bytes(self, elements: u64, dtype_size: u64) -> u64 {
        match self {
            Storage::Plain => elements * dtype_size,
            Storage::Packed(Quantization { bits, group_size, .. }) => {
                elements * bits as u64 / 8 + 2 * dtype_size * elements / group_size as u64
            }
        }
    }

    /// The arrays that hold `x`, `[b, n_kv_heads, l, head_dim]`.
    fn pack(self, x: &Array) -> Result<Vec<Array>> {
        match self {
            Storage::Plain => Ok(vec![x.share()?]),
            Storage::Packed(quantization) => {
                let Quantized { weight, scales, biases, .. } = quantize(x, quantization)?;
                Ok([weight, scales].into_iter().chain(biases).collect())
            }
        }
    }

    /// What `parts` stand for, in `dtype`.
    fn unpack(self, parts: &[Array], dtype: Dtype) -> Result<Array> {
        match (self, parts) {
            (Storage::Packed(quantization), [weight, scales, rest @ ..]) => {
                let biases = rest.first().map(Array::share).transpose()?;
                let (weight, scales) = (weight.share()?, scales.share()?);
                dequantize(&Quantized { weight, scales, biases, quantization }, dtype)
            }
            (_, parts) => parts[0].share(),
        }
    }
}

/// The cache of one layer.
#[derive(Debug)]
pub(crate) struct Cache {
    storage: Storage,
    buffers: Buffers,
}

#[derive(Debug)]
enum Buffers {
    Slab(Slab),
    Ring(Ring),
}

/// What a layer's queries attend to.
#[derive(Debug)]
pub(crate) struct View {
    /// `[b, n_kv_heads, n, head_dim]`.
    pub keys: Array,
    /// As the keys.
    pub values: Array,
    /// Which of them each query sees.
    pub visible: Visible,
}

/// Room for one more position of each row, to be written in place.
#[derive(Debug)]
pub(crate) struct Room {
    /// `[b, n_kv_heads, capacity, head_dim]`.
    pub keys: Array,
    /// As the keys.
    pub values: Array,
    /// Where the position goes.
    pub at: i32,
    /// Each row's first position.
    pub starts: Vec<i32>,
}

impl Cache {
    /// The cache of `rows` rows that end after at most `total` positions.
    fn new(spec: CacheSpec, storage: Storage, rows: usize, total: usize) -> Cache {
        let buffers = match spec {
            // A bound that is never reached needs no ring, and no row of its own.
            CacheSpec::Bounded { limit, keep } if total > limit as usize => {
                Buffers::Ring(Ring::new(limit, keep))
            }
            CacheSpec::Sliding { window } => Buffers::Slab(Slab::new(rows, Some(window))),
            _ => Buffers::Slab(Slab::new(rows, None)),
        };
        Cache { storage, buffers }
    }

    /// Appends `k` and `v`, `[b, n_kv_heads, l, head_dim]`, and returns what the `l` positions see.
    pub fn update(&mut self, k: &Array, v: &Array) -> Result<View> {
        let l = k.dims::<4>()?[2];
        let was_empty = self.arrays().next().is_none();
        let keys = self.storage.pack(k)?;
        let n_keys = keys.len();
        let new: Vec<Array> = keys.into_iter().chain(self.storage.pack(v)?).collect();
        let (parts, visible) = match &mut self.buffers {
            Buffers::Slab(slab) => slab.update(&new, l)?,
            Buffers::Ring(ring) => ring.update(&new, l)?,
        };
        if was_empty && self.storage != Storage::Plain {
            // The first positions see each other as they are, as in mlx-lm. All later ones see packed
            // keys and values, their own too, so that it does not matter in which chunks they come.
            return Ok(View { keys: k.share()?, values: v.share()?, visible });
        }
        let (keys, values) = parts.split_at(n_keys);
        let keys = self.storage.unpack(keys, k.dtype())?;
        let values = self.storage.unpack(values, v.dtype())?;
        Ok(View { keys, values, visible })
    }

    /// Room for one position of each row of keys and values in `dtype`; it is taken by
    /// [`fill`](Self::fill). `None` where they are not held as they are, in one place and already.
    pub fn reserve(&mut self, dtype: Dtype) -> Result<Option<Room>> {
        match &mut self.buffers {
            Buffers::Slab(slab) if self.storage == Storage::Plain => slab.reserve(dtype),
            _ => Ok(None),
        }
    }

    /// Whether the next position has room where the others are.
    fn has_room(&self) -> bool {
        matches!(&self.buffers, Buffers::Slab(slab) if slab.has_room())
    }

    /// Takes note that the reserved position was written.
    pub fn fill(&mut self, keys: Array, values: Array) {
        if let Buffers::Slab(slab) = &mut self.buffers {
            slab.fill(vec![keys, values]);
        }
    }

    /// The arrays that hold state, for evaluation.
    fn arrays(&self) -> impl Iterator<Item = &Array> {
        match &self.buffers {
            Buffers::Slab(slab) => slab.parts(),
            Buffers::Ring(ring) => ring.parts(),
        }
        .iter()
    }
}

/// The caches of all layers, for the rows of a batch.
#[derive(Debug)]
pub(crate) struct Caches {
    /// Positions that each row has passed, the position of its next one.
    offsets: Vec<i32>,
    /// How the positions of all rows are encoded.
    reach: Reach,
    layers: Vec<Cache>,
    /// What steps have on the device.
    places: SharedPlaces,
    /// A step of these rows.
    step: KeptStep,
}

impl Caches {
    /// Empty caches of `rows` rows, none of which passes more than `total` positions.
    pub fn new(specs: &[CacheSpec], storage: Storage, rows: usize, total: usize) -> Caches {
        let layers = specs.iter().map(|spec| Cache::new(*spec, storage, rows, total)).collect();
        let (reach, places) = (Reach::default(), SharedPlaces::default());
        Caches { offsets: vec![0; rows], reach, layers, places, step: KeptStep::default() }
    }

    /// The same, empty as they are, for rows whose positions are encoded otherwise.
    pub fn with_reach(self, reach: Reach) -> Caches {
        Caches { reach, ..self }
    }

    /// Positions that each row has passed.
    pub fn offsets(&self) -> &[i32] {
        &self.offsets
    }

    /// How the positions of all rows are encoded.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// What steps have on the device, kept from one to the next.
    pub fn places(&self) -> SharedPlaces {
        Rc::clone(&self.places)
    }

    /// The step that is kept of these rows.
    pub fn step_mut(&mut self) -> &mut KeptStep {
        &mut self.step
    }

    /// Whether one position more of each row has room where the others are.
    pub fn have_room(&self) -> bool {
        self.layers.iter().all(Cache::has_room)
    }

    /// Takes note that every layer's reserved position was written, where it was reserved.
    pub fn fill_in_place(&mut self) {
        for layer in &mut self.layers {
            if let Buffers::Slab(slab) = &mut layer.buffers {
                slab.fill_in_place();
            }
        }
        self.advance(1);
    }

    /// The layers' caches, first layer first.
    pub fn layers_mut(&mut self) -> &mut [Cache] {
        &mut self.layers
    }

    /// Takes note that every layer was given `l` more positions.
    pub fn advance(&mut self, l: i32) {
        self.offsets.iter_mut().for_each(|offset| *offset += l);
    }

    /// The arrays that hold state, for evaluation.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.layers.iter().flat_map(Cache::arrays)
    }

    /// Bytes of the buffers.
    pub fn nbytes(&self) -> u64 {
        self.arrays().map(|array| array.nbytes() as u64).sum()
    }

    /// Whether other rows can join: those whose bound will be reached run alone.
    pub fn can_join(&self) -> bool {
        self.layers.iter().all(|layer| matches!(layer.buffers, Buffers::Slab(_)))
    }

    /// Adds the rows of `other` after those of `self`. Both must be able to join, and of one reach.
    pub fn join(&mut self, other: Caches) -> Result<()> {
        self.step = KeptStep::default();
        for (mine, other) in self.layers.iter_mut().zip(other.layers) {
            if let (Buffers::Slab(mine), Buffers::Slab(other)) = (&mut mine.buffers, other.buffers)
            {
                mine.join(other)?;
            }
        }
        self.offsets.extend(other.offsets);
        Ok(())
    }

    /// Leaves no room behind the next positions, which are the last ones.
    pub fn leave_no_room(&mut self) {
        for layer in &mut self.layers {
            if let Buffers::Slab(slab) = &mut layer.buffers {
                slab.leave_no_room();
            }
        }
    }

    /// Copies of rows, each without so many of its last positions, with room for `room` more: the
    /// same row may be copied several times. What cannot join is copied whole.
    pub fn copies(&self, rows: &[(usize, i32)], room: i32) -> Result<Caches> {
        let copy = |layer: &Cache| {
            let buffers = match &layer.buffers {
                Buffers::Slab(slab) => Buffers::Slab(slab.copies(rows, room)?),
                Buffers::Ring(ring) => Buffers::Ring(ring.share()?),
            };
            Ok(Cache { storage: layer.storage, buffers })
        };
        let offsets = rows.iter().map(|(row, left_out)| self.offsets[*row] - left_out).collect();
        let layers = self.layers.iter().map(copy).collect::<Result<_>>()?;
        let (places, step) = (SharedPlaces::default(), KeptStep::default());
        Ok(Caches { offsets, reach: self.reach, layers, places, step })
    }

    /// Keeps the rows with these indices, in ascending order.
    pub fn keep(&mut self, rows: &[usize]) -> Result<()> {
        self.step = KeptStep::default();
        for layer in &mut self.layers {
            if let Buffers::Slab(slab) = &mut layer.buffers {
                slab.keep(rows)?;
            }
        }
        self.offsets = rows.iter().map(|row| self.offsets[*row]).collect();
        Ok(())
    }
}

impl Caches {
    /// Copies of what every layer holds of the positions `first..end` of a row; `None` where one no
    /// longer does.
    fn copy(&self, row: usize, first: i32, end: i32) -> Result<Option<Vec<Parts>>> {
        let offset = self.offsets[row];
        let copies = self.layers.iter().map(|layer| match &layer.buffers {
            Buffers::Slab(slab) => slab.copy(row, offset - first, offset - end),
            Buffers::Ring(_) => Ok(None),
        });
        copies.collect()
    }

    /// Fills empty caches of one row with consecutive blocks, from the first position on: for each
    /// block, each layer's arrays.
    fn restore(&mut self, blocks: &[&[Parts]]) -> Result<()> {
        for (index, layer) in self.layers.iter_mut().enumerate() {
            if let Buffers::Slab(slab) = &mut layer.buffers {
                let of_layer: Vec<&Parts> = blocks.iter().map(|layers| &layers[index]).collect();
                slab.restore(&of_layer)?;
            }
        }
        self.offsets = vec![(blocks.len() * BLOCK) as i32];
        Ok(())
    }
}

/// The first `end` positions, or all where there are no more.
fn front(buffer: &Array, end: i32) -> Result<Array> {
    if end < positions(buffer) { ops::slice_axis(buffer, 2, 0, end) } else { buffer.share() }
}

/// Positions `first..end` of a buffer.
fn between(buffer: &Array, first: i32, end: i32) -> Result<Array> {
    match first {
        0 => front(buffer, end),
        _ => ops::slice_axis(buffer, 2, first, end),
    }
}

fn positions(buffer: &Array) -> i32 {
    buffer.shape().get(2).copied().unwrap_or(0)
}
