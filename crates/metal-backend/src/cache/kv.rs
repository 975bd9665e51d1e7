//! The keys and values of one layer, for the rows of a batch.

use mlx_ffi::{Array, Dtype, Result, cuda, ops};

use super::buffer::{Parts, RowsOf};
use super::place::{Placing, Span};
use super::ring::Ring;
use super::slab::Slab;
use super::slot::Slot;
use super::spec::{Growth, KvSpec};
use super::storage::{Form, Storage};
use super::visible::Visible;

/// The keys and values of one layer.
#[derive(Debug)]
pub(crate) struct KvCache {
    storage: Storage,
    buffers: Buffers,
}

#[derive(Debug)]
enum Buffers {
    Slab(Slab),
    Ring(Ring),
}

/// The keys and values that a layer's queries attend to.
#[derive(Debug)]
pub(crate) struct View {
    /// `[b, n_kv_heads, n, head_dim]`.
    pub keys: Array,
    /// `[b, n_kv_heads, n, …]`.
    pub values: Array,
    /// Which of them each query sees.
    pub visible: Visible,
}

impl View {
    /// Hides the first key of each row, if so.
    pub fn hide_first(&mut self, hides: bool) -> Result<()> {
        if hides {
            let [rows, _, n, _] = self.keys.dims()?;
            self.visible.hide_first(rows as usize, n);
        }
        Ok(())
    }

    /// Another handle on the same keys and values.
    pub fn share(&self) -> Result<View> {
        let (keys, values) = (self.keys.share()?, self.values.share()?);
        Ok(View { keys, values, visible: self.visible.clone() })
    }
}

impl KvCache {
    /// The cache of `rows` rows that end after at most `total` positions.
    pub fn new(spec: KvSpec, storage: Storage, rows: usize, total: usize) -> KvCache {
        let buffers = match spec.growth {
            // A bound that is never reached needs no ring, and no row of its own.
            Growth::Bounded { limit, keep } if total > limit as usize => {
                Buffers::Ring(Ring::new(limit, keep))
            }
            Growth::Sliding { window } => Buffers::Slab(Slab::new(rows, Some(window))),
            _ => Buffers::Slab(Slab::new(rows, None)),
        };
        KvCache { storage, buffers }
    }

    /// Appends `k` and `v`, `[b, n_kv_heads, l, head_dim]`, and returns what the `l` positions see.
    pub fn update(&mut self, k: &Array, v: &Array) -> Result<View> {
        let ([keys, values], visible) = self.append([k, v])?;
        Ok(View { keys, values, visible })
    }

    /// Appends `k`, `[b, n_kv_heads, l, width]`, whose first `value_dim` values are the positions'
    /// values, and returns what the `l` positions see.
    pub fn update_latent(&mut self, k: &Array, value_dim: i32) -> Result<View> {
        let ([keys], visible) = self.append([k])?;
        let values = ops::slice_axis(&keys, -1, 0, value_dim)?;
        Ok(View { keys, values, visible })
    }

    /// Appends the arrays of `l` positions, and returns those of all that they see.
    fn append<const N: usize>(&mut self, new: [&Array; N]) -> Result<([Array; N], Visible)> {
        let l = new.first().map_or(Ok(0), |new| Ok(new.dims::<4>()?[2]))?;
        let was_empty = self.arrays().is_empty();
        let packed = new.iter().map(|new| self.storage.pack(new)).collect::<Result<Vec<_>>>()?;
        let each = packed.first().map_or(1, Vec::len);
        let packed: Vec<Array> = packed.into_iter().flatten().collect();
        let (parts, visible) = match &mut self.buffers {
            Buffers::Slab(slab) => slab.update(&packed, l)?,
            Buffers::Ring(ring) => ring.update(&packed, l)?,
        };
        let seen = if was_empty && self.storage != Storage::Plain {
            // The first positions see each other as they are, as in mlx-lm. All later ones see
            // packed keys and values, their own too, so that it does not matter in which chunks
            // they come.
            new.iter().map(|new| new.share()).collect::<Result<Vec<_>>>()?
        } else {
            let unpack =
                |(parts, new): (&[Array], &&Array)| self.storage.unpack(parts, new.dtype());
            parts.chunks(each).zip(&new).map(unpack).collect::<Result<Vec<_>>>()?
        };
        let seen = seen.try_into().map_err(|_| mlx_ffi::Error::new("a cache lost a part"))?;
        Ok((seen, visible))
    }

    /// The slot for one position of each row of keys and values in `dtype`; it is taken by
    /// [`fill`](Self::fill). `None` where they are not held as they are, in one place and already.
    pub fn reserve(&mut self, dtype: Dtype) -> Result<Option<Slot>> {
        self.in_place().map_or(Ok(None), |slab| slab.reserve(dtype))
    }

