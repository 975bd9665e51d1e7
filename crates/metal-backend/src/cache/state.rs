//! The state that one layer keeps of the rows of a batch.

use mlx_ffi::{Array, Dtype, Result, async_eval, ops};

use super::buffer::Parts;
use super::kv::KvCache;
use super::place::{Placing, Span};
use super::recurrent::Recurrent;
use super::spec::StateSpec;
use super::storage::Storage;

/// The state that one layer keeps of the rows of a batch: a closed set, as the mixers are.
#[derive(Debug)]
pub(crate) enum State {
    /// Keys and values of positions.
    Kv(KvCache),
    /// A recurrent state.
    Recurrent(Recurrent),
    /// Keys and values of positions, and a recurrent state.
    Both(KvCache, Recurrent),
    /// Nothing.
    Nothing,
}

impl State {
    /// Nothing yet, for `rows` rows that end after at most `total` positions.
    pub fn new(spec: StateSpec, storage: Storage, rows: usize, total: usize) -> State {
        let cache = |spec| KvCache::new(spec, storage, rows, total);
        match spec {
            StateSpec::Kv(spec) => State::Kv(cache(spec)),
            StateSpec::Recurrent(spec) => State::Recurrent(Recurrent::new(spec, rows)),
            StateSpec::Both(kv, spec) => State::Both(cache(kv), Recurrent::new(spec, rows)),
            StateSpec::Nothing => State::Nothing,
        }
    }

    /// Remembers `l` positions of `rows` rows that another process computes, whatever they are, in
    /// a state of `spec` that is [narrow](StateSpec::narrow). On its way when this returns: nobody
    /// waits for it.
    pub fn pass_by(&mut self, spec: StateSpec, [rows, l]: [i32; 2], dtype: Dtype) -> Result<()> {
        let (cache, state) = self.parts_mut();
        if let (Some(cache), Some(kv)) = (cache, spec.kv()) {
            let of = |width: i32| ops::zeros(&[rows, kv.n_kv_heads, l, width], dtype);
            match kv.value_dim {
                0 => cache.update_latent(&of(kv.key_dim)?, kv.key_dim)?,
                width => cache.update(&of(kv.key_dim)?, &of(width)?)?,
            };
        }
        if let Some(state) = state {
            let [inputs] = state.take(dtype)?;
            state.set([inputs]);
        }
        async_eval(self.arrays())
    }

    /// The keys and values, and the recurrent state, where there are such.
    fn parts(&self) -> (Option<&KvCache>, Option<&Recurrent>) {
        match self {
            State::Kv(cache) => (Some(cache), None),
            State::Recurrent(state) => (None, Some(state)),
            State::Both(cache, state) => (Some(cache), Some(state)),
            State::Nothing => (None, None),
        }
    }

    /// [`parts`](Self::parts), to be changed.
    fn parts_mut(&mut self) -> (Option<&mut KvCache>, Option<&mut Recurrent>) {
        match self {
            State::Kv(cache) => (Some(cache), None),
            State::Recurrent(state) => (None, Some(state)),
            State::Both(cache, state) => (Some(cache), Some(state)),
            State::Nothing => (None, None),
        }
    }

    /// Returns true when the next position fits into the buffers as they are.
    pub fn has_room(&self) -> bool {
        self.parts().0.is_none_or(KvCache::has_room)
    }

    /// Takes note that `l` reserved positions were written, by an operation already in flight.
    pub fn fill_in_place(&mut self, l: i32) {
        if let Some(cache) = self.parts_mut().0 {
            cache.fill_in_place(l);
        }
    }

    /// The keys and values, where there are such.
    pub(super) fn kv(&self) -> Option<&KvCache> {
        self.parts().0
    }

    /// [`kv`](Self::kv), to be changed.
    pub(super) fn kv_mut(&mut self) -> Option<&mut KvCache> {
        self.parts_mut().0
    }

    /// The recurrent state, where there is one.
    pub(super) fn recurrent(&self) -> Option<&Recurrent> {
        self.parts().1
    }

    /// Takes another recurrent state, where there is one.
    pub(super) fn set_recurrent(&mut self, state: Recurrent) {
        if let Some(own) = self.parts_mut().1 {
            *own = state;
        }
    }

