//! Packed matrices as they are, for products of many rows.

use super::constants::{AFFINE, FLOATS, THREADS};
use super::kernel::{Constant, Launch, Source};
use super::launch::{first, launch};
use crate::{Array, Dtype, Error, QuantMode, Quantized, Result};

const UNPACK: Source = Source {
    name: c"unpack",
    inputs: &[c"w", c"scales", c"minima"],
    outputs: &[c"out"],
    body: include_str!("unpack.cu"),
    header: concat!(
        include_str!("chained.cu"),
        include_str!("common.cu"),
        include_str!("expert_common.cu")
    ),
    takes_strides: false,
    written: &[],
};

/// How many times a thread makes eight values.
const TIMES: i32 = 4;
/// The most values of a matrix, as threads are counted in 32 bits.
const MOST_VALUES: i64 = 1 << 34;

/// The kind of packing and its bits, where kernels unpack it to `dtype`.
pub(super) fn packing(w: &Quantized, dtype: Dtype) -> Option<(i32, i32)> {
    w.check().ok()?;
    let quantization = w.quantization;
    let (kind, is_known) = match (quantization.mode, quantization.bits) {
        (QuantMode::Affine, 4 | 8) => (AFFINE, w.scales.dtype() == dtype),
        (QuantMode::Mxfp4 | QuantMode::Nvfp4, 4) => (FLOATS, true),
        _ => return None,
    };
    (is_known && dtype.is_half()).then_some((kind, quantization.bits))
}

/// The packing of one matrix that [`unpacked`] takes.
fn of_matrix(w: &Quantized, dtype: Dtype) -> Option<(i32, i32)> {
    let &[n, groups] = w.scales.shape() else { return None };
    let values = i64::from(n) * i64::from(groups) * i64::from(w.quantization.group_size);
    let sizes_fit = w.quantization.group_size % 16 == 0 && (1..=MOST_VALUES).contains(&values);
    packing(w, dtype).filter(|_| sizes_fit)
}

/// Returns true when [`unpacked`] supports these operands.
pub fn takes_unpacked(w: &Quantized, dtype: Dtype) -> bool {
    of_matrix(w, dtype).is_some()
}

/// The matrix, `[out, in]`, in `dtype`.
///
/// # Errors
/// Operands that [`takes_unpacked`] rejects; a device without CUDA.
pub fn unpacked(w: &Quantized, dtype: Dtype) -> Result<Array> {
    let Some((kind, bits)) = of_matrix(w, dtype) else {
        return Err(Error::new(format!("no kernel unpacks {w:?} to {dtype:?}")));
    };
    let [n, groups] = w.scales.dims()?;
    let group_size = w.quantization.group_size;
    let shape = [n, groups * group_size];
    let of_block = i64::from(THREADS * TIMES * 8);
    let constants = [
        (c"T", Constant::Type(dtype)),
        (c"KIND", Constant::Int(kind)),
        (c"BITS", Constant::Int(bits)),
        (c"GROUP_SIZE", Constant::Int(group_size)),
        (c"TIMES", Constant::Int(TIMES)),
    ];
    let values = i64::from(n) * i64::from(shape[1]);
    let blocks = (values + of_block - 1) / of_block;
    let grid = [blocks as i32 * THREADS, 1, 1];
    let outputs: [(&[i32], Dtype); 1] = [(&shape, dtype)];
    let all = Launch { grid, block: [THREADS, 1, 1], constants: &constants, outputs: &outputs };
    // What is not there is not looked at.
    let minima = w.biases.as_ref().unwrap_or(&w.scales);
    first(launch(&UNPACK, &[&w.weight, &w.scales, minima], &all)?)
}
