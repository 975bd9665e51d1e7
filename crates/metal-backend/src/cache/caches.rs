//! The state that all layers keep of the rows of a batch.

use mlx_ffi::{Array, Dtype, Error, Result, async_eval, cuda, on_cuda};

use super::buffer::{More, Parts, RowsOf, whole_steps};
use super::gathered::{another_form, forms, gather};
use super::kv::KvCache;
use super::place::{Copies, Placing, copies};
use super::rope_factors::RopeFactors;
use super::slab::Slab;
use super::spec::StateSpec;
use super::state::State;
use super::storage::Storage;
use super::trail::Trail;

/// Layers whose buffers are made and written at once.
const LAYERS_AT_ONCE: usize = 2;

/// The state that all layers keep of the rows of a batch.
#[derive(Debug)]
pub(crate) struct Caches {
    /// Positions that each row has passed, the position of its next one.
    pub(super) offsets: Vec<i32>,
    /// For each row, the position of its next id minus its offset: pictures have other positions
    /// than offsets.
    shifts: Vec<i32>,
    /// The factors of LongRoPE of all rows.
    rope_factors: RopeFactors,
    pub(super) layers: Vec<State>,
    /// Changes whenever the buffers are made for other rows.
    layout: u64,
    /// A drafter takes in what passes.
    pub(super) is_followed: bool,
    /// The hidden states from which heads go on.
    pub(super) trail: Trail,
}

impl Caches {
    /// Empty caches of `rows` rows, none of which passes more than `total` positions.
    pub fn new(specs: &[StateSpec], storage: Storage, rows: usize, total: usize) -> Caches {
        let layers = specs.iter().map(|spec| State::new(*spec, storage, rows, total)).collect();
        let rope_factors = RopeFactors::default();
        let (offsets, shifts) = (vec![0; rows], vec![0; rows]);
        let (is_followed, trail) = (false, Trail::default());
        Caches { offsets, shifts, rope_factors, layers, layout: 0, is_followed, trail }
    }

    /// The empty caches of rows whose positions have other factors.
    pub fn with_rope_factors(self, rope_factors: RopeFactors) -> Caches {
        Caches { rope_factors, ..self }
    }

    /// The caches of one row whose ids behind the prompt have positions `shift` above their
    /// offsets.
    pub fn with_shift(self, shift: i32) -> Caches {
        Caches { shifts: vec![shift; self.offsets.len()], ..self }
    }

    /// The position of each row's next id.
    pub fn positions(&self) -> Vec<i32> {
        self.offsets.iter().zip(&self.shifts).map(|(offset, shift)| offset + shift).collect()
    }

    /// Positions that each row has passed.
    pub fn offsets(&self) -> &[i32] {
        &self.offsets
    }

    /// The factors of LongRoPE of all rows.
    pub fn rope_factors(&self) -> RopeFactors {
        self.rope_factors
    }

    /// A number that is another one once the buffers are of other rows. Slots that change hands
    /// leave it.
    pub fn layout(&self) -> u64 {
        self.layout
    }

    /// Takes note that `more` positions of each row will come, chunk by chunk. Buffers that are
    /// made have room for all of them. 0: none come any more.
    pub fn will_grow_by(&mut self, more: i32) {
        self.layers.iter_mut().filter_map(State::kv_mut).for_each(|cache| cache.will_grow_by(more));
    }

    /// Returns true when keys and values are held as they are.
    pub fn are_plain(&self) -> bool {
        self.layers.iter().filter_map(State::kv).all(KvCache::is_plain)
    }

    /// Returns true when one more position of each row fits into the buffers as they are.
    pub fn have_room(&self) -> bool {
        self.layers.iter().all(State::has_room)
    }

    /// Takes note that `l` of every layer's reserved positions were written, where they were
    /// reserved.
    pub fn fill_in_place(&mut self, l: i32) {
        self.layers.iter_mut().for_each(|layer| layer.fill_in_place(l));
        self.advance(l);
    }

