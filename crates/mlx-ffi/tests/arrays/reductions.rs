//! Reductions, sorts and running sums against literal numbers: by hand where they are exact,
//! else from Python's mlx 0.32.2.

use super::near::assert_near;
use mlx_ffi::ops::Cumulative;
use mlx_ffi::{Array, Dtype, Result, ops};

fn table() -> Result<Array> {
    Array::from_f32(&[3.0, 1.0, 2.0, -1.0, 5.0, 5.0], &[2, 3])
}

#[test]
fn sums_and_extremes_reduce_one_axis() -> Result<()> {
    let a = table()?;
    assert_eq!(ops::sum(&a, 0, false)?.to_vec_f32()?, [2.0, 6.0, 7.0]);
    assert_eq!(ops::max(&a, -1, false)?.to_vec_f32()?, [3.0, 5.0]);
    assert_eq!(ops::min(&a, -2, false)?.to_vec_f32()?, [-1.0, 1.0, 2.0]);
    assert_eq!(ops::sum(&a, 1, true)?.shape(), [2, 1]);
    assert_eq!(ops::sum(&a, 1, false)?.shape(), [2]);
    Ok(())
}

#[test]
fn argmax_is_the_first_of_equals() -> Result<()> {
    let found = ops::argmax(&table()?, -1, false)?;
    assert_eq!((found.dtype(), found.to_vec_u32()?), (Dtype::U32, vec![0, 1]));
    assert_eq!(ops::argmax(&table()?, 0, true)?.shape(), [1, 3]);
    Ok(())
}

#[test]
fn max_reports_nan_and_argmax_skips_it() -> Result<()> {
    let a = Array::from_f32(&[1.0, f32::NAN, 3.0], &[3])?;
    assert!(ops::max(&a, 0, false)?.item_f32()?.is_nan());
    assert_eq!(ops::argmax(&a, 0, false)?.item_u32()?, 2);
    Ok(())
}

#[test]
fn small_integers_add_up_in_32_bits() -> Result<()> {
    let sum = ops::sum(&Array::from_bytes(&[100, 100], &[2], Dtype::I8)?, 0, false)?;
    assert_eq!((sum.dtype(), sum.item_f32()?), (Dtype::I32, 200.0));
    Ok(())
}

#[test]
fn logsumexp_and_softmax_equal_the_literals() -> Result<()> {
    let a = Array::from_f32(&[0.0, 1.0, 2.0, 3.0, 3.0, 3.0], &[2, 3])?;
    let lse = ops::logsumexp(&a, -1, false)?.to_vec_f32()?;
    assert_near(&lse, &[2.407_606, 4.098_612_4], 1e-6);
    let third = 1.0 / 3.0;
    let rows = ops::softmax(&a, -1, true)?.to_vec_f32()?;
    assert_near(&rows, &[0.090_030_57, 0.244_728_48, 0.665_240_94, third, third, third], 1e-6);
    let columns = ops::softmax(&a, 0, false)?.to_vec_f32()?;
    let expected = [0.047_425_88, 0.119_202_92, 0.268_941_43, 0.952_574_1, 0.880_797, 0.731_058_6];
    assert_near(&columns, &expected, 1e-6);
    Ok(())
}

#[test]
fn softmax_keeps_half_types_and_huge_logits_finite() -> Result<()> {
    let a = ops::astype(&Array::from_f32(&[0.0, 1.0, 2.0], &[3])?, Dtype::Bf16)?;
    let soft = ops::softmax(&a, 0, true)?;
    assert_eq!(soft.dtype(), Dtype::Bf16);
    assert_near(&soft.to_vec_f32()?, &[0.089_843_75, 0.245_117_19, 0.664_062_5], 4e-3);
    let huge = Array::from_f32(&[1e4, 0.0, f32::NEG_INFINITY], &[3])?;
    assert_eq!(ops::softmax(&huge, 0, false)?.to_vec_f32()?, [1.0, 0.0, 0.0]);
    let lse = ops::logsumexp(&ops::astype(&a, Dtype::F16)?, 0, false)?;
    assert_eq!(lse.dtype(), Dtype::F16);
    assert_near(&lse.to_vec_f32()?, &[2.408_203], 3e-3);
    Ok(())
}

