//! Quantised weights. The packed words of the small cases follow from the formats by hand; the
//! rounded values are from Python's mlx 0.32.2.

use super::near::assert_near;
use mlx_ffi::{
    Array, Dtype, Indices, QuantMode, Quantization, Quantized, Result, dequantize, gather_qmm, ops,
    quantize, quantized_matmul, random,
};

const AFFINE_4: Quantization = Quantization { mode: QuantMode::Affine, bits: 4, group_size: 32 };
const MXFP4: Quantization = Quantization { mode: QuantMode::Mxfp4, bits: 4, group_size: 32 };
const MXFP8: Quantization = Quantization { mode: QuantMode::Mxfp8, bits: 8, group_size: 32 };
const NVFP4: Quantization = Quantization { mode: QuantMode::Nvfp4, bits: 4, group_size: 16 };

/// All values of the e2m1 format, in the order of their codes.
const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

fn every_quantization() -> Vec<Quantization> {
    let affine = [2, 3, 4, 5, 6, 8].into_iter().flat_map(|bits| {
        [32, 64, 128].map(|group_size| Quantization { mode: QuantMode::Affine, bits, group_size })
    });
    affine.chain([MXFP4, MXFP8, NVFP4]).collect()
}

fn normal(shape: &[i32], dtype: Dtype, seed: u64) -> Result<Array> {
    random::normal(shape, dtype, &random::key(seed)?)
}

#[test]
fn affine_packs_codes_from_the_low_bits_up() -> Result<()> {
    let values: Vec<f32> = (0..32).map(|i| (i % 16) as f32 * 0.5 - 4.0).collect();
    let w = quantize(&Array::from_f32(&values, &[1, 32])?, AFFINE_4)?;
    let words = [0x7654_3210, 0xfedc_ba98, 0x7654_3210, 0xfedc_ba98];
    assert_eq!((w.weight.shape(), w.weight.to_vec_u32()?), (&[1, 4][..], words.to_vec()));
    assert_eq!((w.scales.shape(), w.scales.item_f32()?), (&[1, 1][..], 0.5));
    assert_eq!(w.biases.as_ref().map(Array::item_f32).transpose()?, Some(-4.0));
    assert_eq!(dequantize(&w, Dtype::F32)?.to_vec_f32()?, values);
    Ok(())
}

#[test]
fn affine_rounds_to_the_literal_at_each_width() -> Result<()> {
    let values: Vec<f32> = (0..32).map(|i| (i * i % 13) as f32 * 0.25 - 1.5).collect();
    let w = Array::from_f32(&values, &[1, 32])?;
    for (bits, expected) in [
        (2, [-0.75, -0.75, -0.75, 0.75, -0.75, 1.5]),
        (3, [-1.125, -1.125, -0.375, 0.75, -0.75, 1.5]),
        (4, [-1.312_5, -1.312_5, -0.562_5, 0.75, -0.75, 1.5]),
        (5, [-1.406_25, -1.218_75, -0.468_75, 0.75, -0.75, 1.5]),
        (6, [-1.453_125, -1.265_625, -0.515_625, 0.75, -0.75, 1.5]),
        (8, [-1.488_281_3, -1.253_906_3, -0.503_906_3, 0.75, -0.75, 1.5]),
    ] {
        let packed = quantize(&w, Quantization { bits, ..AFFINE_4 })?;
        assert_eq!(packed.weight.shape(), [1, bits]);
        let first = ops::slice_axis(&dequantize(&packed, Dtype::F32)?, 1, 0, 6)?;
        assert_near(&first.to_vec_f32()?, &expected, 1e-6);
    }
    Ok(())
}

#[test]
fn mxfp4_stores_each_e2m1_value_exactly() -> Result<()> {
    let values = [E2M1, E2M1].concat();
    let w = quantize(&Array::from_f32(&values, &[1, 32])?, MXFP4)?;
    // Negative zero becomes zero, code 0 in place of 8.
    let words = [0x7654_3210, 0xfedc_ba90, 0x7654_3210, 0xfedc_ba90];
    assert_eq!(w.weight.to_vec_u32()?, words);
    // The scale is an exponent with bias 127: 2⁰.
    assert_eq!((w.scales.dtype(), w.scales.to_vec_u32()?), (Dtype::U8, vec![127]));
    assert!(w.biases.is_none());
    assert_eq!(dequantize(&w, Dtype::F32)?.to_vec_f32()?, values);
    Ok(())
}