    /// Makes the buffers for the first `l` positions of layers that have none, in keys and values
    /// of `dtype`: all that are alike at once. `sizes` has the heads of each layer and the values
    /// of a head, `None` where it makes its own. For CUDA.
    pub fn make_buffers(
        &mut self,
        dtype: Dtype,
        l: i32,
        sizes: impl Iterator<Item = Option<[i32; 2]>>,
    ) -> Result<()> {
        let mut lacking: Vec<([i32; 4], Vec<&mut KvCache>)> = Vec::new();
        for (layer, sizes) in self.layers.iter_mut().zip(sizes) {
            let (Some(cache), Some(sizes)) = (layer.kv_mut(), sizes) else { continue };
            let Some(shape) = cache.lacks(l, sizes) else { continue };
            match lacking.iter_mut().find(|(known, _)| *known == shape) {
                Some((_, alike)) => alike.push(cache),
                None => lacking.push((shape, vec![cache])),
            }
        }
        for (shape, layers) in lacking {
            let buffers = cuda::buffers_of_layers(&shape, dtype, layers.len())?;
            layers.into_iter().zip(buffers).for_each(|(layer, parts)| layer.give(parts));
        }
        Ok(())
    }

    /// Returns true when `l` more positions make the buffers as long as `longer` more do.
    pub fn are_as_long(&self, [l, longer]: [i32; 2]) -> bool {
        self.offsets.iter().all(|at| whole_steps(at + l) == whole_steps(at + longer))
    }

    /// The layers' states, first layer first.
    pub(super) fn layers(&self) -> &[State] {
        &self.layers
    }

    /// The states of the layers, to be changed.
    pub fn layers_mut(&mut self) -> &mut [State] {
        &mut self.layers
    }

    /// Takes note that every layer was given `l` more positions.
    pub fn advance(&mut self, l: i32) {
        self.offsets.iter_mut().for_each(|offset| *offset += l);
    }

