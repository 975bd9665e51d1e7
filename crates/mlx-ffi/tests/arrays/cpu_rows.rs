//! Norms, rotations and gates by our own kernels for CPUs, against MLX's.

use super::near::assert_near;
use mlx_ffi::cpu;
use mlx_ffi::fast::{RopeFrequencies, RopeOffset};
use mlx_ffi::{Activation, Array, Device, Dtype, Result, fast, ops, random, use_device};

const TYPES: [(Dtype, f32); 3] = [(Dtype::F32, 1e-5), (Dtype::F16, 8e-3), (Dtype::Bf16, 0.06)];

fn normal(shape: &[i32], dtype: Dtype, seed: u64) -> Result<Array> {
    use_device(Device::Cpu)?;
    random::normal(shape, dtype, &random::key(seed)?)
}

#[track_caller]
fn assert_alike(found: &Array, expected: &Array, tolerance: f32) -> Result<()> {
    assert_eq!((found.shape(), found.dtype()), (expected.shape(), expected.dtype()));
    let values = |array| ops::astype(array, Dtype::F32)?.to_vec_f32();
    assert_near(&values(found)?, &values(expected)?, tolerance);
    Ok(())
}

#[test]
fn a_norm_is_that_of_mlx_in_any_layout() -> Result<()> {
    for (dtype, tolerance) in TYPES {
        let weight = normal(&[48], dtype, 1)?;
        let x = normal(&[2, 3, 5, 48], dtype, 2)?;
        let wide = normal(&[3, 100], dtype, 3)?;
        let slice = ops::slice_axis(&wide, 1, 7, 55)?;
        let turned = ops::swap_axes(&normal(&[48, 4], dtype, 4)?, 0, 1)?;
        let vector = normal(&[48], dtype, 5)?;
        for x in [&x, &ops::swap_axes(&x, 0, 2)?, &slice, &turned, &vector] {
            let expected = fast::rms_norm(x, Some(&weight), 1e-5)?;
            assert_alike(&cpu::rms_norm(x, &weight, 1e-5)?, &expected, tolerance)?;
        }
        let empty = ops::zeros(&[0, 48], dtype)?;
        assert_eq!(cpu::rms_norm(&empty, &weight, 1e-5)?.to_vec_f32().unwrap_or_default(), []);
    }
    Ok(())
}

#[test]
fn a_layer_norm_is_that_of_mlx_with_and_without_a_bias() -> Result<()> {
    for (dtype, tolerance) in TYPES {
        let [weight, bias] = [normal(&[48], dtype, 1)?, normal(&[48], dtype, 6)?];
        let x = normal(&[2, 3, 5, 48], dtype, 2)?;
        for x in [&x, &ops::swap_axes(&x, 0, 2)?] {
            for bias in [None, Some(&bias)] {
                let expected = fast::layer_norm(x, Some(&weight), bias, 1e-5)?;
                assert_alike(&cpu::layer_norm(x, &weight, bias, 1e-5)?, &expected, tolerance)?;
            }
        }
        let short = normal(&[47], dtype, 1)?;
        assert!(cpu::layer_norm(&x, &short, None, 1e-5).is_err());
        assert!(cpu::layer_norm(&x, &weight, Some(&short), 1e-5).is_err());
    }
    Ok(())
}

/// Cosines, then sines, of 16 pairs at each position of each row.
fn turns(firsts: &[i32], l: i32) -> Result<Array> {
    let mut values: Vec<f32> = Vec::new();
    for position in firsts.iter().flat_map(|first| *first..*first + l) {
        let angle = |i: i32| f64::from(position) / 10_000.0_f64.powf(f64::from(i) / 16.0);
        values.extend((0..16).map(|i| angle(i).cos() as f32));
        values.extend((0..16).map(|i| angle(i).sin() as f32));
    }
    Array::from_f32(&values, &[firsts.len() as i32, l, 32])
}

