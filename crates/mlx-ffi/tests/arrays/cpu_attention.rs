//! Attention by our own kernels for CPUs, against MLX's.

use super::near::assert_near;
use mlx_ffi::cpu::{self, Visible};
use mlx_ffi::fast::AttentionMask;
use mlx_ffi::{Array, Device, Dtype, Result, fast, ops, random, use_device};

const CAUSAL: Visible<'_> = Visible { starts: &[], causal: true, window: None };

fn normal(shape: &[i32], dtype: Dtype, seed: u64) -> Result<Array> {
    use_device(Device::Cpu)?;
    random::normal(shape, dtype, &random::key(seed)?)
}

fn f32(array: &Array) -> Result<Array> {
    ops::astype(array, Dtype::F32)
}

/// Keys and values as slices of larger buffers, queries as heads of a projection.
fn operands(dtype: Dtype, [l, n, d]: [i32; 3]) -> Result<[Array; 3]> {
    let q = ops::swap_axes(&normal(&[2, l, 6, d], dtype, 1)?, 1, 2)?;
    let buffer = |seed| ops::slice_axis(&normal(&[2, 3, n + 5, d], dtype, seed)?, 2, 0, n);
    Ok([q, buffer(2)?, buffer(3)?])
}

/// `[b, n, l, d]` as `[b, l, n * d]`.
fn heads_beside(array: &Array) -> Result<Array> {
    let [b, n, l, d] = array.dims()?;
    ops::reshape(&ops::swap_axes(array, 1, 2)?, &[b, l, n * d])
}

