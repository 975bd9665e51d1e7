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
    /// Each has some columns, in the order of the ranks.
    Gather {
        ranks: Group,
        /// Columns of each rank but the last ones, which have fewer.
        columns: i32,
        /// Columns of all.
        of: i32,
    },
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
            &Together::Gather { ref ranks, columns, of } => {
                let (size, mut shape) = (ranks.size() as i32, y.shape().to_vec());
                let Some(last) = shape.last_mut() else { return Ok(y) };
                let own = std::mem::replace(last, of);
                let rows = ops::reshape(&y, &[-1, own])?;
                let count = rows.rows();
                let rows = match columns - own {
                    0 => rows,
                    missing => {
                        let nothing = ops::zeros(&[count, missing], rows.dtype())?;
                        ops::concatenate(&[&rows, &nothing], 1)?
                    }
                };
                let all = ranks.all_gather(&rows)?;
                let all = ops::swap_axes(&ops::reshape(&all, &[size, count, columns])?, 0, 1)?;
                let all = ops::reshape(&all, &[count, size * columns])?;
                ops::reshape(&ops::slice_axis(&all, 1, 0, of)?, &shape)
            }
        }
    }
}
