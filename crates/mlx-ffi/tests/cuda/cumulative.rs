//! Running sums on CUDA against the CPU, beside arrays that they must leave alone.

use mlx_ffi::ops::Cumulative;
use mlx_ffi::{Array, Device, Result, eval_all, ops, use_device};

use super::on_cuda::use_cuda;

/// The running sums of values along the fourth axis.
fn sums(shape: &[i32]) -> Result<Array> {
    let count = shape.iter().product::<i32>();
    let values: Vec<f32> = (0..count).map(|i| (i as f32 * 0.37).sin()).collect();
    ops::cumsum(&Array::from_f32(&values, shape)?, 3, Cumulative::Forward)
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn running_sums_are_those_of_the_cpu_and_write_nowhere_else() {
    use_cuda();
    for l in [1, 2, 3, 5, 7, 8, 33, 64, 65] {
        for (rows, groups, each) in [(1, 1, 48), (2, 2, 8), (3, 2, 8), (5, 1, 6)] {
            let shape = [rows, groups, each, l, 1];
            let what = format!("{shape:?}");
            use_device(Device::Cpu).expect("a CPU");
            let expected = sums(&shape).and_then(|sums| sums.to_vec_f32()).expect("values");
            use_cuda();
            let size = [expected.len() as i32];
            let ones = Array::from_f32(&vec![1.0; expected.len()], &size).expect("ones");
            let others = (0..8).map(|i| {
                let number = Array::scalar(i as f32, mlx_ffi::Dtype::F32)?;
                ops::multiply(&ones, &number)
            });
            let others = others.collect::<Result<Vec<_>>>().expect("others");
            eval_all(&others).expect("their values");
            let found = sums(&shape).and_then(|sums| sums.to_vec_f32()).expect("values");
            let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(found.len() == expected.len() && off < 1e-4, "{what}: off by {off}");
            for (i, other) in others.iter().enumerate() {
                let kept = other.to_vec_f32().expect("values");
                assert!(kept.iter().all(|value| *value == i as f32), "{what} wrote into {i}");
            }
        }
    }
}
