//! Products of many rows that are sent to a CUDA device past MLX, against MLX's in f32.

use mlx_ffi::{Dispatch, Dispatcher, Dtype, Result, cuda, eval_all, ops};

use super::arrays::{assert_near, cast, values, wide};
use super::on_cuda::use_cuda;

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn products_of_about_as_many_rows_are_those_of_mlx() {
    use_cuda();
    products().expect("products");
}

fn products() -> Result<()> {
    let mut dispatcher = Dispatcher::new(None)?;
    // Numbers of rows that have one kernel, its largest and others, and those beside.
    let rows = [128, 129, 143, 144, 145, 255, 257, 300, 511, 635, 1025, 1151, 1152, 2049, 4100];
    // Of the last ones, each number of rows has a kernel of its own.
    for (columns, out) in [(1024, 3072), (2560, 512), (136, 264)] {
        for dtype in [Dtype::Bf16, Dtype::F16] {
            let w = cast(&values(&[out, columns], 7), dtype);
            eval_all([&w])?;
            let transposed = ops::swap_axes(&wide(&w), 0, 1)?;
            for rows in rows {
                let x = cast(&values(&[1, rows, columns], 8), dtype);
                eval_all([&x])?;
                let found = cuda::dense(&x, &w)?;
                assert_eq!(dispatcher.send([&found])?, Dispatch::Sent);
                dispatcher.wait()?;
                let expected = ops::matmul(&wide(&x), &transposed)?;
                let what = format!("{rows} x {columns} x {out} {dtype:?}");
                assert_near(&found, &expected, 1e-2, &what);
            }
        }
    }
    Ok(())
}
