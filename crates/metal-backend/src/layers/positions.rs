//! The positions of a pass, and what its layers share of them.

use std::cell::OnceCell;

use std::ops::Range;

use mlx_ffi::{Array, Result, ops};

use super::step_offsets::{ChunkOffsets, SharedOffsets, SlotOffsets};
use super::{Observed, Rotation, Seen, Texts};
use crate::cache::{Caches, KvCache, Mask, Recurrent, RopeFactors, Slot, State, View, Visible};
use crate::kernels::Columns;

/// The KV that a layer shares with later ones.
#[derive(Debug)]
pub(crate) enum SharedKv {
    /// The view of its queries, and its new keys.
    View(View, Array),
    /// Buffers into which its step has written one position of each row.
    Slot(Slot),
}

impl SharedKv {
    /// Another handle on the same keys and values.
    fn share(&self) -> Result<SharedKv> {
        Ok(match self {
            SharedKv::View(view, keys) => SharedKv::View(view.share()?, keys.share()?),
            SharedKv::Slot(slot) => SharedKv::Slot(slot.share()?),
        })
    }
}

/// The positions of one pass through the layers: `l` for each row of the batch.
#[derive(Debug)]
pub(crate) struct Positions {
    /// The first position of each row.
    offsets: Vec<i32>,
    /// `offsets` as `[b]`, once that was asked for.
    each: OnceCell<Array>,
    rope_factors: RopeFactors,
    /// Positions of each row that count; empty: all. Others fill rows up behind their ends.
    lengths: Vec<i32>,
    /// Layers of one kind are in the same state, so they share a mask: (visible, l, n).
    masks: Vec<((Visible, i32, i32), Mask)>,
    /// Masks as arrays, where attention takes nothing else.
    arrays: Vec<((Visible, i32, i32), Option<Array>)>,
    /// Cosines and sines of their angles, for each kind of layer.
    cos_sin: Vec<(Rotation, Array)>,
    /// Offsets of steps, kept on the device.
    on_device: SharedOffsets,
    /// Set when attention is observed: the layer leaves its attention here.
    observer: Option<Option<Observed>>,
    /// Of each of one row's positions, what rotations take in its place: by time, row and column.
    given: Option<Vec<[i32; 3]>>,
    /// Positions that see each other, whatever comes first.
    spans: Vec<Range<i32>>,
    /// The texts that the positions belong to, where the pass is of whole texts.
    texts: Option<Texts>,
    /// A row's first position is seen by none.
    hides_first: bool,
    /// The shared KV of layers, by number.
    shared: Vec<(usize, SharedKv)>,
    /// The keys that the last index chose, `[b, 1, l, n]`; `None`: all that are visible.
    pub(super) chosen: Option<Array>,
    /// Rows that decode in the pass.
    pub(super) decode_rows: Option<Box<DecodeRows>>,
}

impl Positions {
    /// The positions that follow those which the rows of `caches` have passed.
    pub fn after(caches: &Caches) -> Positions {
        Positions::of_step(caches, SharedOffsets::default())
    }

    /// The positions that follow those of `caches` after `more` of each row.
    pub fn ahead(caches: &Caches, more: i32) -> Positions {
        let mut positions = Positions::after(caches);
        positions.offsets.iter_mut().for_each(|offset| *offset += more);
        positions
    }

    /// The positions that follow those of `caches`, for a step whose offsets stay `on_device`.
    pub fn of_step(caches: &Caches, on_device: SharedOffsets) -> Positions {
        Positions {
            offsets: caches.positions(),
            each: OnceCell::new(),
            rope_factors: caches.rope_factors(),
            lengths: Vec::new(),
            masks: Vec::new(),
            arrays: Vec::new(),
            cos_sin: Vec::new(),
            on_device,
            observer: None,
            given: None,
            spans: Vec::new(),
            texts: None,
            hides_first: false,
            shared: Vec::new(),
            chosen: None,
            decode_rows: None,
        }
    }

    /// The positions of whole texts, one behind the other in one row, which nothing continues.
    pub fn of_texts(texts: Texts) -> Positions {
        Positions { texts: Some(texts), ..Positions::at_start() }
    }

    /// The positions of rows that begin at position 0.
    pub fn at_start() -> Positions {
        Positions {
            offsets: vec![0],
            each: OnceCell::new(),
            rope_factors: RopeFactors::Short,
            lengths: Vec::new(),
            masks: Vec::new(),
            arrays: Vec::new(),
            cos_sin: Vec::new(),
            on_device: SharedOffsets::default(),
            observer: None,
            given: None,
            spans: Vec::new(),
            texts: None,
            hides_first: false,
            shared: Vec::new(),
            chosen: None,
            decode_rows: None,
        }
    }

