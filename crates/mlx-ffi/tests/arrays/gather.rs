//! Products whose rows name their matrices, by MLX and by our own kernels.

use super::near::assert_near;
use mlx_ffi::{
    Array, Device, Dtype, Indices, QuantMode, Quantization, Quantized, Result, cpu, dequantize,
    gather_qmm, ops, quantize, random, use_device,
};

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

fn normal(shape: &[i32], dtype: Dtype, seed: u64) -> Result<Array> {
    use_device(Device::Cpu)?;
    let array = random::normal(shape, dtype, &random::key(seed)?)?;
    array.eval()?;
    Ok(array)
}

/// `x`, `[t, 1 or e, k]`, times the matrices of `w` that `indices`, `[t, e]`, name, in f32:
/// `[t, e, n]`.
fn expected(x: &Array, w: &Array, indices: &Indices) -> Result<Vec<f32>> {
    let chosen = ops::take(&ops::astype(w, Dtype::F32)?, indices, 0)?;
    let x = ops::expand_dims(&ops::astype(x, Dtype::F32)?, -1)?;
    ops::squeeze(&ops::matmul(&chosen, &x)?, -1)?.to_vec_f32()
}

fn tolerance(dtype: Dtype) -> f32 {
    match dtype {
        Dtype::F32 => 2e-4,
        Dtype::F16 => 0.04,
        _ => 0.3,
    }
}

#[test]
fn our_dense_product_takes_the_matrix_that_each_index_names() -> Result<()> {
    let indices = Indices::from_u32(&[4, 0, 2, 2, 0, 1], &[3, 2])?;
    for dtype in FLOATS {
        let w = normal(&[5, 9, 70], dtype, 1)?;
        for rows in [1, 2] {
            let x = normal(&[3, rows, 70], dtype, 2)?;
            let product = cpu::gather_matmul(&x, &w, &indices)?;
            assert_eq!((product.shape(), product.dtype()), (&[3, 2, 9][..], dtype));
            assert_near(&product.to_vec_f32()?, &expected(&x, &w, &indices)?, tolerance(dtype));
        }
    }
    Ok(())
}

#[test]
fn our_packed_product_takes_the_matrix_that_each_index_names() -> Result<()> {
    let indices = Indices::from_u32(&[4, 0, 2, 2, 0, 1], &[3, 2])?;
    let forms = [
        (QuantMode::Affine, 4, 64),
        (QuantMode::Affine, 3, 32),
        (QuantMode::Mxfp4, 4, 32),
        (QuantMode::Mxfp8, 8, 32),
        (QuantMode::Nvfp4, 4, 16),
    ];
    for (mode, bits, group_size) in forms {
        let quantization = Quantization { mode, bits, group_size };
        for dtype in FLOATS {
            let w = quantize(&normal(&[5, 8, 128], dtype, 3)?, quantization)?;
            let plain = dequantize(&w, dtype)?;
            for rows in [1, 2] {
                let x = normal(&[3, rows, 128], dtype, 4)?;
                let product = cpu::gather_quantized_matmul(&x, &w, &indices)?;
                assert_eq!((product.shape(), product.dtype()), (&[3, 2, 8][..], dtype));
                let expected = expected(&x, &plain, &indices)?;
                assert_near(&product.to_vec_f32()?, &expected, tolerance(dtype));
            }
        }
    }
    Ok(())
}

