//! Element-wise operations against literal numbers: by hand where they are exact, else from
//! Python's mlx 0.32.2.

use super::near::assert_near;
use mlx_ffi::{Array, Dtype, Result, ops};

/// The inputs of the transcendental functions below.
const X: [f32; 4] = [-2.0, -0.5, 0.0, 1.5];

#[track_caller]
fn assert_unary(op: fn(&Array) -> Result<Array>, dtype: Dtype, expected: &[f32], tolerance: f32) {
    let x = Array::from_f32(&X, &[2, 2]).and_then(|x| ops::astype(&x, dtype)).unwrap_or_else(fail);
    let y = op(&x).unwrap_or_else(fail);
    assert_eq!((y.shape(), y.dtype()), (&[2, 2][..], dtype));
    assert_near(&y.to_vec_f32().unwrap_or_else(fail), expected, tolerance);
}

fn fail<T>(error: mlx_ffi::Error) -> T {
    panic!("{error}")
}

#[test]
fn a_product_with_a_bias_is_rounded_once() {
    let bf16 = |values: &[f32], shape: &[i32]| {
        Array::from_f32(values, shape)
            .and_then(|x| ops::astype(&x, Dtype::Bf16))
            .unwrap_or_else(fail)
    };
    // The product, 1 + 1/256, is half-way between two bf16 numbers; with 1/512 it is nearer to one.
    let (x, w) = (bf16(&[1.0, 0.0625], &[1, 2]), bf16(&[1.0, 0.0625], &[2, 1]));
    let bias = bf16(&[0.001_953_125], &[1]);
    let once = ops::addmm(&bias, &x, &w).unwrap_or_else(fail);
    let product = ops::matmul(&x, &w).unwrap_or_else(fail);
    let twice = ops::add(&product, &bias).unwrap_or_else(fail);
    assert_eq!((once.shape(), once.dtype()), (&[1, 1][..], Dtype::Bf16));
    assert_near(&once.to_vec_f32().unwrap_or_else(fail), &[1.007_812_5], 0.0);
    assert_near(&twice.to_vec_f32().unwrap_or_else(fail), &[1.0], 0.0);
}

#[test]
fn exp_equals_the_literal_in_each_float_type() {
    assert_unary(ops::exp, Dtype::F32, &[0.135_335_28, 0.606_530_67, 1.0, 4.481_689], 2e-6);
    assert_unary(ops::exp, Dtype::F16, &[0.135_375_98, 0.606_445_3, 1.0, 4.480_469], 5e-3);
    assert_unary(ops::exp, Dtype::Bf16, &[0.135_742_19, 0.605_468_75, 1.0, 4.468_75], 4e-2);
}

#[test]
fn tanh_equals_the_literal_in_each_float_type() {
    assert_unary(ops::tanh, Dtype::F32, &[-0.964_027_6, -0.462_117_17, 0.0, 0.905_148_3], 1e-6);
    assert_unary(ops::tanh, Dtype::F16, &[-0.963_867_2, -0.462_158_2, 0.0, 0.905_273_44], 1e-3);
    assert_unary(ops::tanh, Dtype::Bf16, &[-0.964_843_75, -0.462_890_63, 0.0, 0.906_25], 8e-3);
}

#[test]
fn sigmoid_equals_the_literal_in_each_float_type() {
    assert_unary(ops::sigmoid, Dtype::F32, &[0.119_202_93, 0.377_540_68, 0.5, 0.817_574_5], 1e-6);
    assert_unary(ops::sigmoid, Dtype::F16, &[0.119_201_66, 0.377_685_55, 0.5, 0.817_382_8], 1e-3);
    assert_unary(ops::sigmoid, Dtype::Bf16, &[0.119_628_91, 0.376_953_13, 0.5, 0.816_406_25], 8e-3);
}

#[test]
fn abs_and_negative_are_exact() {
    assert_unary(ops::abs, Dtype::Bf16, &[2.0, 0.5, 0.0, 1.5], 0.0);
    assert_unary(ops::negative, Dtype::F16, &[2.0, 0.5, 0.0, -1.5], 0.0);
}

#[test]
fn arithmetic_broadcasts_a_row_against_a_column() -> Result<()> {
    let row = Array::from_f32(&[1.0, 2.0, 4.0], &[1, 3])?;
    let column = Array::from_f32(&[8.0, -2.0], &[2, 1])?;
    let sum = ops::add(&row, &column)?;
    assert_eq!(sum.shape(), [2, 3]);
    assert_eq!(sum.to_vec_f32()?, [9.0, 10.0, 12.0, -1.0, 0.0, 2.0]);
    let difference = ops::subtract(&row, &column)?.to_vec_f32()?;
    assert_eq!(difference, [-7.0, -6.0, -4.0, 3.0, 4.0, 6.0]);
    let product = ops::multiply(&row, &column)?.to_vec_f32()?;
    assert_eq!(product, [8.0, 16.0, 32.0, -2.0, -4.0, -8.0]);
    let quotient = ops::divide(&row, &column)?.to_vec_f32()?;
    assert_eq!(quotient, [0.125, 0.25, 0.5, -0.5, -1.0, -2.0]);
    assert_eq!(ops::maximum(&row, &column)?.to_vec_f32()?, [8.0, 8.0, 8.0, 1.0, 2.0, 4.0]);
    let cubes = ops::power(&row, &Array::scalar(3.0, Dtype::F32)?)?;
    assert_eq!(cubes.to_vec_f32()?, [1.0, 8.0, 64.0]);
    assert_eq!(ops::minimum(&row, &column)?.to_vec_f32()?, [1.0, 2.0, 4.0, -2.0, -2.0, -2.0]);
    Ok(())
}

