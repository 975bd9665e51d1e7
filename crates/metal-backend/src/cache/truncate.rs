//! Which states positions can be taken back from.

use mlx_ffi::Result;

use super::state::State;

impl State {
    /// Returns true when positions of its rows can be taken back. A recurrent state is only that
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
