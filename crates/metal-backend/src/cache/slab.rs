//! Buffers that all rows of a batch share, each row ending at the same place.

use std::cell::Cell;
use std::ops::Range;

use mlx_ffi::cuda::{self, Place};
use mlx_ffi::{Array, Dtype, Result, async_eval, ops};

use super::arrange::{Arrangement, Group};
use super::buffer::{More, RowsOf, STEP, between, positions, whole_steps};
use super::place::{Placing, Span};
use super::slot::Slot;
use super::storage::{Form, Storage};
use super::visible::Visible;

/// Positions by which a buffer for a window may exceed it, so that it is copied seldom.
pub(super) fn slack(window: i32) -> i32 {
    (window / 4).clamp(1, STEP)
}

/// Keys and values of a layer for the rows of a batch.
#[derive(Debug)]
pub(super) struct Slab {
    /// Positions that a position sees, itself included; `None`: all before it.
    window: Option<i32>,
    /// Each `[b, n_kv_heads, capacity, …]`; none before the first update.
    parts: Vec<Array>,
    /// Positions that are written; all rows end here.
    end: i32,
    /// Each row's first position in the buffers.
    starts: Vec<i32>,
    /// The next positions are the last ones: no room is left for more.
    is_last: bool,
    /// Buffers without a window that are made have room up to this position at least.
    expected: i32,
    /// The last positions were written in place by an operation that may not have been evaluated.
    is_fresh: Cell<bool>,
}

impl Slab {
    /// Nothing yet, for `rows` rows.
    pub fn new(rows: usize, window: Option<i32>) -> Slab {
        let starts = vec![0; rows];
        Slab {
            window,
            parts: Vec::new(),
            end: 0,
            starts,
            is_last: false,
            expected: 0,
            is_fresh: Cell::new(false),
        }
    }

    /// The arrays that hold state.
    pub fn parts(&self) -> &[Array] {
        &self.parts
    }

    /// The slot for one position of each row, in keys and values of `dtype`.
    ///
    /// It may be written in place whoever else holds the buffers: nobody but this slab has room in
    /// them, and what others read of them are positions before [`Self::end`].
    pub fn reserve(&mut self, dtype: Dtype) -> Result<Option<Slot>> {
        if self.parts.is_empty() { Ok(None) } else { self.slot(dtype, 1) }
    }

    /// The slot for `l` positions of each row, likewise, of `n_kv_heads` heads of `head_dim`
    /// values. For CUDA.
    pub fn reserve_chunk(
        &mut self,
        dtype: Dtype,
        l: i32,
        [n_kv_heads, head_dim]: [i32; 2],
    ) -> Result<Option<Slot>> {
        if let Some(shape) = self.lacks(l, [n_kv_heads, head_dim]) {
            self.parts = cuda::buffers(&shape, dtype)?.into();
        }
        self.slot(dtype, l)
    }

    /// The slot for `l` positions of each row in packed keys and values of `dtype`; the first ones
    /// get buffers where `sizes` tells of how many heads and values of a head. For CUDA.
    pub fn reserve_packed(
        &mut self,
        dtype: Dtype,
        storage: Storage,
        l: i32,
        sizes: Option<[i32; 2]>,
    ) -> Result<Option<Slot>> {
        if let Some(sizes) = sizes
            && let Some(shape) = self.lacks(l, sizes)
        {
            let forms = storage.forms(shape, dtype);
            let pairs = forms.iter().map(|(shape, dtype)| cuda::buffers(shape, *dtype));
            let pairs = pairs.collect::<Result<Vec<_>>>()?;
            let (keys, values): (Vec<_>, Vec<_>) = pairs.into_iter().map(<(_, _)>::from).unzip();
            self.parts = keys.into_iter().chain(values).collect();
        }
        let is_known = self.parts.get(1).is_some_and(|scales| scales.dtype() == dtype);
        if is_known { self.slot_in(storage, l).map(Some) } else { Ok(None) }
    }

    /// The shape of the buffers for the first `l` positions, where there are none.
    pub fn lacks(&self, l: i32, [n_kv_heads, head_dim]: [i32; 2]) -> Option<[i32; 4]> {
        let shape = [self.starts.len() as i32, n_kv_heads, l + self.room(l), head_dim];
        self.parts.is_empty().then_some(shape)
    }

