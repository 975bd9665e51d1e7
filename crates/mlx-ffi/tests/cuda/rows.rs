//! Our kernels for what stands between products against MLX's operations in f32.

use mlx_ffi::cuda::{self, Factor, Place, Places};
use mlx_ffi::step::Heads;
use mlx_ffi::{Activation, Array, Dtype, Result, fast, ops};

use super::arrays::{assert_near, cast, values, wide};
use super::on_cuda::{some, use_cuda};

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn gates_and_residuals_are_those_of_mlx() {
    use_cuda();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        for &(rows, columns) in some(&[(1, 64), (3, 1152), (32, 2560), (512, 9728)], 2) {
            between(rows, columns, dtype).expect("rows");
        }
    }
}

fn between(rows: i32, columns: i32, dtype: Dtype) -> Result<()> {
    let what = |of: &str| format!("{of}: {rows} x {columns} {dtype:?}");
    let (x, y) = (
        cast(&values(&[1, rows, columns], 1), dtype),
        cast(&values(&[1, rows, columns], 2), dtype),
    );
    let (out_norm, norm) =
        (cast(&values(&[columns], 3), dtype), cast(&values(&[columns], 4), dtype));
    let normed_y = fast::rms_norm(&wide(&y), Some(&wide(&out_norm)), 1e-5)?;
    for out in [None, Some(&out_norm)] {
        let added = if out.is_some() { &normed_y } else { &wide(&y) };
        let h = ops::add(&wide(&x), added)?;
        let (found, none) = cuda::residual(&x, &y, out, None, 1e-5, None, None)?;
        assert_near(&found, &h, 1e-2, &what("sum"));
        assert!(none.is_none());
        let (found, normed) = cuda::residual(&x, &y, out, Some(&norm), 1e-5, None, None)?;
        assert_near(&found, &h, 1e-2, &what("sum"));
        let expected = fast::rms_norm(&h, Some(&wide(&norm)), 1e-5)?;
        assert_near(&normed.expect("a norm"), &expected, 2e-2, &what("norm"));
        let part = ops::multiply(added, &Array::scalar(0.22, Dtype::F32)?)?;
        let (found, _) = cuda::residual(&x, &y, out, None, 1e-5, Some(0.22), None)?;
        assert_near(&found, &ops::add(&wide(&x), &part)?, 1e-2, &what("sum of a part"));
        let scale = cast(&values(&[8], 11), dtype);
        let first = ops::slice_axis(&wide(&scale), 0, 0, 1)?;
        let (found, normed) = cuda::residual(&x, &y, out, Some(&norm), 1e-5, None, Some(&scale))?;
        let scaled = ops::multiply(&h, &first)?;
        assert_near(&found, &scaled, 1e-2, &what("scaled sum"));
        let expected = fast::rms_norm(&scaled, Some(&wide(&norm)), 1e-5)?;
        assert_near(&normed.expect("a norm"), &expected, 2e-2, &what("norm of a scaled sum"));
    }
    // A thread holds no more of a longer row.
    assert_eq!(cuda::takes_rms_norm(&x, &norm), columns <= 1 << 13);
    if cuda::takes_rms_norm(&x, &norm) {
        let alone = fast::rms_norm(&wide(&x), Some(&wide(&norm)), 1e-5)?;
        assert_near(&cuda::rms_norm(&x, &norm, 1e-5)?, &alone, 2e-2, &what("norm alone"));
    }
    let size = columns / 4;
    let groups = ops::reshape(&x, &[1, rows, 4, size])?;
    let by = ops::reshape(&norm, &[4, size])?;
    let of_groups = ops::multiply(&fast::rms_norm(&wide(&groups), None, 1e-5)?, &wide(&by))?;
    assert_near(&cuda::rms_norm(&groups, &by, 1e-5)?, &of_groups, 2e-2, &what("norm of groups"));
    for y in [&y, &norm] {
        let expected = ops::add(&wide(&x), &wide(y))?;
        assert_near(&cuda::sum(&x, y)?, &expected, 1e-2, &what("plain sum"));
    }
    let apart = ops::reshape(&y, &[rows, 1, columns])?;
    let expected = ops::concatenate(&[&wide(&x), &wide(&y)], 1)?;
    assert_near(&cuda::join(&x, &apart)?, &expected, 1e-6, &what("joined rows"));
    let half = columns / 2;
    let (gate, up) = (ops::slice_axis(&x, -1, 0, half)?, ops::slice_axis(&x, -1, half, columns)?);
    let silu = ops::multiply(&wide(&gate), &ops::sigmoid(&wide(&gate))?)?;
    let expected = ops::multiply(&silu, &wide(&up))?;
    let columns = |at| Heads { array: &x, at };
    let found = cuda::gated(Activation::Silu, columns(0), columns(half), half, 1)?;
    assert_near(&found, &expected, 2e-2, &what("gate"));
    // Columns of an array that has some for others, too.
    let gate = ops::contiguous(&gate)?;
    let gates = Heads { array: &gate, at: 0 };
    let found = cuda::gated(Activation::Silu, gates, columns(half), half, 1)?;
    assert_near(&found, &expected, 2e-2, &what("gate apart"));
    let row = cast(&values(&[half], 12), dtype);
    let upper = ops::slice_axis(&wide(&x), -1, half, half * 2)?;
    let number = Array::scalar(0.3, dtype)?;
    for (by, factor) in [(Factor::Row(&row), &row), (Factor::Number(0.3), &number)] {
        let expected = ops::multiply(&upper, &wide(factor))?;
        assert_near(&cuda::times(columns(half), half, by)?, &expected, 1e-2, &what("product"));
    }
    let found = cuda::activated(Activation::Silu, columns(0), half)?;
    assert_near(&found, &silu, 2e-2, &what("activation"));
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn positions_of_rows_are_copied_side_by_side() {
    use_cuda();
    for &(dtype, width) in
        some(&[(Dtype::Bf16, 64), (Dtype::F32, 3), (Dtype::F16, 5), (Dtype::Bf16, 128)], 2)
    {
        copied(dtype, width).expect("copies");
    }
}

/// Of more buffers than one launch takes, every second one of another length.
fn copied(dtype: Dtype, width: i32) -> Result<()> {
    let place = |row, first| Place { row, slot: 0, first, at: 0, count: 7, before: 0 };
    let [from, other] = [11, 14].map(|n| cast(&values(&[4, 3, n, width], n as u32), dtype));
    let parts = [&from, &other].repeat(9);
    for places in [&[place(3, 0)][..], &[place(0, 4)], &[place(1, 2), place(3, 0), place(1, 4)]] {
        let copies = cuda::copied(&parts, &Places::new(places)?)?;
        let rows = places.len();
        let counts: Vec<i32> = copies.iter().map(|copy| copy.shape()[0]).collect();
        assert_eq!(counts, [16, 2].map(|parts| parts * rows as i32));
        for (part, of) in parts.iter().enumerate() {
            for (row, Place { row: from, first, count, .. }) in places.iter().enumerate() {
                let at = (part % 16 * rows + row) as i32;
                let copy = ops::slice_axis(&copies[part / 16], 0, at, at + 1)?;
                let expected = ops::slice_axis(of, 0, *from, from + 1)?;
                let expected = ops::slice_axis(&expected, 2, *first, first + count)?;
                assert_eq!(copy.shape(), expected.shape());
                let (copy, expected) = (wide(&copy).to_vec_f32()?, wide(&expected).to_vec_f32()?);
                assert_eq!(copy, expected, "{dtype:?}, width {width}, part {part}, row {row}");
            }
        }
    }
    Ok(())
}
