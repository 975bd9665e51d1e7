//! Our kernel for several rows against MLX's operations in f32.

use mlx_ffi::cuda;
use mlx_ffi::step::Heads;
use mlx_ffi::{Activation, Dtype, Result, ops};

use super::arrays::{assert_near, cast, values, wide};
use super::matrix::Matrix;
use super::on_cuda::{some, use_cuda};

/// The small sizes are for a processor, too. Blocks have all columns there, or share them, and one
/// to three sixteens of rows. Whole stages, rows and words of scales do not fit into some.
#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn products_of_several_rows_are_those_of_mlx() {
    use_cuda();
    let packings = [(4, 64), (16, 0), (8, 32), (4, 32), (8, 64), (16, 0), (8, 128), (4, 128)]
        .map(|packing| (packing.0 < 16).then_some(packing));
    for (at, &packing) in packings.iter().enumerate() {
        let dtype = if at % 2 == 1 { Dtype::F16 } else { Dtype::Bf16 };
        // The last one has an odd number of scales.
        let odd = [37, 27 * packing.map_or(32, |(_, group_size)| group_size)];
        let small = [[240, 512], [48, 1152], odd, [24, 512], [600, 512]];
        let large = [[1000, 2816], [2560, 9728], [4112, 2560], [9728, 1024], [151936, 1024]];
        let all = [&small[..], &large[..]].concat();
        for (of, &size) in some(&all, small.len()).iter().enumerate() {
            let (row_counts, dtypes) =
                if of == at % 3 { (3, &[dtype, Dtype::Bf16][..]) } else { (1, &[dtype][..]) };
            for &rows in some(&[17, 2, 33, 1, 9, 16, 32, 64], row_counts) {
                for dtype in some(dtypes, 1) {
                    product(size, rows, *dtype, packing).expect("products");
                }
            }
        }
    }
}

fn product([n, k]: [i32; 2], rows: i32, dtype: Dtype, packing: Option<(i32, i32)>) -> Result<()> {
    let what = format!("{rows} rows, {n} x {k}, {dtype:?}, {packing:?}");
    let matrix = Matrix::new(n, k, dtype, packing);
    let w = matrix.weights();
    let x = cast(&values(&[rows, 1, k], 2), dtype);
    // More rows with weights that are not packed are cuBLASLt's.
    let is_taken = rows <= 32 || packing.is_some();
    assert_eq!(cuda::takes_several_rows(&x, w), is_taken, "{what}");
    if !is_taken {
        return Ok(());
    }
    let expected = ops::matmul(&wide(&x), &matrix.transposed()?)?;
    let found = cuda::several_rows(&x, w)?;
    assert_eq!(found.shape(), expected.shape());
    assert_near(&found, &expected, 1e-2, &what);
    assert!(wide(&found).to_vec_f32()?.iter().all(|value| value.is_finite()), "{what}");
    // A row gives the same whatever is beside it.
    let last = ops::slice_axis(&x, 0, rows - 1, rows)?;
    let alone = wide(&cuda::several_rows(&last, w)?).to_vec_f32()?;
    let together = wide(&ops::slice_axis(&found, 0, rows - 1, rows)?).to_vec_f32()?;
    assert!(alone == together, "{what}");
    // A sum of the parts is what their sum gives.
    let parts = cuda::several_rows_in_parts(&x, w)?;
    let onto = cast(&values(&[rows, 1, n], 9), dtype);
    if cuda::takes_residual(&onto, &parts, None, None) {
        let [of_sum, of_parts] = [&found, &parts].map(|y| {
            let (h, _) = cuda::residual(&onto, y, None, None, 1e-5, None, None)?;
            wide(&h).to_vec_f32()
        });
        assert!(of_sum? == of_parts?, "{what}, in parts");
    } else {
        assert!(n % 8 != 0 || n > 1 << 14, "{what}");
    }
    assert_eq!(cuda::takes_gated_rows(&x, w), n % 8 == 0, "{what}");
    if n % 16 != 0 {
        return Ok(());
    }
    // Each step is rounded as if it were an operation of its own.
    let half = |at| Heads { array: &found, at };
    let expected = cuda::gated(Activation::Silu, half(0), half(n / 2), n / 2, 1)?;
    let gated = cuda::gated_rows(&x, w, Activation::Silu)?;
    assert_eq!(gated.shape(), expected.shape());
    assert!(wide(&gated).to_vec_f32()? == wide(&expected).to_vec_f32()?, "{what}, gated");
    Ok(())
}