    /// The texts of the pass, where it is of whole ones.
    pub fn texts(&self) -> Option<&Texts> {
        self.texts.as_ref()
    }

    /// The positions of a pass that sees pictures.
    pub fn seeing(self, seen: Seen) -> Positions {
        Positions { given: seen.positions, spans: seen.spans, ..self }
    }

    /// Hides each row's first position from all others: layers that keep every position see it
    /// from themselves alone.
    pub fn hide_first(&mut self) {
        self.hides_first = true;
    }

    /// Returns true when each row's first position is seen by none.
    pub fn hides_first(&self) -> bool {
        self.hides_first
    }

    /// Returns true when rotations take other positions than the rows' own.
    pub fn are_given(&self) -> bool {
        self.given.is_some() || self.texts.is_some()
    }

    /// Shares a layer's view and its new keys, `[b, n_kv_heads, l, head_dim]`, under a number.
    pub fn share_kv(&mut self, number: usize, (view, keys): (&View, &Array)) -> Result<()> {
        self.shared.push((number, SharedKv::View(view.share()?, keys.share()?)));
        Ok(())
    }

    /// Shares a layer's keys and values under a number. Its step has added one position of each
    /// row.
    pub fn share_slot(&mut self, number: usize, slot: Slot) {
        self.shared.push((number, SharedKv::Slot(slot)));
    }

    /// The KV shared under a number.
    pub fn shared_kv(&self, number: usize) -> Result<SharedKv> {
        match self.shared.iter().find(|(owner, ..)| *owner == number) {
            Some((_, shared)) => shared.share(),
            None => Err(mlx_ffi::Error::new(format!("layer {number} shares no keys"))),
        }
    }

    /// Of each row, only so many positions count.
    pub fn set_lengths(&mut self, lengths: Vec<i32>) {
        self.lengths = lengths;
    }

    /// Positions of each row that count; empty: all.
    pub fn lengths(&self) -> &[i32] {
        &self.lengths
    }

    /// From now on, each layer leaves what its attention sees.
    pub fn observe(&mut self) {
        self.observer = Some(None);
    }

    /// The field in which a layer leaves its attention; `None`: nobody observes it.
    pub fn observer(&mut self) -> Option<&mut Option<Observed>> {
        self.observer.as_mut()
    }

    /// The first position of each row.
    pub fn offsets(&self) -> &[i32] {
        &self.offsets
    }

    /// Returns true when the rows have different positions.
    fn differ(&self) -> bool {
        self.offsets.windows(2).any(|pair| pair[0] != pair[1])
    }

    /// The first positions, `[b]`, where the rows differ. Made only now: on CUDA it takes a step's
    /// time to bring it to the device.
    pub fn each(&self) -> Result<Option<&Array>> {
        if !self.differ() {
            return Ok(None);
        }
        if let Some(each) = self.each.get() {
            return Ok(Some(each));
        }
        let each = Array::from_i32(&self.offsets, &[self.offsets.len() as i32])?;
        Ok(Some(self.each.get_or_init(|| each)))
    }

    /// The factors of LongRoPE of all of them.
    pub fn rope_factors(&self) -> RopeFactors {
        self.rope_factors
    }

    /// The rotation of the `l` positions of each row, `[b or 1, l, dims]` F32: the cosines of all
    /// pairs' angles, then their sines.
    pub fn cos_sin(&mut self, rotation: Rotation, l: i32) -> Result<Array> {
        let is_known =
            |(known, values): &&(Rotation, Array)| *known == rotation && values.shape()[1] == l;
        if let Some((_, values)) = self.cos_sin.iter().find(is_known) {
            return values.share();
        }
        let mut values = Vec::new();
        let mut rows = 1;
        if let Some(texts) = &self.texts {
            texts.push_cos_sin(&rotation, &mut values);
        } else if let Some(given) = &self.given {
            given.iter().for_each(|position| rotation.push_axes(*position, &mut values));
        } else {
            let same = self.offsets.get(..1).unwrap_or(&[0]);
            let offsets = if self.differ() { &self.offsets[..] } else { same };
            rows = offsets.len() as i32;
            for offset in offsets {
                (0..l).for_each(|i| rotation.push_cos_sin(offset + i, &mut values));
            }
        }
        let dims = values.len() as i32 / (rows * l).max(1);
        let values = Array::from_f32(&values, &[rows, l, dims])?;
        self.cos_sin.push((rotation, values.share()?));
        Ok(values)
    }

    /// The offsets of a step, as [`Step`](mlx_ffi::step::Step) takes them, for layers of `n_heads`
    /// heads whose new position goes into `slot`.
    pub fn step_offsets(&self, slot: &Slot, n_heads: i32) -> Result<SlotOffsets> {
        self.on_device.borrow_mut().of(slot, &self.offsets, n_heads)
    }