#[test]
fn heads_are_normed_and_rotated_as_by_mlx() -> Result<()> {
    for (dtype, tolerance) in TYPES {
        let x = normal(&[2, 5, 3 * 40], dtype, 1)?;
        let weight = normal(&[40], dtype, 2)?;
        for firsts in [&[9][..], &[3, 200]] {
            for norm in [None, Some((&weight, 1e-6))] {
                let found = cpu::heads(&x, 0..120, 40, norm, Some(&turns(firsts, 5)?))?;
                let heads = ops::reshape(&x, &[2, 5, 3, 40])?;
                let heads = match norm {
                    Some((weight, eps)) => fast::rms_norm(&heads, Some(weight), eps)?,
                    None => heads,
                };
                let heads = ops::swap_axes(&heads, 1, 2)?;
                let each = Array::from_i32(&[3, 200], &[2])?;
                let offset = match firsts {
                    [first] => RopeOffset::Same(*first),
                    _ => RopeOffset::Each(&each),
                };
                let base = RopeFrequencies::Base(10_000.0);
                let expected = fast::rope(&heads, fast::RopeRange::Halves(32), base, 1.0, offset)?;
                assert_alike(&found, &expected, 3.0 * tolerance)?;
                // Its layout in memory is that of heads beside each other.
                let both = [&found, &expected].map(|x| ops::swap_axes(x, 1, 2));
                let [found, expected] = both.map(|x| ops::reshape(&x?, &[2, 5, 120]));
                assert_alike(&found?, &expected?, 3.0 * tolerance)?;
            }
        }
        let plain = ops::swap_axes(&ops::reshape(&x, &[2, 5, 3, 40])?, 1, 2)?;
        assert_alike(&cpu::heads(&x, 0..120, 40, None, None)?, &plain, 0.0)?;
        // Heads among other columns are those of an array of these columns alone.
        let norm = Some((&weight, 1e-6));
        let part = ops::slice_axis(&x, -1, 30, 110)?;
        let found = cpu::heads(&x, 30..110, 40, norm, Some(&turns(&[9], 5)?))?;
        let expected = cpu::heads(&part, 0..80, 40, norm, Some(&turns(&[9], 5)?))?;
        assert_alike(&found, &expected, 0.0)?;
    }
    Ok(())
}

#[test]
fn a_gate_is_that_of_mlx_over_halves_of_a_matrix() -> Result<()> {
    for (dtype, tolerance) in TYPES {
        let both = normal(&[2, 3, 80], dtype, 1)?;
        let (gate, up) = (ops::slice_axis(&both, -1, 0, 40)?, ops::slice_axis(&both, -1, 40, 80)?);
        let expected = ops::multiply(&ops::multiply(&gate, &ops::sigmoid(&gate)?)?, &up)?;
        let found = cpu::gated(Activation::Silu, (&both, 0..40), (&both, 40..80))?;
        assert_alike(&found, &expected, 2.0 * tolerance)?;
        let apart = cpu::gated(Activation::Silu, (&gate, 0..40), (&up, 0..40))?;
        assert_alike(&apart, &found, 0.0)?;
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let x = normal(&[2, 5, 120], Dtype::F32, 1)?;
    let weight = normal(&[40], Dtype::F32, 2)?;
    let half = ops::astype(&weight, Dtype::Bf16)?;
    assert!(cpu::rms_norm(&x, &weight, 1e-5).is_err());
    assert!(cpu::rms_norm(&ops::astype(&x, Dtype::I32)?, &weight, 1e-5).is_err());
    assert!(cpu::heads(&x, 0..120, 40, Some((&half, 1e-5)), None).is_err());
    assert!(cpu::heads(&x, 0..120, 50, None, None).is_err());
    assert!(cpu::heads(&x, 0..120, 0, None, None).is_err());
    assert!(cpu::heads(&x, 0..120, 40, None, Some(&turns(&[0, 1, 2], 5)?)).is_err());
    assert!(cpu::heads(&x, 0..120, 40, None, Some(&turns(&[0], 4)?)).is_err());
    assert!(cpu::heads(&x, 0..120, 24, None, Some(&turns(&[0], 5)?)).is_err());
    let backwards = std::ops::Range { start: 80, end: 40 };
    for columns in [-40..40, 40..160, 120..160, backwards, i32::MIN..i32::MAX] {
        assert!(cpu::heads(&x, columns, 40, None, None).is_err());
    }
    let gated = |gate, up| cpu::gated(Activation::Silu, gate, up);
    assert!(gated((&x, 0..40), (&weight, 0..40)).is_err());
    assert!(gated((&weight, 0..40), (&half, 0..40)).is_err());
    assert!(gated((&x, 0..40), (&x, 40..79)).is_err());
    assert!(gated((&x, 0..40), (&x, 81..121)).is_err());
    assert!(gated((&x, -40..0), (&x, 0..40)).is_err());
    Ok(())
}