    /// Takes the buffers that it lacks.
    pub fn give(&mut self, parts: [Array; 2]) {
        self.parts = parts.into();
    }

    fn slot(&mut self, dtype: Dtype, l: i32) -> Result<Option<Slot>> {
        if self.parts.len() > 2 || self.parts.iter().any(|part| part.dtype() != dtype) {
            return Ok(None);
        }
        self.slot_in(Storage::Plain, l).map(Some)
    }

    fn slot_in(&mut self, storage: Storage, l: i32) -> Result<Slot> {
        if !self.has_room(l) {
            self.settle()?;
            self.rebuild(None, l, self.first_seen(self.end))?;
        }
        let parts = self.parts.iter().map(Array::share).collect::<Result<_>>()?;
        Ok(Slot { parts, storage, at: self.end, starts: self.starts.clone() })
    }

    /// Returns true when the next `l` positions fit into the buffers as they are.
    pub fn has_room(&self, l: i32) -> bool {
        let capacity = self.parts.first().map_or(0, positions);
        self.end + l <= capacity && !self.has_surplus(self.first_seen(self.end))
    }

    /// Takes note that `l` reserved positions were written, by an operation already in flight.
    pub fn fill_in_place(&mut self, l: i32) {
        self.end += l;
    }

    /// Takes the buffers with the `l` positions that were reserved.
    pub fn fill(&mut self, parts: Vec<Array>, l: i32) {
        self.parts = parts;
        self.end += l;
        self.is_fresh.set(true);
    }

    /// Sends what was written in place on its way, before anything else reads it: MLX does not know
    /// that a kernel writes into its inputs, and orders only what it evaluates one after the other.
    fn settle(&self) -> Result<()> {
        async_eval(self.fresh())
    }

    /// Takes the arrays that were written in place and may not be in flight yet; the caller sends
    /// them.
    pub fn fresh(&self) -> &[Array] {
        if self.is_fresh.take() { &self.parts } else { &[] }
    }

    /// Returns true when so much is held before `first`, the window's first position, that it is
    /// time to drop it.
    fn has_surplus(&self, first: i32) -> bool {
        self.window.is_some_and(|window| first > slack(window))
    }

    /// Appends `l` positions of `new`, and returns what they see.
    pub fn update(&mut self, new: &[Array], l: i32) -> Result<(Vec<Array>, Visible)> {
        self.settle()?;
        let first = self.first_seen(self.end);
        if !self.has_room(l) {
            self.rebuild(Some(new), l, first)?;
            self.end += l;
        } else {
            let at = self.end;
            self.parts = self
                .parts
                .drain(..)
                .zip(new)
                .map(|(part, new)| ops::slice_update_axis(&part, new, 2, at, at + l))
                .collect::<Result<_>>()?;
            self.end += l;
        }
        let first = self.first_seen(self.end - l);
        let seen = self.parts.iter().map(|part| between(part, first, self.end));
        let starts = self.starts.iter().map(|start| (start - first).max(0)).collect();
        let visible = Visible::new(starts, l, self.end - first, self.window);
        Ok((seen.collect::<Result<_>>()?, visible))
    }

    /// Adds the rows of `other`, which has the same window.
    pub fn join(&mut self, other: Slab) -> Result<()> {
        self.settle()?;
        other.settle()?;
        if self.parts.is_empty() && other.parts.is_empty() {
            self.starts.extend(other.starts);
            return Ok(());
        }
        let (first, other_first) = (self.first_seen(self.end), other.first_seen(other.end));
        let (len, other_len) = (self.end - first, other.end - other_first);
        let longest = len.max(other_len);
        let mine = Group::ending(longest, self.rows(), &self.parts, first..self.end);
        let theirs = Group::ending(longest, other.rows(), &other.parts, other_first..other.end);
        let capacity = longest + self.room(longest + 1) + 1;
        let parts = Arrangement { groups: vec![mine, theirs], capacity }.make()?;
        let moved = |starts: &[i32], first: i32, len: i32| -> Vec<i32> {
            starts.iter().map(|start| (start - first).max(0) + longest - len).collect()
        };
        let mut starts = moved(&self.starts, first, len);
        starts.extend(moved(&other.starts, other_first, other_len));
        *self = Slab { parts, end: longest, starts, ..Slab::new(0, self.window) };
        Ok(())
    }

