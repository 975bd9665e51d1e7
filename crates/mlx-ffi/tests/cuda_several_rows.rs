//! Our kernel for several rows of packed weights against MLX's operations in f32.

mod arrays;
mod on_cuda;

use mlx_ffi::cuda;
use mlx_ffi::step::Heads;
use mlx_ffi::{
    Activation, Array, Dtype, QuantMode, Quantization, Result, dequantize, ops, quantize,
};

use self::arrays::{assert_near, cast, values, wide};
use self::on_cuda::{some, use_cuda};

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn products_of_several_rows_are_those_of_mlx() {
    use_cuda();
    for (bits, group_size) in [4, 8].into_iter().flat_map(|bits| [32, 64, 128].map(|g| (bits, g))) {
        for &(n, k) in some(
            &[(144, 512), (1000, 2816), (2560, 9728), (4112, 2560), (192, 256), (9728, 1024)],
            1,
        ) {
            for &rows in some(&[17, 33, 1, 2, 9, 16, 32, 64], 3) {
                product([n, k], rows, (bits, group_size)).expect("products");
            }
        }
    }
}

fn product([n, k]: [i32; 2], rows: i32, (bits, group_size): (i32, i32)) -> Result<()> {
    let what = format!("{rows} rows, {n} x {k}, {bits} bits in groups of {group_size}");
    let scale = Array::scalar((k as f32).sqrt().recip(), Dtype::F32)?;
    let w = cast(&ops::multiply(&values(&[n, k], 7), &scale)?, Dtype::Bf16);
    let w = quantize(&w, Quantization { mode: QuantMode::Affine, bits, group_size })?;
    let x = cast(&values(&[rows, 1, k], 2), Dtype::Bf16);
    assert!(cuda::takes_several_rows(&x, &w), "{what}");
    let transposed = ops::swap_axes(&wide(&dequantize(&w, Dtype::Bf16)?), -1, -2)?;
    let expected = ops::matmul(&wide(&x), &transposed)?;
    let found = cuda::several_rows(&x, &w)?;
    assert_eq!(found.shape(), expected.shape());
    assert_near(&found, &expected, 1e-2, &what);
    // A row gives the same whatever is beside it, beyond 32 rows and up to them.
    let beside = if rows > 32 { rows - 33 } else { rows - 1 };
    let last = ops::slice_axis(&x, 0, beside, rows)?;
    let alone = wide(&cuda::several_rows(&last, &w)?).to_vec_f32()?;
    let together = wide(&ops::slice_axis(&found, 0, beside, rows)?).to_vec_f32()?;
    assert!(alone == together, "{what}");
    if !cuda::takes_gated_rows(&x, &w) {
        assert!(n % 16 != 0, "{what}");
        return Ok(());
    }
    // Each step is rounded as if it were an operation of its own.
    let half = |at| Heads { array: &found, at };
    let expected = cuda::gated(Activation::Silu, half(0), half(n / 2), n / 2, 1)?;
    let gated = cuda::gated_rows(&x, &w, Activation::Silu)?;
    assert_eq!(gated.shape(), expected.shape());
    assert!(wide(&gated).to_vec_f32()? == wide(&expected).to_vec_f32()?, "{what}, gated");
    Ok(())
}