#[test]
fn sort_and_argsort_go_upwards_along_an_axis() -> Result<()> {
    let a = table()?;
    assert_eq!(ops::sort(&a, -1)?.to_vec_f32()?, [1.0, 2.0, 3.0, -1.0, 5.0, 5.0]);
    assert_eq!(ops::sort(&a, 0)?.to_vec_f32()?, [-1.0, 1.0, 2.0, 3.0, 5.0, 5.0]);
    let order = ops::argsort(&a, 1)?;
    assert_eq!((order.dtype(), order.to_vec_u32()?), (Dtype::U32, vec![1, 2, 0, 0, 1, 2]));
    Ok(())
}

#[test]
fn argpartition_puts_the_kth_at_its_place() -> Result<()> {
    let values = [5.0, 1.0, 4.0, 2.0, 3.0];
    let order = ops::argpartition(&Array::from_f32(&values, &[5])?, 2, -1)?.to_vec_u32()?;
    assert_eq!(order[2], 4);
    let mut smaller = order[..2].to_vec();
    smaller.sort_unstable();
    assert_eq!(smaller, [1, 3]);
    Ok(())
}

#[test]
fn cumsum_runs_forward_or_backward_without_itself() -> Result<()> {
    let a = table()?;
    let forward = ops::cumsum(&a, -1, Cumulative::Forward)?.to_vec_f32()?;
    assert_eq!(forward, [3.0, 4.0, 6.0, -1.0, 4.0, 9.0]);
    let backward = ops::cumsum(&a, 1, Cumulative::ReverseExclusive)?.to_vec_f32()?;
    assert_eq!(backward, [3.0, 2.0, 0.0, 10.0, 5.0, 0.0]);
    let down = ops::cumsum(&a, 0, Cumulative::Forward)?.to_vec_f32()?;
    assert_eq!(down, [3.0, 1.0, 2.0, 2.0, 6.0, 7.0]);
    let truths = Array::from_bytes(&[1, 1, 0], &[3], Dtype::Bool)?;
    assert_eq!(ops::cumsum(&truths, 0, Cumulative::Forward)?.to_vec_u32()?, [1, 2, 2]);
    let rows = ops::reshape(&a, &[2, 1, 3, 1])?;
    let inner = ops::cumsum(&rows, 2, Cumulative::Forward)?;
    assert_eq!((inner.shape(), inner.to_vec_f32()?), (&[2, 1, 3, 1][..], forward));
    assert_eq!(ops::cumsum(&rows, 1, Cumulative::Forward)?.to_vec_f32()?, a.to_vec_f32()?);
    let none = ops::cumsum(&rows, -1, Cumulative::ReverseExclusive)?.to_vec_f32()?;
    assert_eq!(none, [0.0; 6]);
    ops::cumsum(&a, 2, Cumulative::Forward).expect_err("no third axis");
    Ok(())
}

#[test]
fn an_empty_sum_is_zero_and_an_empty_maximum_an_error() -> Result<()> {
    let empty = ops::zeros(&[0], Dtype::F32)?;
    assert_eq!(ops::sum(&empty, 0, false)?.item_f32()?, 0.0);
    assert_eq!(ops::softmax(&empty, 0, false)?.to_vec_f32()?, []);
    for result in [
        ops::max(&empty, 0, false),
        ops::logsumexp(&empty, 0, false),
        // MLX itself divides by zero in these.
        ops::sort(&empty, 0),
        ops::cumsum(&empty, 0, Cumulative::Forward),
        ops::cumsum(&ops::zeros(&[3, 0], Dtype::F32)?, 0, Cumulative::Forward),
    ] {
        result.expect_err("nothing to choose from");
    }
    for result in [
        ops::argmax(&empty, 0, false),
        ops::argpartition(&empty, 0, 0),
        // MLX itself divides by zero in this one.
        ops::argsort(&empty, 0),
    ] {
        result.expect_err("nothing to choose from");
    }
    Ok(())
}
