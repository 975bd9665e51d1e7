//! Each kind of error comes back as a value with MLX's own account of it, and leaves nothing
//! behind: the next good call works, and the next error speaks of itself.

use mlx_ffi::fast::{
    AttentionMask, RopeFrequencies, RopeOffset, RopeRange, rms_norm, rope,
    scaled_dot_product_attention,
};
use mlx_ffi::ops::Cumulative;
use mlx_ffi::{
    Array, Device, Dtype, Error, Indices, QuantMode, Quantization, Result, eval_all, ops, quantize,
    random, use_device,
};

/// Asserts that the call failed for the reason given, and that a good call and another error
/// work after it.
#[track_caller]
fn assert_fails<T: std::fmt::Debug>(result: Result<T>, part_of_the_text: &str) {
    let error: Error = result.expect_err("the call must fail");
    assert!(error.to_string().contains(part_of_the_text), "{error}");
    assert!(!error.to_string().contains(".cpp"), "{error}");
    let two = Array::scalar(1.0, Dtype::F32).and_then(|one| ops::add(&one, &one)?.item_f32());
    assert_eq!(two, Ok(2.0));
    let other = Array::from_f32(&[1.0], &[1]).and_then(|one| ops::squeeze(&one, 4));
    let other = other.expect_err("there is no axis 4").to_string();
    assert!(other.contains('4') && other != error.to_string(), "{other}");
}

fn zeros(shape: &[i32]) -> Result<Array> {
    ops::zeros(shape, Dtype::F32)
}

#[test]
fn shapes_that_do_not_broadcast() -> Result<()> {
    let (a, b) = (zeros(&[2, 3])?, zeros(&[4])?);
    assert_fails(ops::add(&a, &b), "(2,3) and (4)");
    assert_fails(ops::where_(&a, &a, &b), "(4)");
    assert_fails(ops::broadcast_to(&a, &[3, 2]), "(2,3)");
    Ok(())
}

#[test]
fn matrices_that_do_not_fit() -> Result<()> {
    assert_fails(ops::matmul(&zeros(&[2, 3])?, &zeros(&[2, 3])?), "[matmul]");
    assert_fails(ops::matmul(&zeros(&[])?, &zeros(&[2])?), "[matmul]");
    let integers = Array::from_i32(&[1], &[1, 1])?;
    assert_fails(ops::matmul(&integers, &integers), "[matmul]");
    Ok(())
}

#[test]
fn shapes_with_other_sizes() -> Result<()> {
    let a = zeros(&[2, 3])?;
    assert_fails(ops::reshape(&a, &[4]), "[reshape]");
    assert_fails(ops::reshape(&a, &[-1, 4]), "[reshape]");
    assert_fails(ops::reshape(&a, &[-1, -1]), "[reshape]");
    assert_fails(ops::reshape(&zeros(&[0])?, &[0, -1]), "[reshape]");
    // MLX itself would take this for six elements.
    assert_fails(ops::reshape(&a, &[-2, -3]), "[-2, -3]");
    Ok(())
}

#[test]
fn negative_and_overflowing_dimensions() -> Result<()> {
    let key = random::key(0)?;
    let one = zeros(&[1])?;
    for shape in [&[-1][..], &[2, -1]] {
        assert_fails(zeros(shape), "Negative dimensions");
        assert_fails(ops::broadcast_to(&one, shape), "Negative dimensions");
        assert_fails(random::uniform(shape, &key), "Negative dimensions");
        assert_fails(random::normal(shape, Dtype::F32, &key), "Negative dimensions");
        assert_fails(Array::from_f32(&[], shape), "0 bytes given");
    }
    // 2⁶⁴ elements: MLX itself would count none.
    for shape in [&[1 << 16; 4][..], &[i32::MAX, i32::MAX, 2], &[-7]] {
        assert_fails(zeros(shape), "no array can have the shape");
        assert_fails(ops::broadcast_to(&one, shape), "no array can have the shape");
        assert_fails(ops::reshape(&zeros(&[0])?, shape), "no array can have the shape");
        assert_fails(random::uniform(shape, &key), "no array can have the shape");
        assert_fails(random::normal(shape, Dtype::F32, &key), "no array can have the shape");
        assert_fails(Array::from_f32(&[], shape), "0 bytes given");
    }
    assert_fails(ops::arange(i32::MIN, i32::MAX, Dtype::U8), "[arange]");
    assert_fails(ops::arange(0, 2, Dtype::Bool), "arange");
    Ok(())
}