    /// The slot for one position of each row where kernels for CUDA attend to heads of `head_dim`
    /// values: packed ones they take as they are held. The first positions see each other unpacked.
    pub fn reserve_on_cuda(&mut self, dtype: Dtype, head_dim: i32) -> Result<Option<Slot>> {
        match (self.storage, &mut self.buffers) {
            (Storage::Packed(quantization), Buffers::Slab(slab))
                if cuda::attends_packed(head_dim, quantization) =>
            {
                slab.reserve_packed(dtype, self.storage, 1, None)
            }
            _ => self.reserve(dtype),
        }
    }

    /// Returns true when keys and values are held as they are.
    pub fn is_plain(&self) -> bool {
        self.storage == Storage::Plain
    }

    /// The slot for `l` positions of each row, likewise, of `n_kv_heads` heads of `head_dim`
    /// values; the first ones get buffers. For CUDA.
    pub fn reserve_chunk(&mut self, dtype: Dtype, l: i32, sizes: [i32; 2]) -> Result<Option<Slot>> {
        match (self.storage, &mut self.buffers) {
            (Storage::Plain, Buffers::Slab(slab)) => slab.reserve_chunk(dtype, l, sizes),
            (Storage::Packed(of), Buffers::Slab(slab)) if cuda::attends_packed(sizes[1], of) => {
                slab.reserve_packed(dtype, self.storage, l, Some(sizes))
            }
            _ => Ok(None),
        }
    }

    /// The shape of the buffers that [`reserve_chunk`](Self::reserve_chunk) would make.
    pub(super) fn lacks(&mut self, l: i32, sizes: [i32; 2]) -> Option<[i32; 4]> {
        self.in_place().and_then(|slab| slab.lacks(l, sizes))
    }

    /// Takes the buffers that it lacks.
    pub(super) fn give(&mut self, parts: [Array; 2]) {
        if let Some(slab) = self.in_place() {
            slab.give(parts);
        }
    }

    /// The buffers that kernels write in place: of keys and values as they are.
    fn in_place(&mut self) -> Option<&mut Slab> {
        match &mut self.buffers {
            Buffers::Slab(slab) if self.storage == Storage::Plain => Some(slab),
            _ => None,
        }
    }

    /// Takes note that so many more positions will come, chunk by chunk.
    pub fn will_grow_by(&mut self, more: i32) {
        if let Buffers::Slab(slab) = &mut self.buffers {
            slab.will_grow_by(more);
        }
    }

    /// Returns true when the next position fits into the buffers as they are.
    pub fn has_room(&self) -> bool {
        matches!(&self.buffers, Buffers::Slab(slab) if slab.has_room(1))
    }

    /// Takes the buffers, whose `l` reserved positions were written.
    pub fn fill(&mut self, parts: Vec<Array>, l: i32) {
        if let Buffers::Slab(slab) = &mut self.buffers {
            slab.fill(parts, l);
        }
    }

    /// The arrays that hold state, for evaluation.
    pub fn arrays(&self) -> &[Array] {
        match &self.buffers {
            Buffers::Slab(slab) => slab.parts(),
            Buffers::Ring(ring) => ring.parts(),
        }
    }

    /// Takes note that `l` reserved positions were written, by an operation already in flight.
    pub fn fill_in_place(&mut self, l: i32) {
        if let Buffers::Slab(slab) = &mut self.buffers {
            slab.fill_in_place(l);
        }
    }

    /// Returns true when other rows can join. A row that will reach its bound runs alone.
    pub fn can_join(&self) -> bool {
        matches!(self.buffers, Buffers::Slab(_))
    }

    /// Adds the rows of `other` after its own. Both must be able to join.
    pub fn join(&mut self, other: KvCache) -> Result<()> {
        match (&mut self.buffers, other.buffers) {
            (Buffers::Slab(mine), Buffers::Slab(other)) => mine.join(other),
            _ => Err(alone("join")),
        }
    }