#[test]
fn it_agrees_with_mlx_in_every_type_over_slices_of_buffers() -> Result<()> {
    for (dtype, tolerance) in [(Dtype::F32, 1e-5), (Dtype::F16, 4e-3), (Dtype::Bf16, 0.03)] {
        for sizes in [[1, 7, 64], [9, 9, 40], [5, 33, 128]] {
            let [q, k, v] = operands(dtype, sizes)?;
            let sinks = normal(&[6], dtype, 4)?;
            for (visible, mask) in
                [(CAUSAL, AttentionMask::Causal), (Visible::default(), AttentionMask::None)]
            {
                for sinks in [None, Some(&sinks)] {
                    let found = cpu::attention(&q, &k, &v, 0.1, None, sinks, visible)?;
                    let (q, k, v) = (f32(&q)?, f32(&k)?, f32(&v)?);
                    let sinks = sinks.map(f32).transpose()?;
                    let expected =
                        fast::scaled_dot_product_attention(&q, &k, &v, 0.1, mask, sinks.as_ref())?;
                    let expected = heads_beside(&expected)?;
                    assert_eq!((found.shape(), found.dtype()), (expected.shape(), dtype));
                    assert_near(&found.to_vec_f32()?, &expected.to_vec_f32()?, tolerance);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn starts_windows_and_a_softcap_do_what_a_mask_does() -> Result<()> {
    let [q, k, v] = operands(Dtype::F32, [4, 10, 16])?;
    let visible = Visible { starts: &[0, 5], causal: true, window: Some(3) };
    let found = cpu::attention(&q, &k, &v, 0.3, Some(2.0), None, visible)?.to_vec_f32()?;
    let sees = |row: i32, query: i32, key: i32| {
        let own = 6 + query;
        key <= own && key > own - 3 && key >= [0, 5][row as usize]
    };
    let mut mask = Vec::new();
    for row in 0..2 {
        for query in 0..4 {
            mask.extend((0..10).map(|key| if sees(row, query, key) { 0.0 } else { -1e30 }));
        }
    }
    let mask = Array::from_f32(&mask, &[2, 1, 1, 4, 10])?;
    let q = ops::reshape(&ops::multiply(&q, &Array::scalar(0.3, Dtype::F32)?)?, &[2, 3, 2, 4, 16])?;
    let k = ops::swap_axes(&ops::expand_dims(&k, 2)?, -1, -2)?;
    let two = Array::scalar(2.0, Dtype::F32)?;
    let scores = ops::multiply(&ops::tanh(&ops::divide(&ops::matmul(&q, &k)?, &two)?)?, &two)?;
    let weights = ops::softmax(&ops::add(&scores, &mask)?, -1, true)?;
    let expected = ops::matmul(&weights, &ops::expand_dims(&v, 2)?)?;
    let expected = heads_beside(&ops::reshape(&expected, &[2, 6, 4, 16])?)?;
    assert_near(&found, &expected.to_vec_f32()?, 1e-5);
    Ok(())
}

#[test]
fn other_layouts_and_empty_operands_will_do() -> Result<()> {
    let [q, k, v] = operands(Dtype::F32, [3, 8, 16])?;
    let expected = cpu::attention(&q, &k, &v, 0.2, None, None, CAUSAL)?.to_vec_f32()?;
    // The last dimension is not the innermost in memory.
    let turned = |array: &Array| -> Result<Array> {
        let turned =
            ops::multiply(&ops::swap_axes(array, 2, 3)?, &Array::scalar(1.0, Dtype::F32)?)?;
        turned.eval()?;
        ops::swap_axes(&turned, 2, 3)
    };
    let found = cpu::attention(&turned(&q)?, &turned(&k)?, &turned(&v)?, 0.2, None, None, CAUSAL)?;
    assert_eq!(found.to_vec_f32()?, expected);
    let none = ops::zeros(&[2, 3, 0, 16], Dtype::F32)?;
    let found = cpu::attention(&q, &none, &none, 0.2, None, None, CAUSAL)?;
    assert_eq!(found.to_vec_f32()?, [0.0; 2 * 6 * 3 * 16]);
    let no_query = ops::zeros(&[2, 6, 0, 16], Dtype::F32)?;
    assert_eq!(cpu::attention(&no_query, &k, &v, 0.2, None, None, CAUSAL)?.shape(), [2, 0, 96]);
    Ok(())
}

#[test]
fn operands_that_do_not_fit_are_errors_when_the_operation_is_made() -> Result<()> {
    let [q, k, v] = operands(Dtype::F32, [3, 8, 16])?;
    let refused = |q: &Array, k: &Array, v: &Array, sinks: Option<&Array>, starts: &[i32]| {
        let visible = Visible { starts, ..CAUSAL };
        cpu::attention(q, k, v, 0.2, None, sinks, visible).expect_err("refused").to_string()
    };
    let zeros = |shape: &[i32], dtype| ops::zeros(shape, dtype);
    for error in [
        refused(&zeros(&[2, 4, 3, 16], Dtype::F32)?, &k, &v, None, &[]),
        refused(&zeros(&[2, 6, 3, 8], Dtype::F32)?, &k, &v, None, &[]),
        refused(&zeros(&[1, 6, 3, 16], Dtype::F32)?, &k, &v, None, &[]),
        refused(&zeros(&[2, 6, 3, 16], Dtype::F16)?, &k, &v, None, &[]),
        refused(&q, &zeros(&[2, 3, 9, 16], Dtype::F32)?, &v, None, &[]),
        refused(
            &q,
            &zeros(&[2, 0, 8, 16], Dtype::F32)?,
            &zeros(&[2, 0, 8, 16], Dtype::F32)?,
            None,
            &[],
        ),
        refused(&q, &k, &v, Some(&zeros(&[5], Dtype::F32)?), &[]),
        refused(&q, &k, &v, None, &[0]),
    ] {
        assert!(error.contains("do not fit"), "{error}");
    }
    assert!(refused(&zeros(&[6, 16], Dtype::F32)?, &k, &v, None, &[]).contains("4 dimensions"));
    let whole = |array: &Array| ops::astype(array, Dtype::I32);
    let error = refused(&whole(&q)?, &whole(&k)?, &whole(&v)?, None, &[]);
    assert_eq!(error, "the CPU kernels take f32, f16 and bf16 only");
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn attention_on_a_stream_of_the_gpu_is_refused() -> Result<()> {
    let [q, k, v] = operands(Dtype::F32, [3, 8, 16])?;
    use_device(Device::Gpu)?;
    let error = cpu::attention(&q, &k, &v, 0.2, None, None, CAUSAL).expect_err("no CPU stream");
    assert_eq!(error.to_string(), "the CPU kernels need a CPU stream");
    Ok(())
}
