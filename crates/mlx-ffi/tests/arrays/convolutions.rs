//! Convolutions and layer norms against plain arithmetic written out here.

use super::near::assert_near;
use mlx_ffi::ops::{Padding, conv2d};
use mlx_ffi::{Array, Device, Dtype, Result, cpu, fast, ops, use_device};

fn wave(shape: &[i32]) -> Result<Array> {
    let size: i32 = shape.iter().product();
    let values: Vec<f32> = (0..size).map(|i| (0.37 * i as f32).sin()).collect();
    Array::from_f32(&values, shape)
}

/// The sum over kernel and channels, one output at a time.
fn by_hand(x: &Array, weight: &Array, stride: usize, padding: Padding) -> Result<Vec<f32>> {
    let [n, height, width, channels] = x.dims()?.map(|dim: i32| dim as usize);
    let [out, rows, columns, _] = weight.dims()?.map(|dim: i32| dim as usize);
    let (x, weight) = (x.to_vec_f32()?, weight.to_vec_f32()?);
    let [top, left] = padding.before.map(|size| size as usize);
    let [below, right] = padding.after.map(|size| size as usize);
    let mut sums = Vec::new();
    for picture in 0..n {
        for y in (0..=height + top + below - rows).step_by(stride) {
            for at in (0..=width + left + right - columns).step_by(stride) {
                for o in 0..out {
                    let mut sum = 0.0f64;
                    for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                        let (row, column) =
                            ((y + i).wrapping_sub(top), (at + j).wrapping_sub(left));
                        if row >= height || column >= width {
                            continue;
                        }
                        for c in 0..channels {
                            let pixel =
                                x[((picture * height + row) * width + column) * channels + c];
                            let factor = weight[((o * rows + i) * columns + j) * channels + c];
                            sum += f64::from(pixel) * f64::from(factor);
                        }
                    }
                    sums.push(sum as f32);
                }
            }
        }
    }
    Ok(sums)
}

#[test]
fn convolutions_are_sums_over_kernel_and_channels() -> Result<()> {
    let lopsided = Padding { before: [0, 0], after: [1, 1] };
    let cases = [
        ([1, 5, 7, 3], [4, 3, 3, 3], 1, Padding::around(1)),
        ([2, 6, 4, 2], [3, 3, 3, 2], 2, lopsided),
        ([1, 4, 4, 8], [5, 1, 1, 8], 1, Padding::default()),
        ([1, 3, 9, 16], [16, 3, 3, 16], 1, Padding { before: [2, 0], after: [0, 1] }),
    ];
    for (x, weight, stride, padding) in cases {
        let (x, weight) = (wave(&x)?, wave(&weight)?);
        let found = conv2d(&x, &weight, stride, padding)?;
        let expected = by_hand(&x, &weight, stride as usize, padding)?;
        assert_near(&found.to_vec_f32()?, &expected, 1e-4);
        use_device(Device::Cpu)?;
        let ours = cpu::conv2d(&x, &weight, stride, padding)?;
        assert_eq!(ours.shape(), found.shape());
        assert_near(&ours.to_vec_f32()?, &expected, 1e-4);
        // Not row-major: rows and columns changed places.
        let turned = ops::swap_axes(&x, 1, 2)?;
        let expected = by_hand(&turned, &weight, stride as usize, padding)?;
        let ours = cpu::conv2d(&turned, &weight, stride, padding)?;
        assert_near(&ours.to_vec_f32()?, &expected, 1e-4);
    }
    Ok(())
}

#[test]
fn group_norms_that_do_not_fit_are_refused() -> Result<()> {
    use_device(Device::Cpu)?;
    let (x, four, three) = (wave(&[1, 2, 3, 4])?, wave(&[4])?, wave(&[3])?);
    let norm = |x: &Array, weight: &Array, bias: &Array, groups| {
        let of =
            cpu::ChannelGroups { weight, bias, groups, eps: 1e-6, after: cpu::AfterNorm::Nothing };
        cpu::group_norm(x, of)
    };
    assert_eq!(norm(&x, &four, &four, 2)?.shape(), [1, 2, 3, 4]);
    let narrow = ops::astype(&four, Dtype::Bf16)?;
    assert!(norm(&x, &four, &four, 3).is_err());
    assert!(norm(&x, &four, &four, 0).is_err());
    assert!(norm(&x, &three, &four, 2).is_err());
    assert!(norm(&x, &four, &three, 2).is_err());
    assert!(norm(&x, &narrow, &four, 2).is_err());
    assert!(norm(&wave(&[2, 3, 4])?, &four, &four, 2).is_err());
    Ok(())
}

