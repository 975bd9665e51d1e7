//! Failures of what was queued. One test in a process of its own, so that its thread is the first
//! that uses MLX: the main one, were none made for it.

use mlx_ffi::{
    Array, Device, Dtype, QuantMode, Quantization, Result, async_eval, ops, quantize, use_device,
};

/// A quantisation that nothing refuses before its kernel runs.
fn fails_in_its_kernel() -> Result<Array> {
    let affine = Quantization { mode: QuantMode::Affine, bits: 4, group_size: 64 };
    Ok(quantize(&ops::zeros(&[2, 64], Dtype::F64)?, affine)?.weight)
}

#[test]
fn the_first_wait_after_a_failure_gets_it_and_every_wait_ends() -> Result<()> {
    use_device(Device::Cpu)?;
    for _ in 0..5000 {
        let failing = fails_in_its_kernel()?;
        let sum = ops::add(&ops::zeros(&[2], Dtype::F32)?, &ops::zeros(&[2], Dtype::F32)?)?;
        async_eval([&failing])?;
        async_eval([&sum])?;
        let error = sum.eval().expect_err("what is queued failed").to_string();
        assert!(error.contains("Only supports floating point inputs"), "{error}");
        failing.eval()?;
    }
    Ok(())
}
