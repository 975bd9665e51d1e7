//! Products whose rows each name their own weight matrix: mixtures of experts.

use std::cell::RefCell;

use crate::{Dtype, Error, Problem, Weights, matmul, rounded_matmul};

/// `out[r] = x[r / (indices.len() / x_rows)] w[indices[r]]ᵀ`.
#[derive(Debug)]
pub struct Gather<'a> {
    /// Rows of `x`. As many as there are indices, or fewer: each serves as many indices in a row.
    pub x_rows: usize,
    /// Matrices that there are.
    pub matrices: usize,
    /// Rows of each matrix, columns of `out`.
    pub n: usize,
    /// How many rows of the result in a row come from positions of one sequence, as in [`Problem`].
    pub positions: usize,
    /// Columns of `x` and of each matrix.
    pub k: usize,
    /// The type of `x` and of `out`.
    pub dtype: Dtype,
    /// `[x_rows, k]`.
    pub x: &'a [u8],
    /// The matrix of each row of `out`.
    pub indices: &'a [u32],
    /// `[matrices, n, k]`: the buffers of all matrices, one behind the other.
    pub weights: Weights<'a>,
    /// `[indices.len(), n]`.
    pub out: &'a mut [u8],
}

/// From so many positions of a sequence on matrices are multiplied by tiles where there are any:
/// with fewer, most matrices have a few rows, which vectors multiply as fast.
const TILED: usize = 128;

/// Rows of `x` and of the result that one matrix multiplies, put together.
#[derive(Default)]
struct Scratch {
    order: Vec<u32>,
    x: Vec<u8>,
    out: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Computes `gather.out`. Each matrix that is named is read once, for all rows that name it; a row
/// is what [`matmul`] makes of it, bit for bit.
///
/// # Errors
/// Buffers whose sizes do not fit, an index without a matrix; nothing is written then.
///
/// # Examples
/// ```
/// use cpu_kernels::{Dtype, Gather, Weights, gather_matmul};
///
/// let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
/// // Three matrices of one row; the one row of x meets the last and the first.
/// let (x, w) = (bytes(&[1.0, 2.0]), bytes(&[1.0, 0.0, 0.0, 1.0, 3.0, 4.0]));
/// let mut out = vec![0; 8];
/// let weights = Weights::Dense { dtype: Dtype::F32, data: &w };
/// gather_matmul(Gather {
///     x_rows: 1, matrices: 3, positions: 1, n: 1, k: 2, dtype: Dtype::F32,
///     x: &x, indices: &[2, 0], weights, out: &mut out,
/// })?;
/// assert_eq!(out, bytes(&[11.0, 1.0]));
/// # Ok::<(), cpu_kernels::Error>(())
/// ```
pub fn gather_matmul(gather: Gather<'_>) -> Result<(), Error> {
    gather_by(gather, matmul)
}

/// [`gather_matmul`] by [`rounded_matmul`].
///
/// # Errors
/// As [`gather_matmul`].
pub fn rounded_gather_matmul(gather: Gather<'_>) -> Result<(), Error> {
    gather_by(gather, rounded_matmul)
}

fn gather_by(
    gather: Gather<'_>,
    multiply: fn(Problem<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    gather.check()?;
    let Gather { x_rows, matrices, positions, n, k, dtype, x, indices, weights, out } = gather;
    let positions = if positions < TILED { 1 } else { positions };
    if indices.is_empty() || n == 0 {
        return Ok(());
    }
    let (x_size, out_size) = (k * dtype.size(), n * dtype.size());
    let shared = indices.len() / x_rows;
    SCRATCH.with_borrow_mut(|scratch| {
        let Scratch { order, x: some_x, out: some_out } = scratch;
        order.clear();
        order.extend(0..indices.len() as u32);
        // Rows of one matrix stay in their order.
        order.sort_by_key(|&row| indices[row as usize]);
        for rows in order.chunk_by(|&a, &b| indices[a as usize] == indices[b as usize]) {
            let matrix = indices[rows[0] as usize] as usize;
            let weights = matrix_of(weights, matrix, matrices);
            let product = |m: usize, x: &[u8], out: &mut [u8]| {
                multiply(Problem { m, positions, n, k, dtype, x, weights, out })
            };
            if let [row] = *rows {
                let row = row as usize;
                let x = &x[row / shared * x_size..][..x_size];
                product(1, x, &mut out[row * out_size..][..out_size])?;
                continue;
            }
            some_x.clear();
            for &row in rows {
                some_x.extend_from_slice(&x[row as usize / shared * x_size..][..x_size]);
            }
            some_out.resize(rows.len() * out_size, 0);
            product(rows.len(), some_x, some_out)?;
            for (&row, from) in rows.iter().zip(some_out.chunks_exact(out_size)) {
                out[row as usize * out_size..][..out_size].copy_from_slice(from);
            }
        }
        Ok(())
    })
}

/// The buffers of one of the matrices, which are equally long.
fn matrix_of(weights: Weights<'_>, matrix: usize, matrices: usize) -> Weights<'_> {
    let part = |data| part(data, matrix, matrices);
    match weights {
        Weights::Dense { dtype, data } => Weights::Dense { dtype, data: part(data) },
        Weights::Packed { packing, group_size, data, scales, biases } => Weights::Packed {
            packing,
            group_size,
            data: part(data),
            scales: part(scales),
            biases: part(biases),
        },
    }
}

fn part(data: &[u8], matrix: usize, matrices: usize) -> &[u8] {
    let size = data.len() / matrices;
    &data[matrix * size..][..size]
}

impl Gather<'_> {
    fn check(&self) -> Result<(), Error> {
        let Gather { x_rows, matrices, n, k, dtype, x, indices, weights, .. } = *self;
        if !indices.len().is_multiple_of(x_rows) {
            return Err(Error(format!("{x_rows} rows do not share {} indices", indices.len())));
        }
        if let Some(index) = indices.iter().find(|index| **index as usize >= matrices) {
            return Err(Error(format!("index {index} of {matrices} matrices")));
        }
        // All matrices together are one of as many rows.
        let rows =
            n.checked_mul(matrices).ok_or_else(|| Error("the weights are too large".into()))?;
        let out = &mut [];
        Problem { m: 0, positions: 1, n: rows, k, dtype, x: &[], weights, out }.check()?;
        let known = |name, bytes: &[u8], rows: usize, columns: usize| {
            let sizes = [rows, columns, dtype.size()];
            crate::problem::buffer(name, bytes, &sizes)
        };
        known("x", x, x_rows, k)?;
        known("out", self.out, indices.len(), n)
    }
}