#[test]
fn mxfp8_stores_e4m3_values_exactly() -> Result<()> {
    let values = [448.0, 1.0, -1.0, 2.0, -2.0, 0.5, 0.0, 3.5].repeat(4);
    let w = quantize(&Array::from_f32(&values, &[1, 32])?, MXFP8)?;
    assert_eq!(w.weight.to_vec_u32()?, [0x40b8_387e, 0x4600_30c0].repeat(4));
    assert_eq!(w.scales.to_vec_u32()?, [127]);
    assert_eq!(dequantize(&w, Dtype::F32)?.to_vec_f32()?, values);
    Ok(())
}

#[test]
fn nvfp4_has_an_e4m3_scale_for_sixteen_values() -> Result<()> {
    let values = [E2M1, E2M1.map(|value| value * 2.0)].concat();
    let w = quantize(&Array::from_f32(&values, &[2, 16])?, NVFP4)?;
    assert_eq!(w.weight.to_vec_u32()?, [0x7654_3210, 0xfedc_ba90].repeat(2));
    // 1 and 2 in e4m3.
    assert_eq!((w.scales.shape(), w.scales.to_vec_u32()?), (&[2, 1][..], vec![0x38, 0x40]));
    assert_eq!(dequantize(&w, Dtype::F32)?.to_vec_f32()?, values);
    Ok(())
}

#[test]
fn every_quantization_is_near_the_weights() -> Result<()> {
    let w = normal(&[3, 256], Dtype::F32, 1)?;
    let plain = w.to_vec_f32()?;
    for quantization in every_quantization() {
        let packed = quantize(&w, quantization)?;
        let columns = 256 / quantization.group_size;
        assert_eq!(packed.scales.shape(), [3, columns], "{quantization:?}");
        assert_eq!(packed.weight.shape(), [3, 8 * quantization.bits], "{quantization:?}");
        let affine = quantization.mode == QuantMode::Affine;
        assert_eq!(packed.biases.is_some(), affine, "{quantization:?}");
        let restored = dequantize(&packed, Dtype::F32)?.to_vec_f32()?;
        // Normal values span about 7; a step is that over the codes, the error at most one step.
        // The wide floats have a step of at most 2 between 4 and 6 at a scale of 1/2 to 1.
        let tolerance = if affine { 7.0 / ((1 << quantization.bits) - 1) as f32 } else { 1.0 };
        assert_near(&restored, &plain, tolerance);
    }
    Ok(())
}

#[test]
fn quantized_matmul_equals_matmul_with_the_dequantized_weights() -> Result<()> {
    for quantization in every_quantization() {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            let w = quantize(&normal(&[8, 256], dtype, 2)?, quantization)?;
            let wide = dequantize(&w, Dtype::F32)?;
            for shape in [&[1, 256][..], &[2, 3, 256], &[33, 256]] {
                let x = normal(shape, dtype, 3)?;
                let product = quantized_matmul(&x, &w)?;
                assert_eq!(product.dtype(), dtype, "{quantization:?}");
                assert_eq!(product.shape()[..shape.len() - 1], shape[..shape.len() - 1]);
                let x = ops::astype(&x, Dtype::F32)?;
                let expected = ops::matmul(&x, &ops::swap_axes(&wide, 0, 1)?)?.to_vec_f32()?;
                // On the CPU the affine kernels add up in the type of `x`. The sums reach 55, where
                // half a bf16 step is 0.125, and 256 roundings in a row end up to 1.95 away: what
                // the same additions by hand give, to the bit. f16 has three bits more.
                let tolerance = match dtype {
                    Dtype::F32 => 1e-3,
                    Dtype::F16 => 0.32,
                    _ => 2.5,
                };
                assert_near(&product.to_vec_f32()?, &expected, tolerance);
            }
        }
    }
    Ok(())
}

#[test]
fn gather_qmm_takes_the_matrix_that_each_row_names() -> Result<()> {
    for quantization in every_quantization() {
        let w = quantize(&normal(&[3, 8, 256], Dtype::F32, 4)?, quantization)?;
        let wide = dequantize(&w, Dtype::F32)?;
        for (order, sorted) in [([2, 0, 1, 2], false), ([0, 1, 1, 2], true)] {
            let x = normal(&[4, 1, 256], Dtype::F32, 5)?;
            let indices = Indices::from_u32(&order, &[4])?;
            let product = gather_qmm(&x, &w, &indices, sorted)?;
            assert_eq!(product.shape(), [4, 1, 8], "{quantization:?}");
            let chosen = ops::swap_axes(&ops::take(&wide, &indices, 0)?, 1, 2)?;
            let expected = ops::matmul(&x, &chosen)?.to_vec_f32()?;
            assert_near(&product.to_vec_f32()?, &expected, 1e-3);
        }
    }
    Ok(())
}

