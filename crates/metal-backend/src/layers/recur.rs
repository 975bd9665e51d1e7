//! Recurrent states of prompts, and of rows that take a decode step in their pass.

use mlx_ffi::{Array, Result};

use super::Positions;
use crate::cache::Recurrent;
use crate::kernels::{Columns, Kernels};

/// The result of a layer with a recurrent `state` for columns of its projections. `part` takes
/// columns of rows, `[b, l, …]`, how many positions of each count, and their state. Rows that
/// decode in a pass of prompts resume from states of their own.
///
/// # Errors
/// Those of MLX, and of `part`.
pub(super) fn recur<const N: usize>(
    columns: [Columns; N],
    kernels: Kernels,
    positions: &mut Positions,
    state: &mut Recurrent,
    part: impl Fn([Columns; N], &[i32], &mut Recurrent) -> Result<Array>,
) -> Result<Array> {
    let Some(mut rows) = positions.decode_rows.take() else {
        return part(columns, positions.lengths(), state);
    };
    let prompts = positions.offsets().len() as i32;
    let (mut of_prompts, mut of_rows) = (Vec::with_capacity(N), Vec::with_capacity(N));
    for x in &columns {
        let [prompts, rows] = rows.split(x, prompts)?;
        of_prompts.push(prompts);
        of_rows.push(rows);
    }
    let all = |of: Vec<Columns>| {
        of.try_into().map_err(|_| mlx_ffi::Error::new("columns of another number"))
    };
    let of_prompts = part(all(of_prompts)?, positions.lengths(), state)?;
    let of_rows = part(all(of_rows)?, &[], rows.recurrent()?)?;
    positions.decode_rows = Some(rows);
    kernels.join(&of_prompts, &of_rows)
}
