//! Rows of tables and entries of rows, by their indices.

use super::constants::THREADS;
use super::kernel::{Constant, Launch, Source};
use super::launch::{first, launch};
use super::place::{BLOCKS, MOST};
use crate::ops::{expand_dims, squeeze};
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

const TAKE_BUFFERS: Source = Source {
    name: c"take_buffers",
    body: include_str!("take_buffers.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("copy_positions.cu")),
    ..TAKE
};

/// The rows of `table`, U32 below n: of `[n]` or `[n, width]` at `indices` of one or two
/// dimensions, of `[n, positions, width]` or `[n, heads, positions, width]` at those of one; `None`
/// where there is no kernel for it.
pub(crate) fn rows_at(table: &Array, indices: &Array) -> Result<Option<Array>> {
    match table.shape() {
        [_] => taken(table, indices, indices.shape(), false),
        [_, width] => taken(table, indices, &[indices.shape(), &[*width]].concat(), false),
        [_, _, _] => match buffers_at(&expand_dims(table, 1)?, indices)? {
            Some(rows) => squeeze(&rows, 1).map(Some),
            None => Ok(None),
        },
        [_, _, _, _] => buffers_at(table, indices),
        _ => Ok(None),
    }
}

/// Takes positions of `table`, `[rows, positions, width]`, at `indices`, `[n, 1]`: `[n, 1, width]`.
/// Indices are U32 below rows · positions, counted one row after the other. `None` where there
/// is no kernel for it.
pub(crate) fn positions_at(table: &Array, indices: &Array) -> Result<Option<Array>> {
    match (table.shape(), indices.shape()) {
        (&[_, _, width], &[n, 1]) => taken(table, indices, &[n, 1, width], false),
        _ => Ok(None),
    }
}

/// For each row of `table`, `[rows, n]`, its entries at the indices of the same row, U32 below n;
/// `None` where there is no kernel for it.
pub(crate) fn entries_at(table: &Array, indices: &Array) -> Result<Option<Array>> {
    match (table.shape(), indices.shape()) {
        ([rows, _], [of_indices, _]) if rows == of_indices => {
            taken(table, indices, indices.shape(), true)
        }
        _ => Ok(None),
    }
}

fn types_fit(table: &Array, indices: &Array) -> bool {
    use Dtype::{Bf16, F16, F32, U8, U32};
    indices.dtype() == U32 && matches!(table.dtype(), U8 | U32 | F32 | F16 | Bf16)
}

/// The rows of `table`, `[n, heads, positions, width]`, at `indices`, `[rows]`.
fn buffers_at(table: &Array, indices: &Array) -> Result<Option<Array>> {
    let [_, heads, positions, width] = table.dims()?;
    let &[rows] = indices.shape() else { return Ok(None) };
    let fits = types_fit(table, indices) && (1..=MOST).contains(&rows) && heads <= MOST;
    if !(fits && table.size() > 0 && on_cuda()?) {
        return Ok(None);
    }
    taken_buffers(table, indices, &[rows, heads, positions, width]).map(Some)
}

fn taken_buffers(table: &Array, indices: &Array, shape: &[i32; 4]) -> Result<Array> {
    let [rows, heads, ..] = *shape;
    let constants = [(c"T", Constant::Type(table.dtype()))];
    let outputs: [(&[i32], Dtype); 1] = [(shape, table.dtype())];
    let (grid, block) = ([THREADS * BLOCKS, heads, rows], [THREADS, 1, 1]);
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    first(launch(&TAKE_BUFFERS, &[table, indices], &all)?)
}

fn taken(table: &Array, indices: &Array, shape: &[i32], along: bool) -> Result<Option<Array>> {
    let dtype = table.dtype();
    let values: i64 = shape.iter().map(|size| i64::from(*size)).product();
    let has_place = (1..=2).contains(&indices.shape().len()) && values > 0;
    let fits = types_fit(table, indices) && has_place;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Indices, ops, use_device};

    /// A processor runs the kernel here; `tests/cuda/gather.rs` runs it on a GPU, with other
    /// strides.
    #[test]
    fn rows_of_buffers_are_those_that_mlx_takes() {
        use_device(Device::Cpu).unwrap();
        // The width of the first is no multiple of what a thread copies at once.
        for (dtype, [n, heads, positions, width]) in
            [(Dtype::Bf16, [5, 3, 9, 12]), (Dtype::F32, [3, 1, 40, 64]), (Dtype::U8, [2, 2, 1, 3])]
        {
            let count = n * heads * positions * width;
            let numbers: Vec<i32> = (0..count).map(|i| 1 + i % 97).collect();
            let table = Array::from_i32(&numbers, &[n, heads, positions, width]).unwrap();
            let table = ops::astype(&table, dtype).unwrap();
            let rows = [n as u32 - 1, 0, n as u32 - 1];
            let indices = Indices::from_u32(&rows, &[3]).unwrap();
            let wide = |x: &Array| ops::astype(x, Dtype::F32).unwrap().to_vec_f32().unwrap();
            let found = taken_buffers(&table, &indices, &[3, heads, positions, width]).unwrap();
            let expected = ops::take(&table, &indices, 0).unwrap();
            assert_eq!(found.shape(), expected.shape());
            assert_eq!(wide(&found), wide(&expected), "{dtype:?}");
        }
    }
}