#[test]
fn bytes_that_do_not_fill_the_shape() {
    assert_fails(
        Array::from_f32(&[1.0, 2.0], &[3]),
        "8 bytes given for an array of shape [3] and type F32",
    );
    assert_fails(Array::from_bytes(&[0; 3], &[2], Dtype::Bf16), "3 bytes given");
    assert_fails(Array::from_bytes(&[0, 1, 2], &[3], Dtype::Bool), "neither 0 nor 1");
}

#[test]
fn axes_that_are_not_there() -> Result<()> {
    let a = zeros(&[2, 3])?;
    let indices = Indices::from_u32(&[0], &[1, 1])?;
    for axis in [2, -3, i32::MIN, i32::MAX] {
        let text = &axis.to_string();
        assert_fails(ops::sum(&a, axis, false), text);
        assert_fails(ops::max(&a, axis, false), text);
        assert_fails(ops::argmax(&a, axis, false), text);
        assert_fails(ops::logsumexp(&a, axis, false), text);
        assert_fails(ops::softmax(&a, axis, true), text);
        assert_fails(ops::sort(&a, axis), text);
        assert_fails(ops::argsort(&a, axis), text);
        assert_fails(ops::argpartition(&a, 0, axis), text);
        assert_fails(ops::cumsum(&a, axis, Cumulative::Forward), text);
        assert_fails(ops::swap_axes(&a, 0, axis), text);
        assert_fails(ops::concatenate(&[&a, &a], axis), text);
        assert_fails(ops::take(&a, &indices, axis), text);
        assert_fails(ops::take_along_axis(&a, &indices, axis), text);
        assert_fails(ops::put_along_axis(&a, &indices, &a, axis), text);
        assert_fails(ops::scatter_add_axis(&a, &indices, &a, axis), text);
        assert_fails(ops::slice_axis(&a, axis, 0, 1), text);
        assert_fails(random::categorical(&a, axis, &random::key(0)?), text);
    }
    assert_fails(ops::expand_dims(&a, 5), "5");
    assert_fails(ops::squeeze(&a, 0), "size 2");
    Ok(())
}

#[test]
fn bounds_that_are_not_within_the_axis() -> Result<()> {
    let a = zeros(&[2, 3])?;
    let update = zeros(&[1])?;
    for (start, stop) in [(0, 4), (-1, 2), (2, 1), (4, 4), (0, i32::MAX)] {
        let text = format!("no slice {start}..{stop} along axis -1 of [2, 3]");
        assert_fails(ops::slice_axis(&a, -1, start, stop), &text);
        assert_fails(ops::slice_update_axis(&a, &update, -1, start, stop), &text);
    }
    assert_fails(ops::slice_update_axis(&a, &zeros(&[5])?, 1, 0, 2), "(5)");
    assert_fails(ops::slice_axis(&zeros(&[])?, 0, 0, 0), "of []");
    Ok(())
}

#[test]
fn joins_and_gathers_that_do_not_fit() -> Result<()> {
    let (a, b) = (zeros(&[2, 3])?, zeros(&[3, 3])?);
    assert_fails(ops::concatenate(&[&a, &b], 1), "[concatenate]");
    assert_fails(ops::concatenate(&[&a, &zeros(&[2])?], 0), "[concatenate]");
    assert_fails(ops::concatenate(&[], 0), "[concatenate]");
    let zero = Indices::from_u32(&[0], &[1])?;
    assert_fails(ops::take(&zeros(&[0, 2])?, &zero, 0), "[take]");
    assert_fails(ops::take_along_axis(&a, &zero, 0), "[take_along_axis]");
    assert_fails(ops::argpartition(&a, 3, -1), "[argpartition]");
    assert_fails(ops::view(&Array::from_bytes(&[0; 3], &[3], Dtype::U8)?, Dtype::U16), "[view]");
    assert_fails(ops::negative(&Array::from_bytes(&[1], &[1], Dtype::Bool)?), "[negative]");
    Ok(())
}