#[test]
fn gather_qmm_broadcasts_indices_over_experts() -> Result<()> {
    let w = quantize(&normal(&[3, 8, 64], Dtype::F32, 6)?, AFFINE_4)?;
    let x = normal(&[2, 1, 1, 64], Dtype::F32, 7)?;
    let indices = Indices::from_u32(&[0, 2, 1, 1], &[2, 2])?;
    let product = gather_qmm(&x, &w, &indices, false)?;
    assert_eq!(product.shape(), [2, 2, 1, 8]);
    let chosen = ops::take(&dequantize(&w, Dtype::F32)?, &indices, 0)?;
    let expected = ops::matmul(&x, &ops::swap_axes(&chosen, 2, 3)?)?.to_vec_f32()?;
    assert_near(&product.to_vec_f32()?, &expected, 1e-4);
    Ok(())
}

#[test]
fn modes_have_the_names_of_mlx() {
    for mode in [QuantMode::Affine, QuantMode::Mxfp4, QuantMode::Mxfp8, QuantMode::Nvfp4] {
        assert_eq!(QuantMode::from_name(mode.as_str()), Some(mode));
    }
    assert_eq!(QuantMode::from_name("awq"), None);
}

#[test]
fn parameters_that_do_not_exist_are_named_with_those_that_do() {
    let error = Quantization { bits: 7, ..AFFINE_4 }.validate().expect_err("7 bits");
    let text = "affine with 7 bits in groups of 32 is not known: affine has 2, 3, 4, 5, 6 or 8 \
                bits in groups of 32, 64 or 128";
    assert_eq!(error.to_string(), text);
    Quantization { group_size: 64, ..MXFP4 }.validate().expect_err("mxfp4 has groups of 32");
    Quantization { bits: 4, ..MXFP8 }.validate().expect_err("mxfp8 has 8 bits");
    Quantization { group_size: 32, ..NVFP4 }.validate().expect_err("nvfp4 has groups of 16");
}

#[test]
fn parts_that_do_not_fit_are_errors() -> Result<()> {
    let w = || quantize(&normal(&[4, 128], Dtype::F32, 8)?, AFFINE_4);
    let x = normal(&[1, 128], Dtype::F32, 9)?;
    let half = |array: &Array| ops::slice_axis(array, 0, 0, 2);
    let biases = w()?.biases;
    let broken = [
        // MLX's kernels would read past the end of these scales.
        Quantized { scales: half(&w()?.scales)?, biases: Some(half(&w()?.scales)?), ..w()? },
        Quantized { biases: None, ..w()? },
        Quantized { biases: biases.as_ref().map(half).transpose()?, ..w()? },
        Quantized { quantization: Quantization { bits: 8, ..AFFINE_4 }, ..w()? },
        Quantized { quantization: Quantization { group_size: 64, ..AFFINE_4 }, ..w()? },
        Quantized { weight: ops::astype(&w()?.weight, Dtype::F32)?, ..w()? },
        Quantized { weight: ops::zeros(&[0, 16], Dtype::U32)?, ..w()? },
    ];
    for w in &broken {
        quantized_matmul(&x, w).expect_err("the parts do not fit");
        dequantize(w, Dtype::F32).expect_err("the parts do not fit");
        gather_qmm(&x, w, &Indices::from_u32(&[0], &[1])?, false).expect_err("as above");
    }
    for shape in [&[1, 64][..], &[0, 128]] {
        let x = ops::zeros(shape, Dtype::F32)?;
        quantized_matmul(&x, &w()?).expect_err("the columns do not fit");
    }
    for shape in [&[4, 48][..], &[64]] {
        let w = ops::zeros(shape, Dtype::F32)?;
        quantize(&w, AFFINE_4).expect_err("no whole groups in a matrix");
    }
    quantize(&ops::zeros(&[4, 64], Dtype::I32)?, AFFINE_4).expect_err("integers");
    assert_eq!(quantized_matmul(&x, &w()?)?.shape(), [1, 4]);
    Ok(())
}