    /// The arrays that hold it, for evaluation.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        let (cache, state) = self.parts();
        let (cache, state) = (cache.map(KvCache::arrays), state.map(Recurrent::arrays));
        cache.into_iter().chain(state).flatten()
    }

    /// Returns true when other rows can join.
    pub fn can_join(&self) -> bool {
        self.parts().0.is_none_or(KvCache::can_join)
    }

    /// Returns true when a row can only resume where a snapshot was taken.
    pub fn needs_snapshots(&self) -> bool {
        self.parts().1.is_some()
    }

    /// Adds the rows of `other`, of the same layer, after its own.
    pub fn join(&mut self, other: State) -> Result<()> {
        match (self, other) {
            (State::Kv(mine), State::Kv(other)) => mine.join(other),
            (State::Recurrent(mine), State::Recurrent(other)) => mine.join(other),
            (State::Both(cache, state), State::Both(other_cache, other_state)) => {
                cache.join(other_cache)?;
                state.join(other_state)
            }
            (State::Nothing, State::Nothing) => Ok(()),
            _ => Err(mlx_ffi::Error::new("rows of another model cannot join")),
        }
    }

    /// Takes note that a row left, whose slot is kept.
    pub fn vacate(&mut self, slot: usize) {
        if let Some(cache) = self.parts_mut().0 {
            cache.vacate(slot);
        }
    }

    /// Returns true when the rows of `other`, of the same layer, fit into slots of its buffers.
    pub fn has_slots_for(&self, other: &State) -> bool {
        let ((cache, state), (other_cache, other_state)) = (self.parts(), other.parts());
        let caches_fit = match (cache, other_cache) {
            (Some(mine), Some(other)) => mine.has_slots_for(other),
            (mine, other) => mine.is_none() && other.is_none(),
        };
        let states_fit = match (state, other_state) {
            (Some(mine), Some(other)) => mine.has_slots_for(other),
            (mine, other) => mine.is_none() && other.is_none(),
        };
        caches_fit && states_fit
    }

    /// Puts the rows of `other`, for which there are slots, into those with these indices.
    pub(super) fn place(
        &mut self,
        other: State,
        slots: &[usize],
        placing: &mut Placing,
    ) -> Result<()> {
        match (self, other) {
            (State::Kv(mine), State::Kv(other)) => mine.place(other, slots, placing),
            (State::Recurrent(mine), State::Recurrent(other)) => mine.place(&other, slots, placing),
            (State::Both(cache, state), State::Both(other_cache, other_state)) => {
                cache.place(other_cache, slots, placing)?;
                state.place(&other_state, slots, placing)
            }
            (State::Nothing, State::Nothing) => Ok(()),
            _ => Err(mlx_ffi::Error::new("rows of another kind have no slots here")),
        }
    }

    /// Leaves no room behind the next positions, which are the last ones.
    pub fn leave_no_room(&mut self) {
        if let Some(cache) = self.parts_mut().0 {
            cache.leave_no_room();
        }
    }

    /// Copies of rows, with room for `room` more positions. Keys and values are left out of so many
    /// last positions, unless these are `copied` already; a recurrent state is that after the last
    /// one that counted.
    pub fn copies(
        &self,
        rows: &[(usize, i32)],
        room: i32,
        copied: Option<KvCache>,
    ) -> Result<State> {
        let state = |state: &Recurrent| state.copies(rows.iter().map(|(row, _)| *row));
        let cache = |cache: &KvCache| copied.map_or_else(|| cache.copies(rows, room), Ok);
        Ok(match self {
            State::Kv(own) => State::Kv(cache(own)?),
            State::Recurrent(own) => State::Recurrent(state(own)?),
            State::Both(kept, own) => State::Both(cache(kept)?, state(own)?),
            State::Nothing => State::Nothing,
        })
    }

    /// Keeps the rows with these indices, in ascending order.
    pub fn keep(&mut self, rows: &[usize]) -> Result<()> {
        let (cache, state) = self.parts_mut();
        cache.map_or(Ok(()), |cache| cache.keep(rows))?;
        state.map_or(Ok(()), |state| state.keep(rows))
    }

    /// The entries of a row's positions from `back` to `until` positions before its end; `None`:
    /// they are not held. A recurrent state has none.
    pub(super) fn span(&self, row: usize, span: [i32; 2]) -> Option<Span<'_>> {
        self.parts().0.map_or(Some(Span::NOTHING), |cache| cache.span(row, span))
    }

    /// Takes the arrays that were written in place and may not be in flight yet; the caller sends
    /// them.
    pub(super) fn fresh(&self) -> &[Array] {
        self.parts().0.map_or(&[], KvCache::fresh)
    }

    /// A copy of what a row cannot go on without from its last position; nothing of keys and
    /// values, which blocks hold.
    pub fn snapshot(&self, row: usize) -> Result<Parts> {
        self.parts().1.map_or(Ok(Parts::new()), |state| state.snapshot(row))
    }

    /// Fills an empty state of one row with consecutive stretches, from the first position on, and
    /// with the snapshot that was taken at their end.
    pub fn restore(&mut self, blocks: &[&Parts], snapshot: Option<&Parts>) -> Result<()> {
        let (cache, state) = self.parts_mut();
        cache.map_or(Ok(()), |cache| cache.restore(blocks))?;
        match (state, snapshot) {
            (None, _) => Ok(()),
            (Some(state), Some(snapshot)) => state.restore(snapshot),
            (Some(_), None) if blocks.is_empty() => Ok(()),
            (Some(_), None) => {
                Err(mlx_ffi::Error::new("a recurrent state cannot go on without a snapshot"))
            }
        }
    }
}
