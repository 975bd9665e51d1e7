//! Norms, gates and rotary positions by our own kernels for CPUs, against MLX's.

mod near;

use mlx_ffi::cpu::{self, Activation};
use mlx_ffi::fast::{RopeFrequencies, RopeOffset};
use mlx_ffi::{Array, Device, Dtype, Result, fast, ops, random, use_device};
use near::assert_near;

/// Types with the distance that the last bits of values near 4 make.
const FLOATS: [(Dtype, f32); 3] = [(Dtype::F32, 4e-6), (Dtype::F16, 4e-3), (Dtype::Bf16, 0.04)];

fn normal(shape: &[i32], dtype: Dtype, seed: u64) -> Result<Array> {
    use_device(Device::Cpu)?;
    random::normal(shape, dtype, &random::key(seed)?)
}

/// `[2, 5, 3, 40]`, not row-major.
fn turned(dtype: Dtype) -> Result<Array> {
    ops::swap_axes(&normal(&[2, 3, 5, 40], dtype, 1)?, 1, 2)
}

#[test]
fn a_norm_is_that_of_mlx() -> Result<()> {
    for (dtype, tolerance) in FLOATS {
        let weight = normal(&[40], dtype, 2)?;
        for x in [turned(dtype)?, normal(&[7, 40], dtype, 3)?, normal(&[0, 40], dtype, 3)?] {
            let found = cpu::rms_norm(&x, &weight, 1e-5)?;
            let expected = fast::rms_norm(&x, Some(&weight), 1e-5)?;
            assert_eq!((found.shape(), found.dtype()), (x.shape(), dtype));
            assert_near(&found.to_vec_f32()?, &expected.to_vec_f32()?, tolerance);
        }
    }
    Ok(())
}

#[test]
fn a_gate_is_that_of_its_definition() -> Result<()> {
    for (dtype, tolerance) in FLOATS {
        let (gate, up) = (turned(dtype)?, normal(&[2, 5, 3, 40], dtype, 2)?);
        let (gates, ups) = (gate.to_vec_f32()?, up.to_vec_f32()?);
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let act = |x: f64| match activation {
                Activation::Silu => x / (1.0 + (-x).exp()),
                Activation::GeluTanh => {
                    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                    0.5 * x * (1.0 + inner.tanh())
                }
            };
            let found = cpu::gated(activation, &gate, &up)?;
            assert_eq!((found.shape(), found.dtype()), (gate.shape(), dtype));
            let expected = gates.iter().zip(&ups);
            let expected: Vec<f32> = expected
                .map(|(&gate, &up)| (act(f64::from(gate)) * f64::from(up)) as f32)
                .collect();
            assert_near(&found.to_vec_f32()?, &expected, tolerance);
        }
    }
    Ok(())
}

#[test]
fn rotary_positions_are_those_of_mlx() -> Result<()> {
    let lengths = Array::from_f32(&[1.0, 3.0, 10.0, 40.0, 90.0, 200.0], &[6])?;
    for (dtype, tolerance) in FLOATS {
        let x = turned(dtype)?;
        for (dims, frequencies) in [
            (40, RopeFrequencies::Base(10000.0)),
            (16, RopeFrequencies::Base(1e6)),
            (12, RopeFrequencies::Wavelengths(&lengths)),
        ] {
            for (offset, scale) in [(0, 1.0), (77, 0.25)] {
                let found = cpu::rope(&x, dims, frequencies, scale, &[offset])?;
                let expected = fast::rope(&x, dims, frequencies, scale, RopeOffset::Same(offset))?;
                assert_eq!((found.shape(), found.dtype()), (x.shape(), dtype));
                // At position 80 an angle has lost the last four bits of f32.
                let tolerance = tolerance.max(6e-5);
                assert_near(&found.to_vec_f32()?, &expected.to_vec_f32()?, tolerance);
            }
        }
        // Each row of the batch from its own position on.
        let found = cpu::rope(&x, 40, RopeFrequencies::Base(1e4), 1.0, &[3, 9])?;
        for (row, offset) in [(0, 3), (1, 9)] {
            let part = |array: &Array| ops::slice_axis(array, 0, row, row + 1);
            let alone = cpu::rope(&part(&x)?, 40, RopeFrequencies::Base(1e4), 1.0, &[offset])?;
            assert_eq!(part(&found)?.to_vec_f32()?, alone.to_vec_f32()?);
        }
    }
    Ok(())
}

#[test]
fn a_row_does_not_depend_on_the_other_rows() -> Result<()> {
    for (dtype, _) in FLOATS {
        let (x, up) = (normal(&[1, 1, 300, 96], dtype, 1)?, normal(&[1, 1, 300, 96], dtype, 2)?);
        let weight = normal(&[96], dtype, 3)?;
        let at = |array: &Array, from, to| ops::slice_axis(array, 2, from, to);
        let all = |from, to| -> Result<[Vec<f32>; 3]> {
            let (x, up) = (at(&x, from, to)?, at(&up, from, to)?);
            let base = RopeFrequencies::Base(1e4);
            Ok([
                cpu::rms_norm(&x, &weight, 1e-6)?.to_vec_f32()?,
                cpu::gated(Activation::Silu, &x, &up)?.to_vec_f32()?,
                cpu::rope(&x, 96, base, 1.0, &[from])?.to_vec_f32()?,
            ])
        };
        let whole = all(0, 300)?;
        for row in [0, 1, 150, 299] {
            let place = row as usize * 96..(row as usize + 1) * 96;
            for (whole, alone) in whole.iter().zip(all(row, row + 1)?) {
                assert_eq!(whole[place.clone()], alone, "{dtype:?} {row}");
            }
        }
    }
    Ok(())
}

#[test]
fn operands_that_do_not_fit_are_errors_when_the_operation_is_made() -> Result<()> {
    let (x, weight) = (normal(&[2, 3, 4, 8], Dtype::F32, 1)?, normal(&[8], Dtype::F16, 2)?);
    let text = |result: Result<Array>| result.expect_err("refused").to_string();
    assert!(text(cpu::rms_norm(&x, &weight, 1e-5)).contains("does not fit"));
    assert!(text(cpu::rms_norm(&x, &normal(&[4], Dtype::F32, 2)?, 1e-5)).contains("does not fit"));
    assert!(text(cpu::gated(Activation::Silu, &x, &weight)).contains("does not fit"));
    let base = RopeFrequencies::Base(1e4);
    for (dims, offsets) in [(10, &[0][..]), (7, &[0]), (-2, &[0]), (8, &[]), (8, &[0, 1, 2])] {
        assert!(text(cpu::rope(&x, dims, base, 1.0, offsets)).contains("cannot rotate"));
    }
    let lengths = RopeFrequencies::Wavelengths(&weight);
    assert!(text(cpu::rope(&x, 8, lengths, 1.0, &[0])).contains("cannot rotate"));
    let whole = ops::astype(&x, Dtype::I32)?;
    assert!(text(cpu::gated(Activation::Silu, &whole, &whole)).contains("f32, f16 and bf16"));
    Ok(())
}