    /// [`Slab::gathered`], where all of `sources` hold keys and values alike.
    pub(super) fn gathered(
        sources: &[RowsOf<'_, KvCache>],
        slots: usize,
        capacity: impl Fn(&Slab, i32) -> i32,
    ) -> Option<Vec<Form>> {
        Slab::gathered(&KvCache::slabs(sources)?, slots, capacity)
    }

    /// [`Slab::gather`], for what [`gathered`](Self::gathered) has forms for.
    pub(super) fn gather(
        sources: &[RowsOf<'_, KvCache>],
        buffers: Vec<Array>,
        placing: &mut Placing,
    ) -> Result<KvCache> {
        let slabs = KvCache::slabs(sources).ok_or_else(|| alone("join"))?;
        let buffers = Buffers::Slab(Slab::gather(&slabs, buffers, placing)?);
        let storage = sources.first().map_or(Storage::Plain, |(cache, _)| cache.storage);
        Ok(KvCache { storage, buffers })
    }

    fn slabs<'a>(sources: &[RowsOf<'a, KvCache>]) -> Option<Vec<RowsOf<'a, Slab>>> {
        let (first, _) = sources.first()?;
        let slab = |(cache, rows): &RowsOf<'a, KvCache>| match &cache.buffers {
            Buffers::Slab(slab) if cache.storage == first.storage => Some((slab, *rows)),
            _ => None,
        };
        sources.iter().map(slab).collect()
    }

    /// Takes note that a row left, whose slot is kept.
    pub fn vacate(&mut self, slot: usize) {
        if let Buffers::Slab(slab) = &mut self.buffers {
            slab.vacate(slot);
        }
    }

    /// Returns true when the rows of `other` fit into slots of its buffers.
    pub fn has_slots_for(&self, other: &KvCache) -> bool {
        match (&self.buffers, &other.buffers) {
            (Buffers::Slab(mine), Buffers::Slab(other)) => mine.has_slots_for(other),
            _ => false,
        }
    }

    /// Puts the rows of `other`, for which there are slots, into those with these indices.
    pub(super) fn place(
        &mut self,
        other: KvCache,
        slots: &[usize],
        placing: &mut Placing,
    ) -> Result<()> {
        match (&mut self.buffers, other.buffers) {
            (Buffers::Slab(mine), Buffers::Slab(other)) => mine.place(other, slots, placing),
            _ => Err(alone("take the slot of another")),
        }
    }

    /// Leaves no room behind the next positions, which are the last ones.
    pub fn leave_no_room(&mut self) {
        if let Buffers::Slab(slab) = &mut self.buffers {
            slab.leave_no_room();
        }
    }

    /// Copies of rows, each without so many of its last positions, with room for `room` more: a row
    /// may be copied several times. What cannot join is copied whole.
    pub fn copies(&self, rows: &[(usize, i32)], room: i32) -> Result<KvCache> {
        let buffers = match &self.buffers {
            Buffers::Slab(slab) => Buffers::Slab(slab.copies(rows, room)?),
            Buffers::Ring(ring) => Buffers::Ring(ring.share()?),
        };
        Ok(KvCache { storage: self.storage, buffers })
    }

    /// Returns true when positions of its rows can be taken back. Those of a ring cannot: they
    /// overwrite older ones.
    pub fn can_truncate(&self) -> bool {
        matches!(self.buffers, Buffers::Slab(_))
    }

    /// Takes back so many of each row's last positions, which the last pass appended.
    pub fn truncate(&mut self, counts: &[i32]) -> Result<()> {
        match &mut self.buffers {
            Buffers::Slab(slab) => slab.truncate(counts),
            Buffers::Ring(_) => Err(alone("take positions back")),
        }
    }

    /// Keeps the rows with these indices, in ascending order.
    pub fn keep(&mut self, rows: &[usize]) -> Result<()> {
        match &mut self.buffers {
            Buffers::Slab(slab) => slab.keep(rows),
            // The only row stays, or its cache goes with it.
            Buffers::Ring(_) => Ok(()),
        }
    }

    /// The entries of a row's positions from `back` to `until` positions before its end; `None`:
    /// they are not held.
    pub(super) fn span(&self, row: usize, span: [i32; 2]) -> Option<Span<'_>> {
        match &self.buffers {
            Buffers::Slab(slab) => slab.span(row, span),
            Buffers::Ring(_) => None,
        }
    }

    /// Takes the arrays that were written in place and may not be in flight yet; the caller sends
    /// them.
    pub(super) fn fresh(&self) -> &[Array] {
        match &self.buffers {
            Buffers::Slab(slab) => slab.fresh(),
            Buffers::Ring(_) => &[],
        }
    }

    /// Fills an empty cache of one row with consecutive stretches, from the first position on.
    pub fn restore(&mut self, blocks: &[&Parts]) -> Result<()> {
        match &mut self.buffers {
            Buffers::Slab(slab) => slab.restore(blocks),
            Buffers::Ring(_) if blocks.is_empty() => Ok(()),
            Buffers::Ring(_) => Err(alone("take a prefix")),
        }
    }
}

/// The error of a row that runs alone because it goes on past its bound.
fn alone(what: &str) -> mlx_ffi::Error {
    mlx_ffi::Error::new(format!("a bounded cache cannot {what}"))
}
