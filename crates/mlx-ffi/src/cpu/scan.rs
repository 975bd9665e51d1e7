//! The selective scan of Mamba 2 by our own kernel for CPUs.

use cpu_kernels::Scan;

use super::operation::{Inputs, Outcome, are_row_major, floats, in_place};
use super::recurrent::{fits_columns, positions};
use super::{failed, kernel_dtype};
use crate::step::Heads as Columns;
use crate::{Array, Dtype, Error, Result};

/// The operands of [`scan`].
#[derive(Clone, Copy, Debug)]
pub struct SelectiveScan<'a> {
    /// `[b, l, heads · head_dim + 2 · groups · state_dim]`: x of all heads, then `b` of all groups,
    /// then their `c`.
    pub mixed: &'a Array,
    /// `heads` columns of an array of `[b, l, …]`: what steps are made of.
    pub dt: Columns<'a>,
    /// `[heads]` F32.
    pub a_log: &'a Array,
    /// `[heads]` F32.
    pub dt_bias: &'a Array,
    /// `[heads]` F32: what of x passes the state by.
    pub d: &'a Array,
    /// Groups of neighbouring heads that share `b` and `c`.
    pub groups: i32,
    /// The least step and the largest.
    pub limits: [f32; 2],
    /// Positions of each row that count; empty: all.
    pub lengths: &'a [i32],
    /// `[b, heads, head_dim, state_dim]` F32, row-major.
    pub state: &'a Array,
}

impl SelectiveScan<'_> {
    /// Returns true when its shapes fit each other, and its parameters and its state are F32.
    pub(crate) fn fits(&self) -> bool {
        let SelectiveScan { mixed, dt, a_log, dt_bias, d, groups, lengths, state, .. } = *self;
        let (Ok([rows, l, columns]), Ok([_, heads, head_dim, state_dim])) =
            (mixed.dims(), state.dims())
        else {
            return false;
        };
        let shared = 2 * i64::from(groups) * i64::from(state_dim);
        i64::from(columns) == i64::from(heads) * i64::from(head_dim) + shared
            && state.shape() == [rows, heads, head_dim, state_dim]
            && fits_columns(dt, [rows, l, heads])
            && [a_log, dt_bias, d].iter().all(|array| array.shape() == [heads])
            && (lengths.is_empty() || lengths.len() == rows as usize)
            && groups > 0
            && [a_log, dt_bias, d, state].iter().all(|array| array.dtype() == Dtype::F32)
    }
}

/// The selective scan: `[b, l, heads · head_dim]`, and the state afterwards. This shares the buffer
/// of `of.state`, which nothing may read any more.
///
/// # Errors
/// Shapes or types that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn scan(of: &SelectiveScan<'_>) -> Result<[Array; 2]> {
    let SelectiveScan { mixed, dt, a_log, dt_bias, d, groups, limits, lengths, state } = *of;
    let dtype = kernel_dtype(mixed.dtype())?;
    let [rows, l, _] = mixed.dims()?;
    let [_, heads, head_dim, state_dim] = state.dims()?;
    if !(of.fits() && dt.array.dtype() == mixed.dtype()) {
        return Err(Error::new(format!(
            "{mixed:?} of {groups} groups, {dt:?}, {a_log:?}, {dt_bias:?}, {d:?} and the state {state:?} of {} lengths do not fit",
            lengths.len()
        )));
    }
    let shape = [rows, l, heads * head_dim];
    let outcome = Outcome::row_major(mixed.dtype(), &shape);
    let sizes = [rows as usize, l as usize];
    let numbers = [heads, groups, head_dim, state_dim].map(|size| size as usize);
    let lengths = lengths.to_vec();
    let inputs = [state, mixed, dt.array, a_log, dt_bias, d];
    let dt_at = dt.at;
    in_place(&inputs, Inputs::Strided, &[0], outcome, move |inputs, outputs| {
        let ([mixed, dt, a_log, dt_bias, d], [out, state]) = (inputs, outputs) else {
            return Err(Error::new("a scan without operands"));
        };
        let [a_log, dt_bias, d]: [Vec<f32>; 3] =
            [a_log, dt_bias, d].map(|view| floats(view.bytes).collect());
        let [heads, groups, head_dim, state_dim] = numbers;
        let found: [usize; 3] = state.strides();
        if !are_row_major(found, &[sizes[0], heads, head_dim, state_dim]) {
            return Err(Error::new(format!("the state of a scan is not row-major: {found:?}")));
        }
        let task = Scan {
            dtype,
            sizes,
            heads,
            groups,
            head_dim,
            state_dim,
            mixed: positions(mixed, 0, dtype),
            dt: positions(dt, dt_at, dtype),
            a_log: &a_log,
            dt_bias: &dt_bias,
            d: &d,
            limits,
            lengths: &lengths,
            state: state.bytes,
            out: out.bytes,
        };
        cpu_kernels::scan(task).map_err(failed)
    })
}