    /// The forms of buffers for rows of `sources`, all of one window, and for so many slots behind
    /// them, which have as many positions as `capacity` tells for those of the longest row: one for
    /// each part of keys, and as many of values. `None` where keys and values are not alike.
    pub fn gathered(
        sources: &[RowsOf<'_, Slab>],
        slots: usize,
        capacity: impl Fn(&Slab, i32) -> i32,
    ) -> Option<Vec<Form>> {
        let (first, _) = sources.first()?;
        let kind = |part: &Array| {
            let [_, heads, _, width] = part.dims().ok()?;
            Some((heads, width, part.dtype()))
        };
        let half = first.parts.len() / 2;
        let kinds = first.parts.iter().take(half).map(kind).collect::<Option<Vec<_>>>()?;
        let are_alike = |(slab, _): &(&Slab, _)| {
            let mut known = kinds.iter().chain(&kinds);
            slab.parts.len() == 2 * half
                && slab.window == first.window
                && slab.parts.iter().all(|part| kind(part).as_ref() == known.next())
        };
        if half == 0 || !sources.iter().all(are_alike) {
            return None;
        }
        let rows = sources.iter().map(|(_, rows)| rows.len()).sum::<usize>() + slots;
        let capacity = capacity(first, Slab::longest_of(sources));
        let form = |(heads, width, dtype)| ([rows as i32, heads, capacity, width], dtype);
        Some(kinds.into_iter().map(form).collect())
    }

    /// Rows of `sources`, each without so many of its last positions, in buffers of the forms that
    /// [`gathered`](Self::gathered) returned.
    pub fn gather(
        sources: &[RowsOf<'_, Slab>],
        buffers: Vec<Array>,
        placing: &mut Placing,
    ) -> Result<Slab> {
        let longest = Slab::longest_of(sources);
        let mut slots = 0..buffers.first().map_or(0, |buffer| buffer.shape()[0]);
        let mut placed = Vec::with_capacity(sources.len());
        for (slab, rows) in sources {
            slab.settle()?;
            let place = |(row, slot): (&(usize, i32), i32)| {
                let held = slab.held(row);
                let (count, at) = (held.len() as i32, longest - held.len() as i32);
                let row = row.0 as i32;
                Place { row, slot, first: held.start, at, count, before: at }
            };
            let places: Vec<Place> = rows.iter().zip(slots.by_ref()).map(place).collect();
            placed.push((*slab, places));
        }
        // The other slots hold nothing.
        let at = longest;
        let nothing = |slot| Place { row: 0, slot, first: 0, at, count: 0, before: at };
        if let Some((_, last)) = placed.last_mut() {
            last.extend(slots.map(nothing));
        }
        let starts = placed.iter().flat_map(|(_, places)| places).map(|place| place.at).collect();
        let written = |(index, buffer): (usize, Array)| {
            placed.iter().filter(|(_, places)| !places.is_empty()).try_fold(buffer, |into, of| {
                let (slab, places) = of;
                placing.place(&slab.parts[index], &into, places)
            })
        };
        let parts = buffers.into_iter().enumerate().map(written).collect::<Result<Vec<_>>>()?;
        let window = sources.first().and_then(|(slab, _)| slab.window);
        let slab = Slab { parts, end: longest, starts, ..Slab::new(0, window) };
        slab.is_fresh.set(true);
        Ok(slab)
    }

    /// Positions of buffers for rows that go on behind `longest` ones, at least as many as `more`
    /// wants.
    pub fn capacity(&self, longest: i32, more: More) -> i32 {
        let capacity = longest + self.room(longest + 1) + 1;
        match self.window {
            None => capacity.max(more.capacity(longest)),
            Some(_) => capacity,
        }
    }

    /// Positions that the longest of rows has, each without so many of its last ones.
    fn longest_of(sources: &[RowsOf<'_, Slab>]) -> i32 {
        let of = |(slab, rows): &RowsOf<'_, Slab>| {
            rows.iter().map(|row| slab.held(row).len() as i32).max().unwrap_or(0)
        };
        sources.iter().map(of).max().unwrap_or(0)
    }

    /// The range of positions held and seen of a row, without so many of its last ones.
    fn held(&self, &(row, left_out): &(usize, i32)) -> Range<i32> {
        let end = self.end - left_out;
        self.seen_from(self.starts[row], end).min(end)..end
    }

    /// Takes note that a row left: its positions are none of another's any more.
    pub fn vacate(&mut self, slot: usize) {
        self.starts[slot] = self.end;
    }

    /// Returns true when the rows of `other`, which has the same window, fit into slots of these
    /// buffers.
    pub fn has_slots_for(&self, other: &Slab) -> bool {
        let mut types = self.parts.iter().map(Array::dtype);
        let longest = other.end - other.first_seen(other.end);
        !self.parts.is_empty()
            && longest <= self.end
            && (other.parts.is_empty() || types.by_ref().eq(other.parts.iter().map(Array::dtype)))
    }

    /// Puts the rows of `other`, for which there are slots, into those with these indices.
    pub fn place(&mut self, other: Slab, slots: &[usize], placing: &mut Placing) -> Result<()> {
        self.settle()?;
        other.settle()?;
        let first = other.first_seen(other.end);
        let place = |(row, (slot, start)): (i32, (&usize, &i32))| {
            let first = first.max(*start);
            let count = other.end - first;
            Place { row, slot: *slot as i32, first, at: self.end - count, count, before: 0 }
        };
        let places: Vec<Place> = (0..).zip(slots.iter().zip(&other.starts)).map(place).collect();
        for place in &places {
            self.starts[place.slot as usize] = place.at;
        }
        let written = |(into, from)| placing.place(from, into, &places);
        if !other.parts.is_empty() {
            self.parts = self.parts.iter().zip(&other.parts).map(written).collect::<Result<_>>()?;
        }
        Ok(())
    }

    /// Keeps the rows with these indices.
    pub fn keep(&mut self, rows: &[usize]) -> Result<()> {
        self.starts = rows.iter().map(|row| self.starts[*row]).collect();
        if self.parts.is_empty() || rows.is_empty() {
            return Ok(());
        }
        self.settle()?;
        let first = self.first_seen(self.end);
        // What lies behind the end is nobody's, and moves with the rest in one copy.
        let capacity = positions(&self.parts[0]) - first;
        let kept = Group::ending(capacity, rows.to_vec(), &self.parts, first..first + capacity);
        self.parts = Arrangement { groups: vec![kept], capacity }.make()?;
        self.end -= first;
        self.starts.iter_mut().for_each(|start| *start = (*start - first).max(0));
        Ok(())
    }

    /// Takes note that so many more positions will come, chunk by chunk. Buffers that are made have
    /// room for all of them.
    pub fn will_grow_by(&mut self, more: i32) {
        self.expected = if more > 0 { self.end + more } else { 0 };
    }

    /// Leaves no room behind the next positions, which are the last ones.
    pub fn leave_no_room(&mut self) {
        self.is_last = true;
    }

    /// Takes back so many of each row's last positions. None of them is one that an earlier pass
    /// than the last one appended: where there is a window, what those see may be gone.
    pub fn truncate(&mut self, counts: &[i32]) -> Result<()> {
        let common = counts.iter().copied().min().unwrap_or(0);
        self.end -= common;
        for start in &mut self.starts {
            *start = self.end.min(*start);
        }
        if counts.iter().all(|count| *count == common) {
            return Ok(());
        }
        // All rows end at the same place, so those that lose more are moved behind.
        let rows: Vec<(usize, i32)> =
            counts.iter().map(|count| count - common).enumerate().collect();
        *self = self.copied(&rows, |longest| self.room(longest + 1) + 1)?;
        Ok(())
    }

    /// Copies of rows, each without so many of its last positions, with room for `room` more.
    pub fn copies(&self, rows: &[(usize, i32)], room: i32) -> Result<Slab> {
        self.copied(rows, |_| room)
    }

    /// Copies of rows, each without so many of its last positions; `room` tells for how many more
    /// there is room behind so many.
    fn copied(&self, rows: &[(usize, i32)], room: impl Fn(i32) -> i32) -> Result<Slab> {
        self.settle()?;
        let span = |row: &(usize, i32)| self.held(row);
        let length = |row: &(usize, i32)| span(row).len() as i32;
        let longest = rows.iter().map(length).max().unwrap_or(0);
        let copies = |alike: &[(usize, i32)]| {
            let of = alike.iter().map(|(row, _)| *row).collect();
            Group::ending(longest, of, &self.parts, span(&alike[0]))
        };
        let groups = rows.chunk_by(|a, b| a == b).map(copies).collect();
        let capacity = longest + room(longest);
        let parts = Arrangement { groups, capacity }.make()?;
        let starts = rows.iter().map(|row| longest - length(row)).collect();
        Ok(Slab { parts, end: longest, starts, ..Slab::new(0, self.window) })
    }

    /// The entries of a row's positions from `back` to `until` positions before its end; `None`:
    /// they are not held.
    pub fn span(&self, row: usize, [back, until]: [i32; 2]) -> Option<Span<'_>> {
        let first = self.end - back;
        let is_held = !self.parts.is_empty() && first >= self.starts[row];
        let place =
            Place { row: row as i32, slot: 0, first, at: 0, count: back - until, before: 0 };
        is_held.then_some(Span { parts: &self.parts, place })
    }

    /// Fills an empty slab of one row with consecutive stretches of positions, the last ones that
    /// are needed.
    pub fn restore(&mut self, stretches: &[&Vec<Array>]) -> Result<()> {
        let length = |parts: &Vec<Array>| parts.first().map_or(0, positions);
        let mut missing = self.window.unwrap_or(i32::MAX);
        let is_needed = |parts: &&&Vec<Array>| {
            let is_needed = missing > 0;
            missing -= length(parts);
            is_needed
        };
        let mut needed: Vec<&Vec<Array>> =
            stretches.iter().rev().take_while(is_needed).copied().collect();
        needed.reverse();
        let end = needed.iter().map(|parts| length(parts)).sum();
        let stretches = needed.iter().map(|parts| (&parts[..], 0..length(parts))).collect();
        let row = Group { rows: vec![0], before: 0, stretches };
        self.parts = Arrangement { groups: vec![row], capacity: end }.make()?;
        self.end = end;
        Ok(())
    }

    /// The indices of all rows.
    fn rows(&self) -> Vec<usize> {
        (0..self.starts.len()).collect()
    }

    /// The first position that any row's query at index `query` sees.
    fn first_seen(&self, query: i32) -> i32 {
        self.seen_from(self.starts.iter().copied().min().unwrap_or(0), query)
    }

    /// The first position that a query at index `query` sees of a row that begins at `begin`.
    fn seen_from(&self, begin: i32, query: i32) -> i32 {
        self.window.map_or(begin, |window| begin.max(query + 1 - window))
    }

    /// Moves what is needed to the front of new buffers, followed by `new` and some room; without
    /// `new`, by room for `l` positions and some more.
    fn rebuild(&mut self, new: Option<&[Array]>, l: i32, first: i32) -> Result<()> {
        let kept = self.end - first;
        let room = self.room(kept + l) + if new.is_some() { 0 } else { l };
        let held = [(&self.parts[..], first..self.end)];
        let stretches = held.into_iter().chain(new.map(|new| (new, 0..l))).collect();
        let rows = Group { rows: self.rows(), before: 0, stretches };
        let capacity = kept + room + if new.is_some() { l } else { 0 };
        self.parts = Arrangement { groups: vec![rows], capacity }.make()?;
        self.end = kept;
        self.starts.iter_mut().for_each(|start| *start = (*start - first).max(0));
        Ok(())
    }

    /// Positions to leave free after `used` ones.
    fn room(&self, used: i32) -> i32 {
        if self.is_last {
            return 0;
        }
        let to_step = |positions| whole_steps(positions) - used;
        match self.window {
            None => to_step(used.max(self.expected)),
            Some(window) if used >= window => slack(window) - (used - window).min(slack(window)),
            Some(window) => to_step(used).min(window + slack(window) - used),
        }
    }
}
