//! What ranks do with the results of a layer of which each computes a part.

use mlx_ffi::distributed::Group;
use mlx_ffi::{Array, Result, ops};

/// What ranks do with a result.
#[derive(Clone, Debug, Default)]
pub(crate) enum Together {
    /// It is complete, or each goes on with its own part.
    #[default]
    Nothing,
    /// Each has a term of every value.
    Sum(Group),
    /// Each has as many columns, which lie in the order of the ranks.
    Gather(Group),
}

impl Together {
    /// Whether the result is used as it is.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Together::Nothing)
    }

    /// `y`, `[…, n]`, of this rank as that of all.
    pub fn all(&self, y: Array) -> Result<Array> {
        match self {
            Together::Nothing => Ok(y),
            Together::Sum(group) => group.all_sum(&y),
            Together::Gather(group) => {
                let (size, mut shape) = (group.size() as i32, y.shape().to_vec());
                let Some(last) = shape.last_mut() else { return Ok(y) };
                let columns = std::mem::replace(last, *last * size);
                let rows = ops::reshape(&y, &[-1, columns])?;
                let count = rows.rows();
                let all = group.all_gather(&rows)?;
                let all = ops::swap_axes(&ops::reshape(&all, &[size, count, columns])?, 0, 1)?;
                ops::reshape(&all, &shape)
            }
        }
    }
}