#[test]
fn fused_operations_on_shapes_that_do_not_fit() -> Result<()> {
    let x = zeros(&[1, 2, 3, 4])?;
    assert_fails(rms_norm(&x, Some(&zeros(&[3])?), 1e-5), "[rms_norm]");
    assert_fails(rms_norm(&zeros(&[])?, None, 1e-5), "[rms_norm]");
    let base = RopeFrequencies::Base(1e4);
    for dims in [0, -2, 3, 8] {
        for range in [RopeRange::Halves(dims), RopeRange::Neighbours(dims)] {
            assert_fails(rope(&x, range, base, 1.0, RopeOffset::Same(0)), "[rope]");
        }
    }
    let range = RopeRange::Halves(4);
    assert_fails(rope(&zeros(&[4])?, range, base, 1.0, RopeOffset::Same(0)), "[rope]");
    let frequencies = zeros(&[3])?;
    assert_fails(
        rope(&x, range, RopeFrequencies::Wavelengths(&frequencies), 1.0, RopeOffset::Same(0)),
        "[rope]",
    );
    Ok(())
}

#[test]
fn attention_on_shapes_that_do_not_fit() -> Result<()> {
    let attend = |q: &[i32], k: &[i32], v: &[i32], mask: Option<&[i32]>, sinks: Option<&[i32]>| {
        let mask = mask.map(zeros).transpose()?;
        let sinks = sinks.map(zeros).transpose()?;
        let mask = mask.as_ref().map_or(AttentionMask::None, AttentionMask::Array);
        scaled_dot_product_attention(&zeros(q)?, &zeros(k)?, &zeros(v)?, 1.0, mask, sinks.as_ref())
    };
    let q = &[1, 4, 2, 8][..];
    let text = "[scaled_dot_product_attention]";
    assert_fails(attend(&[2, 8], &[2, 8], &[2, 8], None, None), text);
    assert_fails(attend(q, &[1, 3, 2, 8], &[1, 3, 2, 8], None, None), text);
    assert_fails(attend(q, &[1, 4, 2, 6], &[1, 4, 2, 6], None, None), text);
    assert_fails(attend(q, &[2, 4, 2, 8], &[2, 4, 2, 8], None, None), text);
    assert_fails(attend(q, q, &[1, 4, 3, 8], None, None), "");
    assert_fails(attend(q, q, q, Some(&[3, 3]), None), "(3,3)");
    assert_fails(attend(q, q, q, None, Some(&[3])), "sinks");
    // MLX itself would divide by zero.
    assert_fails(attend(q, &[1, 0, 2, 8], &[1, 0, 2, 8], None, None), "no heads");
    Ok(())
}

#[test]
fn items_of_other_than_one_element() -> Result<()> {
    assert_fails(zeros(&[2])?.item_f32(), "found an array of shape [2]");
    assert_fails(zeros(&[0])?.item_u32(), "found an array of shape [0]");
    assert_eq!(zeros(&[1, 1])?.item_f32()?, 0.0);
    Ok(())
}

#[test]
fn keys_that_are_none() -> Result<()> {
    let a = zeros(&[3])?;
    assert_fails(random::uniform(&[1], &a), "key");
    assert_fails(random::categorical(&a, 0, &a), "key");
    assert_fails(random::split(&a), "key");
    assert_fails(random::normal(&[1], Dtype::I32, &random::key(0)?), "[normal]");
    Ok(())
}

/// A quantisation that nothing refuses before its kernel runs.
fn fails_in_its_kernel() -> Result<Array> {
    let affine = Quantization { mode: QuantMode::Affine, bits: 4, group_size: 64 };
    Ok(quantize(&ops::zeros(&[2, 64], Dtype::F64)?, affine)?.weight)
}

#[test]
fn failures_of_a_kernel_surface_where_the_value_is_awaited() -> Result<()> {
    const TEXT: &str = "Only supports floating point inputs";
    use_device(Device::Cpu)?;
    assert_fails(fails_in_its_kernel()?.eval(), TEXT);
    assert_fails(eval_all([&fails_in_its_kernel()?]), TEXT);
    Ok(())
}
