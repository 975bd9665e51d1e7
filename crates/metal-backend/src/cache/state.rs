//! What one layer remembers of the rows of a batch.

use mlx_ffi::{Array, Result};

use super::buffer::Parts;
use super::kv::KvCache;
use super::spec::StateSpec;
use super::storage::Storage;

/// What one layer remembers of the rows of a batch: a closed set, as the mixers are.
#[derive(Debug)]
pub(crate) enum State {
    /// Keys and values of positions.
    Kv(KvCache),
}

impl State {
    /// Nothing yet, for `rows` rows that end after at most `total` positions.
    pub fn new(spec: StateSpec, storage: Storage, rows: usize, total: usize) -> State {
        match spec {
            StateSpec::Kv(spec) => State::Kv(KvCache::new(spec, storage, rows, total)),
        }
    }

    /// Whether the next position has room where the others are.
    pub fn has_room(&self) -> bool {
        match self {
            State::Kv(cache) => cache.has_room(),
        }
    }

    /// Takes note that the reserved position was written, by what is on its way already.
    pub fn fill_in_place(&mut self) {
        match self {
            State::Kv(cache) => cache.fill_in_place(),
        }
    }

    /// The arrays that hold it, for evaluation.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        match self {
            State::Kv(cache) => cache.arrays(),
        }
    }

    /// Whether other rows can join.
    pub fn can_join(&self) -> bool {
        match self {
            State::Kv(cache) => cache.can_join(),
        }
    }

    /// Adds the rows of `other`, of the same layer, after its own.
    pub fn join(&mut self, other: State) -> Result<()> {
        match (self, other) {
            (State::Kv(mine), State::Kv(other)) => mine.join(other),
        }
    }

    /// Leaves no room behind the next positions, which are the last ones.
    pub fn leave_no_room(&mut self) {
        match self {
            State::Kv(cache) => cache.leave_no_room(),
        }
    }

    /// Copies of rows, each without so many of its last positions, with room for `room` more.
    pub fn copies(&self, rows: &[(usize, i32)], room: i32) -> Result<State> {
        match self {
            State::Kv(cache) => cache.copies(rows, room).map(State::Kv),
        }
    }

    /// Keeps the rows with these indices, in ascending order.
    pub fn keep(&mut self, rows: &[usize]) -> Result<()> {
        match self {
            State::Kv(cache) => cache.keep(rows),
        }
    }

    /// Copies of a row's positions from `back` to `until` positions before its end; `None` where they
    /// are not held.
    pub fn copy(&self, row: usize, back: i32, until: i32) -> Result<Option<Parts>> {
        match self {
            State::Kv(cache) => cache.copy(row, back, until),
        }
    }

    /// Fills an empty state of one row with consecutive blocks, from the first position on.
    pub fn restore(&mut self, blocks: &[&Parts]) -> Result<()> {
        match self {
            State::Kv(cache) => cache.restore(blocks),
        }
    }
}