    /// The offsets of a chunk of several positions of each row, for layers whose new positions go
    /// into `slot`.
    pub fn chunk_offsets(&self, slot: &Slot) -> Result<ChunkOffsets> {
        self.on_device.borrow_mut().of_chunk(slot, &self.offsets)
    }

    /// The largest end of a row after `l` positions.
    pub fn end(&self, l: i32) -> i32 {
        self.offsets.iter().copied().max().unwrap_or(0).saturating_add(l)
    }

    /// Returns true when each position sees all before it, and rotations take the rows' own
    /// positions.
    pub fn are_plain(&self) -> bool {
        !self.are_given() && self.spans.is_empty()
    }

    /// Positions that see each other, whatever comes first.
    pub fn spans(&self) -> &[Range<i32>] {
        &self.spans
    }

    /// The mask for `l` queries over a view.
    pub fn mask(&mut self, view: &View, l: i32) -> Result<&Mask> {
        known(&mut self.masks, view, l, Visible::mask)
    }

    /// True for the keys of a view that `l` queries see, `[b or 1, 1, l, n]`; `None`: all.
    pub fn seen(&mut self, view: &View, l: i32) -> Result<Option<&Array>> {
        Ok(known(&mut self.arrays, view, l, Visible::array)?.as_ref())
    }
}

/// Rows that decode in a pass of prompts, whose positions stand behind those of the prompts.
#[derive(Debug)]
pub(crate) struct DecodeRows {
    positions: Positions,
    caches: Caches,
    /// The layer that is computed.
    layer: usize,
}

impl DecodeRows {
    /// The rows of `caches`; `places` are the offsets of their steps on the device.
    pub fn new(caches: Caches, places: SharedOffsets) -> DecodeRows {
        DecodeRows { positions: Positions::of_step(&caches, places), caches, layer: 0 }
    }

    /// Their caches.
    pub fn into_caches(self) -> Caches {
        self.caches
    }

    /// How many rows.
    pub fn count(&self) -> i32 {
        self.caches.slots() as i32
    }

    /// From now on, this layer is computed.
    pub fn enter(&mut self, layer: usize) {
        self.layer = layer;
    }

    /// Takes note that each row has passed all layers.
    pub fn end(&mut self) {
        self.caches.advance(1);
    }

    /// The arrays that layers have written, for evaluation.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.caches.arrays()
    }

    /// Their positions, and the keys and values of the layer.
    ///
    /// # Errors
    /// A layer that remembers something else.
    pub fn keys_and_values(&mut self) -> Result<(&mut Positions, &mut KvCache)> {
        match self.caches.layers_mut().get_mut(self.layer) {
            Some(State::Kv(cache) | State::Both(cache, _)) => Ok((&mut self.positions, cache)),
            _ => Err(mlx_ffi::Error::new("rows that decode beside prompts have no keys")),
        }
    }

    /// The recurrent state of the layer.
    ///
    /// # Errors
    /// A layer that remembers something else.
    pub fn recurrent(&mut self) -> Result<&mut Recurrent> {
        match self.caches.layers_mut().get_mut(self.layer) {
            Some(State::Recurrent(state) | State::Both(_, state)) => Ok(state),
            _ => Err(mlx_ffi::Error::new("rows that decode beside prompts have no such state")),
        }
    }

    /// Splits `x`, `[1, positions, …]`, into `prompts` prompts, `[prompts, l, …]`, and these rows,
    /// `[rows, 1, …]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn split(&self, x: &Columns, prompts: i32) -> Result<[Columns; 2]> {
        let [_, positions, size] = x.of.dims()?;
        let of_prompts = positions - self.count();
        let part = |from, end, rows| {
            let part = ops::slice_axis(&x.of, 1, from, end)?;
            let of = ops::reshape(&part, &[rows, (end - from) / rows, size])?;
            Ok(Columns { of, range: x.range.clone() })
        };
        Ok([part(0, of_prompts, prompts)?, part(of_prompts, positions, self.count())?])
    }
}

/// The result of `make` for the view of `l` queries, made once.
fn known<'a, T>(
    all: &'a mut Vec<((Visible, i32, i32), T)>,
    view: &View,
    l: i32,
    make: impl FnOnce(&Visible, i32, i32) -> Result<T>,
) -> Result<&'a T> {
    let [_, _, n, _] = view.keys.dims()?;
    let is_known = |((visible, queries, keys), _): &((Visible, i32, i32), T)| {
        (queries, keys) == (&l, &n) && *visible == view.visible
    };
    let index = match all.iter().position(is_known) {
        Some(index) => index,
        None => {
            let made = make(&view.visible, l, n)?;
            all.push(((view.visible.clone(), l, n), made));
            all.len() - 1
        }
    };
    Ok(&all[index].1)
}