    /// The arrays that hold state, for evaluation.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.layers.iter().flat_map(State::arrays)
    }

    /// Bytes of the buffers.
    pub fn nbytes(&self) -> u64 {
        self.arrays().map(|array| array.nbytes() as u64).sum()
    }

    /// Returns true when other rows can join. Rows that will reach their bound run alone.
    pub fn can_join(&self) -> bool {
        self.layers.iter().all(State::can_join)
    }

    /// Returns true when a row can only resume where a snapshot was taken.
    pub fn need_snapshots(&self) -> bool {
        self.layers.iter().any(State::needs_snapshots)
    }

    /// Keeps the rows with these indices, in ascending order, and adds `others` behind them, which
    /// can join as these can, with the same factors. On CUDA the buffers have `more`, where keys
    /// and values are alike. What was written goes to `send`, some layers after the others: what
    /// these had before is free once it is through.
    pub fn rearrange(
        &mut self,
        rows: &[usize],
        others: Vec<Caches>,
        more: More,
        mut send: impl FnMut(&[&Array]) -> Result<()>,
    ) -> Result<()> {
        if on_cuda()? && self.are_alike(&others) {
            let rows: Vec<(usize, i32)> = rows.iter().map(|row| (*row, 0)).collect();
            return self.move_into(&rows, others, more, cuda::buffers_of_layers, send);
        }
        if rows.len() < self.slots() {
            self.keep(rows)?;
        }
        others.into_iter().try_for_each(|others| self.join(others))?;
        send(&self.arrays().collect::<Vec<_>>())
    }

    /// Returns true when no layer has room for the next position and [`rearrange`](Self::rearrange)
    /// can make longer buffers for all. Layers with a window are moved more often, by themselves.
    pub fn are_to_be_longer(&self) -> Result<bool> {
        let is_full = |layer: &State| layer.kv().is_none_or(|cache| !cache.has_room());
        Ok(on_cuda()? && self.layers.iter().all(is_full) && self.are_alike(&[]))
    }

    /// Adds the rows of `other` behind its own. Both must be able to join, and have the same
    /// factors.
    pub fn join(&mut self, other: Caches) -> Result<()> {
        self.layout += 1;
        self.trail.join(&other.trail, [self.slots(), other.slots()])?;
        for (mine, other) in self.layers.iter_mut().zip(other.layers) {
            mine.join(other)?;
        }
        self.offsets.extend(other.offsets);
        self.shifts.extend(other.shifts);
        self.is_followed |= other.is_followed;
        Ok(())
    }

    /// Returns true when all layers hold keys and values of one form, and `others` hold the same.
    pub(super) fn are_alike(&self, others: &[Caches]) -> bool {
        let is_plain = |layer: &State| matches!(layer, State::Kv(_) | State::Nothing);
        let all = [self].into_iter().chain(others);
        all.clone().all(|caches| caches.layers.iter().all(is_plain))
            && forms(
                &all.map(|caches| (&caches.layers, &[][..])).collect::<Vec<_>>(),
                0,
                |_, end| end,
            )
            .is_some()
    }

    /// Keeps rows, each without so many of its last positions, and adds `others`, which [have the
    /// same form](Self::are_alike), and `more`. `make` makes buffers of one shape and type for so
    /// many layers.
    pub(super) fn move_into(
        &mut self,
        rows: &[(usize, i32)],
        others: Vec<Caches>,
        more: More,
        make: impl Fn(&[i32], Dtype, usize) -> Result<Vec<[Array; 2]>>,
        mut send: impl FnMut(&[&Array]) -> Result<()>,
    ) -> Result<()> {
        self.layout += 1;
        self.trail = Trail::default();
        let all = |others: &Caches| (0..others.slots()).map(|row| (row, 0)).collect();
        let added: Vec<Vec<(usize, i32)>> = others.iter().map(all).collect();
        let capacity = |slab: &Slab, longest| slab.capacity(longest, more);
        let forms = forms(&with((&self.layers, rows), &others, &added), more.slots, capacity)
            .ok_or_else(another_form)?;
        let mut placing = Placing::default();
        for (form, layers) in forms {
            for layers in layers.chunks(LAYERS_AT_ONCE) {
                let sources = with((&self.layers, rows), &others, &added);
                let made = gather(&sources, layers, (&form, &make), &mut placing)?;
                for (layer, cache) in layers.iter().zip(made) {
                    self.layers[*layer] = State::Kv(cache);
                }
                let written = layers.iter().flat_map(|layer| self.layers[*layer].arrays());
                send(&written.collect::<Vec<_>>())?;
            }
        }
        let offsets = rows.iter().map(|(row, left_out)| self.offsets[*row] - left_out);
        let shifts = rows.iter().map(|(row, _)| self.shifts[*row]);
        (self.offsets, self.shifts) = (offsets.collect(), shifts.collect());
        for others in others {
            self.is_followed |= others.is_followed;
            self.offsets.extend(others.offsets);
            self.shifts.extend(others.shifts);
        }
        let slots = self.offsets.len() + more.slots;
        self.offsets.resize(slots, 0);
        self.shifts.resize(slots, 0);
        Ok(())
    }

    /// Rows of the buffers: those that are there, and slots that rows left.
    pub fn slots(&self) -> usize {
        self.offsets.len()
    }

    /// Takes note that a row left, whose slot is kept. Steps go on to compute something for it.
    pub fn vacate(&mut self, slot: usize) {
        self.layers.iter_mut().for_each(|layer| layer.vacate(slot));
    }

    /// Returns true when the rows of `other` fit into slots of these buffers.
    pub fn have_slots_for(&self, other: &Caches) -> bool {
        self.layers.iter().zip(&other.layers).all(|(mine, other)| mine.has_slots_for(other))
    }

    /// Puts the rows of `other`, for which there are slots, into those with these indices, whose
    /// rows left. Pending reads of the rows that left must be in flight. All [arrays](Self::arrays)
    /// are to be sent before anything else reads or writes the buffers.
    pub fn place(&mut self, other: Caches, slots: &[usize]) -> Result<()> {
        let mut placing = Placing::default();
        for (mine, other) in self.layers.iter_mut().zip(other.layers) {
            mine.place(other, slots, &mut placing)?;
        }
        for (row, slot) in slots.iter().enumerate() {
            self.offsets[*slot] = other.offsets[row];
            self.shifts[*slot] = other.shifts[row];
        }
        self.is_followed |= other.is_followed;
        Ok(())
    }

    /// Leaves no room behind the next positions, which are the last ones.
    pub fn leave_no_room(&mut self) {
        self.layers.iter_mut().for_each(State::leave_no_room);
    }

    /// Copies of rows, each without so many of its last positions, with room for `room` more: a row
    /// may be copied several times. What cannot join is copied whole.
    pub fn copies(&self, rows: &[(usize, i32)], room: i32) -> Result<Caches> {
        let kernels = if on_cuda()? { Some(cuda::buffers_of_layers) } else { None };
        self.copies_by(rows, room, kernels)
    }

    /// [`copies`](Self::copies), of keys and values as they are in buffers that `make` makes.
    pub(super) fn copies_by(
        &self,
        rows: &[(usize, i32)],
        room: i32,
        make: Option<impl Fn(&[i32], Dtype, usize) -> Result<Vec<[Array; 2]>>>,
    ) -> Result<Caches> {
        let mut copied: Vec<Option<KvCache>> = self.layers.iter().map(|_| None).collect();
        let sources = [(&self.layers, rows)];
        let forms = make.and_then(|make| {
            let forms = forms(&sources, 0, |_, longest| longest + room)?;
            Some((make, forms))
        });
        if let Some((make, forms)) = forms {
            let mut placing = Placing::default();
            for (form, layers) in forms {
                let made = gather(&sources, &layers, (&form, &make), &mut placing)?;
                layers.iter().zip(made).for_each(|(at, cache)| copied[*at] = Some(cache));
            }
        }
        let offsets = rows.iter().map(|(row, left_out)| self.offsets[*row] - left_out).collect();
        let layers = self.layers.iter().zip(copied);
        let layers = layers
            .map(|(layer, copied)| layer.copies(rows, room, copied))
            .collect::<Result<_>>()?;
        let shifts = rows.iter().map(|(row, _)| self.shifts[*row]).collect();
        let trail = self.trail.of(rows.iter().copied())?;
        let Caches { rope_factors, is_followed, .. } = *self;
        Ok(Caches { offsets, shifts, rope_factors, layers, layout: 0, is_followed, trail })
    }

    /// Returns true when positions can be taken back.
    pub fn can_truncate(&self) -> bool {
        self.layers.iter().all(State::can_truncate)
    }

    /// Takes back so many of each row's last positions, which the last pass appended. Rows of a
    /// batch that lose different numbers are copied, since all end at one place of the buffers.
    ///
    /// # Errors
    /// A layer whose state cannot be cut back; then nothing is changed.
    pub fn truncate(&mut self, counts: &[i32]) -> Result<()> {
        let (rows, given) = (self.offsets.len(), counts.len());
        if rows != given {
            return Err(Error::new(format!("{given} counts for the {rows} rows of a batch")));
        }
        for ((row, count), held) in counts.iter().enumerate().zip(&self.offsets) {
            if !(0..=*held).contains(count) {
                let reason =
                    format!("row {row} has {held} positions, {count} cannot be taken back");
                return Err(Error::new(reason));
            }
        }
        if counts.iter().all(|count| *count == 0) {
            return Ok(());
        }
        if let Some(layer) = self.layers.iter().position(|layer| !layer.can_truncate()) {
            let reason = format!("the state of layer {layer} cannot be cut back");
            return Err(Error::new(reason));
        }
        // Rows that lose as many end earlier, in the same buffers.
        self.layout += u64::from(counts.windows(2).any(|pair| pair[0] != pair[1]));
        self.layers.iter_mut().try_for_each(|layer| layer.truncate(counts))?;
        self.trail.truncate(counts);
        self.offsets.iter_mut().zip(counts).for_each(|(offset, count)| *offset -= count);
        Ok(())
    }

    /// [`truncate`](Self::truncate) with longer buffers, as [`rearrange`](Self::rearrange) makes
    /// them, where rows lose different numbers on CUDA.
    ///
    /// # Errors
    /// Those of both.
    pub fn truncate_into(
        &mut self,
        counts: &[i32],
        more: More,
        send: impl FnMut(&[&Array]) -> Result<()>,
    ) -> Result<()> {
        let differ = counts.windows(2).any(|pair| pair[0] != pair[1]);
        if !differ || !self.can_truncate() || !on_cuda()? || !self.are_alike(&[]) {
            return self.truncate(counts);
        }
        let rows: Vec<(usize, i32)> = counts.iter().copied().enumerate().collect();
        self.move_into(&rows, Vec::new(), more, cuda::buffers_of_layers, send)
    }

    /// Takes note that each row has so many positions fewer, in states that were set back.
    pub(super) fn retreat(&mut self, count: i32, trail: Trail) {
        self.layout += 1;
        self.trail = trail;
        self.offsets.iter_mut().for_each(|offset| *offset -= count);
    }

    /// Keeps the rows with these indices, in ascending order.
    pub fn keep(&mut self, rows: &[usize]) -> Result<()> {
        self.layout += 1;
        for layer in &mut self.layers {
            layer.keep(rows)?;
        }
        self.trail = self.trail.of(rows.iter().map(|row| (*row, 0)))?;
        self.offsets = rows.iter().map(|row| self.offsets[*row]).collect();
        self.shifts = rows.iter().map(|row| self.shifts[*row]).collect();
        Ok(())
    }

    /// Copies of what every layer holds of positions of some rows, as many of each: of each the
    /// row, its first position, and where they end. `None` where a layer no longer holds them.
    /// Several rows where [`copies_together`](super::place::copies_together).
    pub(super) fn copy(&self, rows: &[(usize, i32, i32)]) -> Result<Option<Copies>> {
        let of_row = |&(row, first, end): &(usize, i32, i32)| {
            let span = [self.offsets[row] - first, self.offsets[row] - end];
            self.layers.iter().map(|layer| layer.span(row, span)).collect::<Option<Vec<_>>>()
        };
        let Some(spans) = rows.iter().map(of_row).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        async_eval(self.layers.iter().flat_map(State::fresh))?;
        copies(&spans).map(Some)
    }

    /// A copy of what each layer cannot go on without from the last position of a row.
    pub(super) fn snapshot(&self, row: usize) -> Result<Vec<Parts>> {
        self.layers.iter().map(|layer| layer.snapshot(row)).collect()
    }

    /// Fills empty caches of one row with consecutive stretches, `positions` from the first one on:
    /// for each, every layer's arrays. A snapshot is that of their end.
    pub(super) fn restore(
        &mut self,
        stretches: &[Vec<Parts>],
        positions: i32,
        snapshot: Option<&[Parts]>,
    ) -> Result<()> {
        for (index, layer) in self.layers.iter_mut().enumerate() {
            let of_layer: Vec<&Parts> = stretches.iter().map(|layers| &layers[index]).collect();
            layer.restore(&of_layer, snapshot.map(|layers| &layers[index]))?;
        }
        self.offsets = vec![positions];
        Ok(())
    }
}

/// `own`, and behind it `others` with the rows of each.
fn with<'a>(
    own: RowsOf<'a, Vec<State>>,
    others: &'a [Caches],
    rows: &'a [Vec<(usize, i32)>],
) -> Vec<RowsOf<'a, Vec<State>>> {
    let others = others.iter().zip(rows).map(|(others, rows)| (&others.layers, &rows[..]));
    [own].into_iter().chain(others).collect()
}
