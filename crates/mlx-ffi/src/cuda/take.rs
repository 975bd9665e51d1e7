//! Rows of tables and entries of rows, by their indices.

use super::constants::THREADS;
use super::kernel::{Constant, Launch, Source};
use super::launch::{first, launch};
use crate::stream::on_cuda;
use crate::{Array, Dtype, Result};

/// The most blocks: each thread takes one value after the other.
const MOST_BLOCKS: i64 = 1 << 12;

const TAKE: Source = Source {
    name: c"take",
    inputs: &[c"table", c"indices"],
    outputs: &[c"out"],
    body: include_str!("take.cu"),
    header: include_str!("chained.cu"),
    takes_strides: true,
    written: &[],
};

/// The rows of `table`, `[n]` or `[n, width]`, at `indices` of one or two dimensions, U32 below n; `None` where there is
/// no kernel for it.
pub(crate) fn rows_at(table: &Array, indices: &Array) -> Result<Option<Array>> {
    let width = match table.shape() {
        [_] => &[][..],
        [_, width] => &[*width][..],
        _ => return Ok(None),
    };
    taken(table, indices, &[indices.shape(), width].concat(), false)
}

/// What `table`, `[rows, positions, width]`, has at `indices`, `[n, 1]`, U32 below rows · positions, which are counted
/// one row after the other: `[n, 1, width]`; `None` where there is no kernel for it.
pub(crate) fn positions_at(table: &Array, indices: &Array) -> Result<Option<Array>> {
    match (table.shape(), indices.shape()) {
        (&[_, _, width], &[n, 1]) => taken(table, indices, &[n, 1, width], false),
        _ => Ok(None),
    }
}

/// For each row of `table`, `[rows, n]`, its entries at the indices of the same row, U32 below n; `None` where there is no
/// kernel for it.
pub(crate) fn entries_at(table: &Array, indices: &Array) -> Result<Option<Array>> {
    match (table.shape(), indices.shape()) {
        ([rows, _], [of_indices, _]) if rows == of_indices => {
            taken(table, indices, indices.shape(), true)
        }
        _ => Ok(None),
    }
}

fn taken(table: &Array, indices: &Array, shape: &[i32], along: bool) -> Result<Option<Array>> {
    let dtype = table.dtype();
    let types_fit = indices.dtype() == Dtype::U32
        && matches!(dtype, Dtype::U8 | Dtype::U32 | Dtype::F32 | Dtype::F16 | Dtype::Bf16);
    let values: i64 = shape.iter().map(|size| i64::from(*size)).product();
    let fits = types_fit && (1..=2).contains(&indices.shape().len()) && values > 0;
    if !(fits && table.size() > 0 && on_cuda()?) {
        return Ok(None);
    }
    let blocks = ((values + i64::from(THREADS) - 1) / i64::from(THREADS)).min(MOST_BLOCKS) as i32;
    let constants = [(c"T", Constant::Type(dtype)), (c"ALONG", Constant::Bool(along))];
    let outputs = [(shape, dtype)];
    let (grid, block) = ([THREADS * blocks, 1, 1], [THREADS, 1, 1]);
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    first(launch(&TAKE, &[table, indices], &all)?).map(Some)
}