#[test]
fn any_layout_gives_the_same_product() -> Result<()> {
    // Every second expert and column of something larger, transposed; indices in columns.
    let half = |a: &Array, axis| -> Result<Array> {
        let shape = a.shape().to_vec();
        let mut split = shape.clone();
        split[axis] /= 2;
        split.insert(axis + 1, 2);
        let parts = ops::reshape(a, &split)?;
        ops::squeeze(&ops::slice_axis(&parts, axis as i32 + 1, 1, 2)?, axis as i32 + 1)
    };
    let w = ops::swap_axes(&half(&normal(&[8, 40, 9], Dtype::F32, 5)?, 0)?, 1, 2)?;
    let x = ops::swap_axes(&half(&normal(&[40, 2, 6], Dtype::F32, 6)?, 2)?, 0, 2)?;
    let indices = Indices::from_u32(&[3, 2, 1, 2, 0, 0], &[3, 2])?;
    let in_columns = ops::swap_axes(&Array::from_u32(&[3, 1, 0, 2, 2, 0], &[2, 3])?, 0, 1)?;
    let product = cpu::gather_matmul(&x, &w, &in_columns)?;
    assert_near(&product.to_vec_f32()?, &expected(&x, &w, &indices)?, 2e-4);
    let empty = cpu::gather_matmul(
        &ops::zeros(&[0, 1, 40], Dtype::F32)?,
        &w,
        &ops::zeros(&[0, 2], Dtype::U32)?,
    )?;
    assert_eq!((empty.shape(), empty.to_vec_f32()?), (&[0, 2, 9][..], vec![]));
    Ok(())
}

#[test]
fn an_index_without_a_matrix_is_the_error_of_the_evaluation() -> Result<()> {
    let w = normal(&[2, 3, 4], Dtype::F32, 7)?;
    let x = normal(&[1, 4], Dtype::F32, 8)?;
    let product = cpu::gather_matmul(&x, &w, &Array::from_u32(&[2], &[1])?)?;
    assert_eq!(product.eval().unwrap_err().to_string(), "index 2 of 2 matrices");
    cpu::gather_matmul(&x, &w, &Array::from_u32(&[1], &[1])?)?.eval()
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let w = normal(&[2, 3, 64], Dtype::F32, 9)?;
    let quantization = Quantization { mode: QuantMode::Affine, bits: 4, group_size: 64 };
    let packed = quantize(&w, quantization)?;
    let x = normal(&[2, 64], Dtype::F32, 10)?;
    let indices = Array::from_u32(&[0, 1], &[2])?;
    for (x, indices) in [
        (normal(&[2, 32], Dtype::F32, 11)?, indices.share()?),
        (x.share()?, Array::from_u32(&[0, 1, 1], &[3])?),
        (x.share()?, ops::astype(&indices, Dtype::I32)?),
        (ops::astype(&x, Dtype::I32)?, indices.share()?),
    ] {
        cpu::gather_matmul(&x, &w, &indices).expect_err("it does not fit");
        cpu::gather_quantized_matmul(&x, &packed, &indices).expect_err("it does not fit");
    }
    let flat = Quantized { biases: None, ..packed };
    cpu::gather_quantized_matmul(&x, &flat, &indices).expect_err("affine weights need biases");
    Ok(())
}

#[test]
fn mlx_gathers_in_f32_and_other_types_are_refused_before_they_end_the_process() -> Result<()> {
    let w = normal(&[3, 5, 32], Dtype::F32, 12)?;
    let x = normal(&[4, 1, 32], Dtype::F32, 13)?;
    let indices = Indices::from_u32(&[2, 0, 1, 2], &[4, 1])?;
    let columns = ops::swap_axes(&w, 1, 2)?;
    let lines = ops::expand_dims(&x, 1)?;
    let product = ops::gather_mm(&lines, &columns, &indices, false)?;
    assert_eq!(product.shape(), [4, 1, 1, 5]);
    assert_near(&product.to_vec_f32()?, &expected(&x, &w, &indices)?, 2e-4);
    let half = ops::astype(&columns, Dtype::Bf16)?;
    let error = ops::gather_mm(&ops::astype(&lines, Dtype::Bf16)?, &half, &indices, false);
    assert!(error.unwrap_err().to_string().contains("f32 only"));
    // Packed weights are not concerned.
    let quantization = Quantization { mode: QuantMode::Affine, bits: 4, group_size: 32 };
    let packed = quantize(&ops::astype(&w, Dtype::Bf16)?, quantization)?;
    gather_qmm(&ops::astype(&lines, Dtype::Bf16)?, &packed, &indices, false)?.eval()
}