#[test]
fn convolutions_that_do_not_fit_are_refused() -> Result<()> {
    use_device(Device::Cpu)?;
    let (x, weight) = (wave(&[1, 4, 4, 2])?, wave(&[3, 3, 3, 2])?);
    let refused = |x: &Array, weight: &Array, stride, padding| {
        let error = conv2d(x, weight, stride, padding).expect_err("it does not fit").to_string();
        assert!(error.contains("[conv2d]"), "{error}");
        let ours = cpu::conv2d(x, weight, stride, padding).expect_err("it does not fit");
        assert_eq!(ours.to_string(), error);
    };
    let none = Padding::default();
    refused(&x, &wave(&[3, 3, 3, 1])?, 1, none);
    refused(&x, &wave(&[3, 5, 3, 2])?, 1, none);
    refused(&x, &weight, 0, none);
    refused(&x, &weight, -1, none);
    refused(&x, &weight, 1, Padding::around(-1));
    refused(&x, &weight, 1, Padding::around(i32::MAX));
    refused(&x, &ops::astype(&weight, Dtype::Bf16)?, 1, none);
    refused(&ops::zeros(&[0, 4, 4, 2], Dtype::F32)?, &weight, 1, none);
    refused(&x, &ops::zeros(&[0, 3, 3, 2], Dtype::F32)?, 1, none);
    assert!(conv2d(&wave(&[4, 4, 2])?, &weight, 1, none).is_err());
    Ok(())
}

#[test]
fn layer_norms_have_mean_and_variance_of_their_weights() -> Result<()> {
    let (x, weight, bias) = (wave(&[3, 10])?, wave(&[10])?, wave(&[10])?);
    let found = fast::layer_norm(&x, Some(&weight), Some(&bias), 1e-5)?.to_vec_f32()?;
    let plain = fast::layer_norm(&x, None, None, 1e-5)?.to_vec_f32()?;
    let (values, weights) = (x.to_vec_f32()?, weight.to_vec_f32()?);
    let mut expected = Vec::new();
    for row in values.chunks(10) {
        let mean = row.iter().sum::<f32>() / 10.0;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / 10.0;
        expected.extend(row.iter().map(|v| (v - mean) / (variance + 1e-5).sqrt()));
    }
    assert_near(&plain, &expected, 1e-4);
    let scaled = expected.iter().enumerate().map(|(i, v)| v * weights[i % 10] + weights[i % 10]);
    assert_near(&found, &scaled.collect::<Vec<_>>(), 1e-4);
    for wrong in [&x, &wave(&[9])?] {
        assert!(fast::layer_norm(&x, Some(wrong), None, 1e-5).is_err());
        assert!(fast::layer_norm(&x, None, Some(wrong), 1e-5).is_err());
    }
    assert!(fast::layer_norm(&ops::zeros(&[0, 4], Dtype::F32)?, None, None, 1e-5).is_err());
    Ok(())
}

#[test]
fn a_transposed_array_has_its_dimensions_in_the_order_of_the_axes() -> Result<()> {
    let x = ops::reshape(&ops::arange(0, 24, Dtype::F32)?, &[2, 3, 4])?;
    let y = ops::transpose(&x, &[2, 0, 1])?;
    assert_eq!(y.shape(), [4, 2, 3]);
    let expected: Vec<f32> = (0..4)
        .flat_map(|i| (0..2).flat_map(move |j| (0..3).map(move |k| (j * 12 + k * 4 + i) as f32)))
        .collect();
    assert_eq!(y.to_vec_f32()?, expected);
    for wrong in [&[0, 1][..], &[0, 1, 1], &[0, 1, 3], &[0, 1, 2, 3], &[]] {
        assert!(ops::transpose(&x, wrong).is_err(), "{wrong:?}");
    }
    Ok(())
}

#[test]
fn roots_and_the_error_function_are_the_known_ones() -> Result<()> {
    let x = Array::from_f32(&[0.0, 0.25, 1.0, 4.0], &[4])?;
    assert_near(&ops::sqrt(&x)?.to_vec_f32()?, &[0.0, 0.5, 1.0, 2.0], 1e-6);
    assert_near(&ops::erf(&x)?.to_vec_f32()?, &[0.0, 0.276_326_4, 0.842_700_8, 1.0], 1e-5);
    Ok(())
}
