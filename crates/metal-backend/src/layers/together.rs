//! The exchange of results between ranks that each compute a part of a layer.

use mlx_ffi::distributed::Group;
use mlx_ffi::{Array, Result};

/// The exchange that completes a rank's result.
#[derive(Clone, Debug, Default)]
pub(crate) enum Together {
    /// It is complete, or each goes on with its own part.
    #[default]
    Nothing,
    /// Each has a term of every value.
    Sum(Group),
}

impl Together {
    /// Returns true when the result is used as it is.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Together::Nothing)
    }

    /// `y`, `[…, n]`, of this rank as that of all.
    pub fn all(&self, y: Array) -> Result<Array> {
        match self {
            Together::Nothing => Ok(y),
            Together::Sum(group) => group.all_sum(&y),
        }
    }
}
