//! Our kernels for layers with a recurrent state on CUDA against plain arithmetic.

mod on_cuda;

use mlx_ffi::cpu::DeltaRule;
use mlx_ffi::{Array, Dtype, Result, cuda, ops};

use self::on_cuda::use_cuda;

/// Values between -1 and 1 in `dtype`, and what they are once rounded.
fn values(shape: &[i32], seed: u32, dtype: Dtype) -> Result<(Array, Vec<f32>)> {
    let count = shape.iter().product::<i32>() as usize;
    let value = |i: usize| {
        let bits = (i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503));
        let bits = (bits ^ bits >> 15).wrapping_mul(2_246_822_519);
        ((bits ^ bits >> 13) >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let array = Array::from_f32(&(0..count).map(value).collect::<Vec<_>>(), shape)?;
    let array = ops::astype(&array, dtype)?;
    let rounded = ops::astype(&array, Dtype::F32)?.to_vec_f32()?;
    Ok((array, rounded))
}

#[track_caller]
fn assert_near(found: &Array, expected: &[f32], what: &str) {
    let found = ops::astype(found, Dtype::F32).and_then(|found| found.to_vec_f32());
    let found = found.expect("values");
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1e-3_f32, |most, value| most.max(value.abs()));
    let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let are_finite = found.iter().all(|value| value.is_finite());
    assert!(are_finite && off < 1e-2 * largest, "{what}: off by {off} of {largest}");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn convolutions_are_those_of_plain_arithmetic() {
    use_cuda();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        for (b, l, lengths) in [(1, 1, &[][..]), (1, 300, &[]), (3, 9, &[]), (3, 9, &[9, 4, 1])] {
            convolution([b, l, 96, 4], dtype, lengths).expect("a convolution");
        }
    }
}

fn convolution(sizes: [i32; 4], dtype: Dtype, lengths: &[i32]) -> Result<()> {
    let [b, l, channels, taps] = sizes;
    let before = taps - 1;
    let (x, x_values) = values(&[b, l, channels], 1, dtype)?;
    let (state, state_values) = values(&[b, before, channels], 2, dtype)?;
    let (weight, by) = values(&[taps, channels], 3, dtype)?;
    assert!(cuda::takes_convolution(&x, &state, &weight, lengths));
    let [found, next] = cuda::convolution(&x, &state, &weight, lengths)?;
    let at = |row: i32, position: i32, channel: i32| match position {
        ..0 => state_values[((row * before + before + position) * channels + channel) as usize],
        _ => x_values[((row * l + position) * channels + channel) as usize],
    };
    let (mut expected, mut expected_next) = (Vec::new(), Vec::new());
    for row in 0..b {
        for t in 0..l {
            expected.extend((0..channels).map(|channel| {
                let tap = |tap| at(row, t - before + tap, channel);
                let products = (0..taps).map(|i| tap(i) * by[(i * channels + channel) as usize]);
                let sum: f32 = products.sum();
                sum / (1.0 + (-sum).exp())
            }));
        }
        let count = lengths.get(row as usize).copied().unwrap_or(l);
        for i in 0..before {
            expected_next.extend((0..channels).map(|channel| at(row, count - before + i, channel)));
        }
    }
    let what = format!("{sizes:?} {dtype:?} {lengths:?}");
    assert_near(&found, &expected, &what);
    assert_near(&next, &expected_next, &what);
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn the_delta_rule_is_that_of_plain_arithmetic() {
    use_cuda();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        for heads in [[2, 4, 128, 128], [3, 3, 64, 24]] {
            for (b, l, lengths) in [(1, 1, &[][..]), (1, 200, &[]), (3, 9, &[9, 4, 1])] {
                delta([b, l], heads, dtype, lengths).expect("a rule");
            }
        }
    }
}

fn delta([b, l]: [i32; 2], heads: [i32; 4], dtype: Dtype, lengths: &[i32]) -> Result<()> {
    let [k_heads, v_heads, dk, dv] = heads;
    let columns = 2 * k_heads * dk + v_heads * dv;
    let (mixed, mixed_values) = values(&[b, l, columns], 1, dtype)?;
    let (a, a_values) = values(&[b, l, v_heads], 2, dtype)?;
    let (beta, beta_values) = values(&[b, l, v_heads], 3, dtype)?;
    let (a_log, log_values) = values(&[v_heads], 4, Dtype::F32)?;
    let (dt_bias, bias_values) = values(&[v_heads], 5, Dtype::F32)?;
    let (state, mut held) = values(&[b, v_heads, dv, dk], 6, Dtype::F32)?;
    let rule = DeltaRule {
        mixed: &mixed,
        a: &a,
        b: &beta,
        a_log: &a_log,
        dt_bias: &dt_bias,
        k_heads,
        lengths,
        state: &state,
    };
    assert!(cuda::takes_delta(&rule));
    let [found, next] = cuda::delta(&rule)?;
    let [dk, dv] = [dk as usize, dv as usize];
    let mut expected = vec![0.0; (b * l) as usize * v_heads as usize * dv];
    for row in 0..b {
        for head in 0..v_heads as usize {
            let state = &mut held[(row as usize * v_heads as usize + head) * dv * dk..][..dv * dk];
            for t in 0..lengths.get(row as usize).copied().unwrap_or(l) {
                let place = (row * l + t) as usize;
                let own = &mixed_values[place * columns as usize..][..columns as usize];
                let key_head = head / (v_heads / k_heads) as usize;
                let unit = |first: usize, scale: f32| -> Vec<f32> {
                    let x = &own[first + key_head * dk..][..dk];
                    let length = (x.iter().map(|x| x * x).sum::<f32>() + 1e-6).sqrt();
                    x.iter().map(|x| x / length * scale).collect()
                };
                let keys = k_heads as usize * dk;
                let (q, k) = (unit(0, (dk as f32).sqrt().recip()), unit(keys, 1.0));
                let at = place * v_heads as usize + head;
                let gain = 1.0 / (1.0 + (-beta_values[at]).exp());
                let step = (a_values[at] + bias_values[head]).exp().ln_1p();
                let decay = (-log_values[head].exp() * step).exp();
                for (value, line) in state.chunks_mut(dk).enumerate() {
                    line.iter_mut().for_each(|s| *s *= decay);
                    let dot = |line: &[f32], by: &[f32]| -> f32 {
                        line.iter().zip(by).map(|(a, b)| a * b).sum()
                    };
                    let wrong = (own[2 * keys + head * dv + value] - dot(line, &k)) * gain;
                    line.iter_mut().zip(&k).for_each(|(s, k)| *s += wrong * k);
                    expected[at * dv + value] = dot(line, &q);
                }
            }
        }
    }
    let what = format!("{b} x {l} {heads:?} {dtype:?} {lengths:?}");
    assert_near(&found, &expected, &what);
    assert_near(&next, &held, &what);
    Ok(())
}