#[test]
fn integers_divide_into_floats() -> Result<()> {
    let (a, b) = (Array::from_i32(&[7, -7], &[2])?, Array::from_i32(&[2], &[1])?);
    let quotient = ops::divide(&a, &b)?;
    assert_eq!((quotient.dtype(), quotient.to_vec_f32()?), (Dtype::F32, vec![3.5, -3.5]));
    Ok(())
}

#[test]
fn types_promote_as_in_mlx() -> Result<()> {
    let one = |dtype| Array::scalar(1.0, dtype);
    for (a, b, expected) in [
        (Dtype::I32, Dtype::F16, Dtype::F16),
        (Dtype::Bf16, Dtype::F16, Dtype::F32),
        (Dtype::Bf16, Dtype::F32, Dtype::F32),
        (Dtype::Bool, Dtype::U8, Dtype::U8),
    ] {
        let sum = ops::add(&one(a)?, &one(b)?)?;
        assert_eq!((sum.dtype(), sum.item_f32()?), (expected, 2.0), "{a:?} + {b:?}");
    }
    Ok(())
}

#[test]
fn bf16_sums_round_to_eight_bits() -> Result<()> {
    let bf16 = |values: &[f32]| ops::astype(&Array::from_f32(values, &[2])?, Dtype::Bf16);
    let sum = ops::add(&bf16(&[1.0, 256.0])?, &bf16(&[0.003_906_25, 1.0])?)?;
    assert_eq!(sum.to_vec_f32()?, [1.0, 256.0]);
    Ok(())
}

#[test]
fn comparisons_give_truth_values() -> Result<()> {
    let a = Array::from_f32(&[1.0, 2.0, 3.0, f32::NAN], &[4])?;
    let two = Array::scalar(2.0, Dtype::F32)?;
    for (result, expected) in [
        (ops::less(&a, &two)?, [1, 0, 0, 0]),
        (ops::greater(&a, &two)?, [0, 0, 1, 0]),
        (ops::greater_equal(&a, &two)?, [0, 1, 1, 0]),
        (ops::logical_and(&ops::greater(&a, &two)?, &ops::less(&two, &a)?)?, [0, 0, 1, 0]),
    ] {
        assert_eq!((result.dtype(), result.to_vec_u32()?), (Dtype::Bool, expected.to_vec()));
    }
    Ok(())
}

#[test]
fn where_picks_from_both_and_promotes() -> Result<()> {
    let condition = Array::from_bytes(&[1, 0], &[2], Dtype::Bool)?;
    let x = Array::from_i32(&[1], &[1])?;
    let y = Array::from_f32(&[0.5, 0.25], &[2])?;
    let picked = ops::where_(&condition, &x, &y)?;
    assert_eq!((picked.dtype(), picked.to_vec_f32()?), (Dtype::F32, vec![1.0, 0.25]));
    Ok(())
}

#[test]
fn matmul_broadcasts_the_leading_dimensions() -> Result<()> {
    let a = Array::from_f32(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 1, 3])?;
    let b = Array::from_f32(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], &[3, 2])?;
    let product = ops::matmul(&a, &b)?;
    assert_eq!(product.shape(), [2, 1, 2]);
    assert_eq!(product.to_vec_f32()?, [4.0, 5.0, 10.0, 11.0]);
    let half = ops::matmul(&ops::astype(&a, Dtype::Bf16)?, &ops::astype(&b, Dtype::Bf16)?)?;
    assert_eq!((half.dtype(), half.to_vec_f32()?), (Dtype::Bf16, vec![4.0, 5.0, 10.0, 11.0]));
    Ok(())
}

#[test]
fn matmul_over_an_empty_inner_dimension_is_zero() -> Result<()> {
    let a = ops::zeros(&[2, 0], Dtype::F32)?;
    let b = ops::zeros(&[0, 3], Dtype::F32)?;
    assert_eq!(ops::matmul(&a, &b)?.to_vec_f32()?, [0.0; 6]);
    Ok(())
}

#[test]
fn empty_arrays_pass_through() -> Result<()> {
    let empty = ops::zeros(&[0, 3], Dtype::F32)?;
    for result in [ops::exp(&empty)?, ops::add(&empty, &Array::scalar(1.0, Dtype::F32)?)?] {
        assert_eq!((result.shape(), result.to_vec_f32()?), (&[0, 3][..], vec![]));
    }
    Ok(())
}
