//! Floats that come from the host and go back to it.

use mlx_ffi::{Array, Device, Dtype, Result, ops, use_device};

use super::on_cuda::use_cuda;

fn floats_come_back() -> Result<()> {
    // Some that each type has, some that types of 16 bits round, large ones and small ones.
    let wide = [1.5, 1.001_953_1, -3.002_592_7, 65_504.0, 257.0, f32::INFINITY, -0.0, 1e-7];
    for (dtype, step) in
        [(Dtype::F32, 0.0), (Dtype::F16, 2.0_f32.powi(-11)), (Dtype::Bf16, 2.0_f32.powi(-8))]
    {
        let all = Array::from_floats(&wide, &[2, 4], dtype)?;
        let found = all.to_vec_f32()?;
        assert_eq!(all.dtype(), dtype);
        for (found, wide) in found.iter().zip(wide) {
            // The smallest of F16 are as far from each other as 2^-24.
            let near = (found - wide).abs() <= wide.abs() * step + step * 2.0_f32.powi(-14);
            assert!(*found == wide || near, "{found} {wide} {dtype:?}");
        }
        let cast = ops::astype(&Array::from_f32(&wide, &[2, 4])?, dtype)?;
        assert_eq!(
            found,
            ops::astype(&cast, Dtype::F32)?.to_vec_f32()?,
            "as MLX rounds and widens"
        );
        let columns: Vec<f32> = (0..4).flat_map(|at| [found[at], found[at + 4]]).collect();
        assert_eq!(ops::swap_axes(&all, 0, 1)?.to_vec_f32()?, columns, "{dtype:?}");
        // So few bytes that MLX leaves them to the host.
        let few = Array::from_floats(&wide[..2], &[2], dtype)?;
        assert_eq!(few.to_vec_f32()?, found[..2], "{dtype:?}");
        assert!(ops::slice_axis(&all, 0, 1, 1)?.to_vec_f32()?.is_empty());
        let none = Array::from_floats(&[f32::NAN; 3], &[3], dtype)?.to_vec_f32()?;
        assert!(none.iter().all(|value| value.is_nan()), "{dtype:?}");
    }
    let error = Array::from_floats(&wide, &[8], Dtype::I32).expect_err("whole numbers");
    assert!(error.to_string().contains("do not become"), "{error}");
    Ok(())
}

#[test]
fn floats_of_any_type_come_back_from_a_cpu() {
    use_device(Device::Cpu).expect("a CPU");
    floats_come_back().expect("values");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn floats_of_any_type_come_back_from_a_gpu() {
    use_cuda();
    floats_come_back().expect("values");
}
