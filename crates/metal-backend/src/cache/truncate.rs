//! Taking positions back: keys and values are cut back, recurrent states go back to copies.

use mlx_ffi::{Result, async_eval};

use super::caches::Caches;
use super::recurrent::Recurrent;
use super::state::State;
use super::trail::Trail;

impl State {
    /// Returns true when positions of its rows can be cut back. A recurrent state is only that
    /// after the last one.
    pub(super) fn can_truncate(&self) -> bool {
        match self {
            State::Kv(cache) => cache.can_truncate(),
            State::Nothing => true,
            State::Recurrent(_) | State::Both(..) => false,
        }
    }

    /// Takes back so many of each row's last positions, which the last pass appended.
    ///
    /// # Errors
    /// A state that cannot be cut back; those of MLX.
    pub(super) fn truncate(&mut self, counts: &[i32]) -> Result<()> {
        match self {
            State::Kv(cache) => cache.truncate(counts),
            State::Nothing => Ok(()),
            State::Recurrent(_) | State::Both(..) => {
                Err(mlx_ffi::Error::new("a recurrent state cannot be cut back"))
            }
        }
    }
}

/// Copies of the recurrent states of all layers after the last position of each row: `None` for
/// layers that have none. Beside them, the hidden states from which heads go on.
#[derive(Debug)]
pub(crate) struct Checkpoint(Vec<Option<Recurrent>>, Trail);

impl Caches {
    /// Copies of what cannot be cut back, in flight; `None` where all can.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        if !self.need_snapshots() {
            return Ok(None);
        }
        let copy = |state: &State| state.recurrent().map(Recurrent::copy).transpose();
        let copies: Vec<_> = self.layers().iter().map(copy).collect::<Result<_>>()?;
        // Now, before the states are written in place.
        async_eval(copies.iter().flatten().flat_map(Recurrent::arrays))?;
        Ok(Some(Checkpoint(copies, self.trail().share()?)))
    }

    /// Goes back to a checkpoint, since which each row has taken `count` positions.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn go_back(&mut self, checkpoint: Checkpoint, count: i32) -> Result<()> {
        let counts = vec![count; self.offsets().len()];
        for (state, copy) in self.layers_mut().iter_mut().zip(checkpoint.0) {
            if let Some(cache) = state.kv_mut() {
                cache.truncate(&counts)?;
            }
            if let Some(copy) = copy {
                state.set_recurrent(copy);
            }
        }
        self.retreat(count, checkpoint.1);
        Ok(())
    }
}
