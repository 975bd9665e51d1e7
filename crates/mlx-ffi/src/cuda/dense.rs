//! Products of many rows with a matrix that is not packed.

use crate::error::Result;
use crate::stream::current;
use crate::{Array, sys};

/// Returns true when [`dense`] supports these operands.
pub fn takes_dense(x: &Array, w: &Array) -> bool {
    let &[n, k] = w.shape() else { return false };
    let sizes_fit = n > 0 && k > 0 && k % 8 == 0 && x.size() > 0;
    let shapes_fit = x.shape().len() >= 2 && x.shape().last() == Some(&k);
    x.dtype().is_half() && x.dtype() == w.dtype() && sizes_fit && shapes_fit
}

/// `x wᵀ` for `x` of `[…, in]` and `w` of `[out, in]`: `[…, out]`. MLX multiplies, as
/// [`ops::matmul`](crate::ops::matmul) does, but it is one operation, which a
/// [`Replay`](crate::Replay) can hold.
///
/// # Errors
/// Shapes and types that do not fit.
pub fn dense(x: &Array, w: &Array) -> Result<Array> {
    // SAFETY: the inputs outlive the call; the shim only reads them.
    Array::from_op(|out| unsafe { sys::mlxrs_dense(out, x.raw(), w.raw(), current()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Dtype, ops, use_device};

    #[test]
    fn rows_with_any_gaps_are_multiplied_as_mlx_does() {
        use_device(Device::Cpu).expect("a CPU");
        let values = |count: i32| (0..count).map(|i| (i as f32 * 0.37).sin()).collect::<Vec<_>>();
        let x = Array::from_f32(&values(4 * 6 * 24), &[4, 6, 24]).expect("values");
        let x = ops::astype(&x, Dtype::Bf16).expect("bf16");
        let w = Array::from_f32(&values(5 * 8), &[5, 8]).expect("values");
        let w = ops::astype(&w, Dtype::Bf16).expect("bf16");
        let columns = |x: &Array, first| ops::slice_axis(x, -1, first, first + 8).expect("columns");
        let steps = ops::slice_axis(&x, 1, 2, 3).expect("a position");
        let few = ops::slice_axis(&x, 1, 1, 4).expect("positions");
        for x in [
            columns(&x, 0),
            columns(&x, 8),
            columns(&steps, 16),
            columns(&few, 8),
            ops::swap_axes(&columns(&x, 0), 0, 1).expect("a transposed one"),
        ] {
            assert!(takes_dense(&x, &w));
            let found = dense(&x, &w).expect("a product");
            let expected = ops::matmul(&x, &ops::swap_axes(&w, 0, 1).expect("wᵀ"));
            let values = |x: &Array| {
                ops::astype(x, Dtype::F32).and_then(|x| x.to_vec_f32()).expect("values")
            };
            assert_eq!(found.shape()[..2], x.shape()[..2]);
            assert_eq!(values(&found), values(&expected.expect("a product")));
        }
        assert!(dense(&x, &w).is_err());
    }
}
