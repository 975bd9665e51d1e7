//! What one layer remembers of the rows of a batch.

use mlx_ffi::{Array, Result};

use super::buffer::Parts;
use super::kv::KvCache;
use super::recurrent::Recurrent;
use super::spec::StateSpec;
use super::storage::Storage;

/// What one layer remembers of the rows of a batch: a closed set, as the mixers are.
#[derive(Debug)]
pub(crate) enum State {
    /// Keys and values of positions.
    Kv(KvCache),
    /// A recurrent state.
    Recurrent(Recurrent),
}

impl State {
    /// Nothing yet, for `rows` rows that end after at most `total` positions.
    pub fn new(spec: StateSpec, storage: Storage, rows: usize, total: usize) -> State {
        match spec {
            StateSpec::Kv(spec) => State::Kv(KvCache::new(spec, storage, rows, total)),
            StateSpec::Recurrent(spec) => State::Recurrent(Recurrent::new(spec, rows)),
        }
    }

    /// Whether the next position has room where the others are.
    pub fn has_room(&self) -> bool {
        match self {
            State::Kv(cache) => cache.has_room(),
            State::Recurrent(_) => true,
        }
    }

    /// Takes note that the reserved position was written, by what is on its way already.
    pub fn fill_in_place(&mut self) {
        match self {
            State::Kv(cache) => cache.fill_in_place(),
            State::Recurrent(_) => {}
        }
    }

    /// The arrays that hold it, for evaluation.
    pub fn arrays(&self) -> &[Array] {
        match self {
            State::Kv(cache) => cache.arrays(),
            State::Recurrent(state) => state.arrays(),
        }
    }

    /// Whether other rows can join.
    pub fn can_join(&self) -> bool {
        match self {
            State::Kv(cache) => cache.can_join(),
            State::Recurrent(_) => true,
        }
    }

    /// Whether going on from a position needs a snapshot that was taken there.
    pub fn needs_snapshots(&self) -> bool {
        matches!(self, State::Recurrent(_))
    }

    /// Adds the rows of `other`, of the same layer, after its own.
    pub fn join(&mut self, other: State) -> Result<()> {
        match (self, other) {
            (State::Kv(mine), State::Kv(other)) => mine.join(other),
            (State::Recurrent(mine), State::Recurrent(other)) => mine.join(other),
            _ => Err(mlx_ffi::Error::new("rows of another model cannot join")),
        }
    }

    /// Leaves no room behind the next positions, which are the last ones.
    pub fn leave_no_room(&mut self) {
        match self {
            State::Kv(cache) => cache.leave_no_room(),
            State::Recurrent(_) => {}
        }
    }

    /// Copies of rows, with room for `room` more positions. Keys and values are left out of so many last
    /// positions; a recurrent state is that after the last one that counted.
    pub fn copies(&self, rows: &[(usize, i32)], room: i32) -> Result<State> {
        match self {
            State::Kv(cache) => cache.copies(rows, room).map(State::Kv),
            State::Recurrent(state) => {
                state.copies(rows.iter().map(|(row, _)| *row)).map(State::Recurrent)
            }
        }
    }

    /// Keeps the rows with these indices, in ascending order.
    pub fn keep(&mut self, rows: &[usize]) -> Result<()> {
        match self {
            State::Kv(cache) => cache.keep(rows),
            State::Recurrent(state) => state.keep(rows),
        }
    }

    /// Copies of a row's positions from `back` to `until` positions before its end; `None` where they
    /// are not held. A recurrent state has none.
    pub fn copy(&self, row: usize, back: i32, until: i32) -> Result<Option<Parts>> {
        match self {
            State::Kv(cache) => cache.copy(row, back, until),
            State::Recurrent(_) => Ok(Some(Parts::new())),
        }
    }

    /// A copy of what a row cannot go on without from its last position; nothing of keys and values,
    /// which blocks hold.
    pub fn snapshot(&self, row: usize) -> Result<Parts> {
        match self {
            State::Kv(_) => Ok(Parts::new()),
            State::Recurrent(state) => state.snapshot(row),
        }
    }

    /// Fills an empty state of one row with consecutive stretches, from the first position on, or with the
    /// snapshot that was taken at their end.
    pub fn restore(&mut self, blocks: &[&Parts], snapshot: Option<&Parts>) -> Result<()> {
        match (self, snapshot) {
            (State::Kv(cache), _) => cache.restore(blocks),
            (State::Recurrent(state), Some(snapshot)) => state.restore(snapshot),
            (State::Recurrent(_), None) if blocks.is_empty() => Ok(()),
            (State::Recurrent(_), None) => {
                Err(mlx_ffi::Error::new("a recurrent state cannot go on without a snapshot"))
            }
        }
    }
}
