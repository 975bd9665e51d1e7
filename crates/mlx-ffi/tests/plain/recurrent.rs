//! Layers with a recurrent state by kernels for GPUs, against plain arithmetic.

use mlx_ffi::cpu::{ConvolutionActivation, DeltaRule, Filter, SelectiveScan};
use mlx_ffi::cuda::NormAndGate;
use mlx_ffi::step::Heads;
use mlx_ffi::{Activation, Array, Dtype, Result, ops};

/// The result of an operation, and the state afterwards.
type Both = Result<[Array; 2]>;

/// The kernels that are held to it.
pub struct Kernels {
    pub convolution: fn(Heads<'_>, &Array, Filter<'_>, &[i32]) -> Both,
    pub delta: fn(&DeltaRule<'_>) -> Both,
    pub scan: fn(&SelectiveScan<'_>) -> Both,
    pub norm_and_gate: fn(&Array, &NormAndGate<'_>) -> Result<Array>,
    /// Of a gate and of what it is for, with the columns and how many of them one of the gate has.
    pub gated: fn(Activation, [Heads<'_>; 2], [i32; 2]) -> Result<Array>,
}

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

/// Of values that a kernel may round to halves.
#[track_caller]
fn assert_near(found: &Array, expected: &[f32], what: &str) {
    let bound = if found.dtype() == Dtype::F32 { 1e-4 } else { 1e-2 };
    assert_within(bound, found, expected, what);
}

/// So near to each other that they differ by less than this part of the largest value.
#[track_caller]
fn assert_within(part: f32, found: &Array, expected: &[f32], what: &str) {
    let found = ops::astype(found, Dtype::F32).and_then(|found| found.to_vec_f32());
    let found = found.expect("values");
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1e-3_f32, |most, value| most.max(value.abs()));
    let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let are_finite = found.iter().all(|value| value.is_finite());
    assert!(are_finite && off < part * largest, "{what}: off by {off} of {largest}");
}

/// Columns of an array that has others around them, and what they are.
struct Cut {
    all: Array,
    at: i32,
    values: Vec<f32>,
}

impl Cut {
    fn new([b, l, count]: [i32; 3], seed: u32, dtype: Dtype) -> Result<Cut> {
        let (at, columns) = (8, (count + 7) / 8 * 8 + 24);
        let (all, found) = values(&[b, l, columns], seed, dtype)?;
        let own = at as usize..(at + count) as usize;
        let values = found.chunks(columns as usize).flat_map(|row| row[own.clone()].to_vec());
        Ok(Cut { all, at, values: values.collect() })
    }

    fn heads(&self) -> Heads<'_> {
        Heads { array: &self.all, at: self.at }
    }
}

pub fn convolution(
    kernels: &Kernels,
    sizes: [i32; 4],
    (has_bias, is_silu): (bool, bool),
    dtype: Dtype,
    lengths: &[i32],
) -> Result<()> {
    let [b, l, channels, taps] = sizes;
    let before = taps - 1;
    let x = Cut::new([b, l, channels], 1, dtype)?;
    let (state, state_values) = values(&[b, 1, before, channels], 2, dtype)?;
    let (weight, by) = values(&[taps, channels], 3, dtype)?;
    let (bias, added) = values(&[channels], 4, dtype)?;
    let activation =
        if is_silu { ConvolutionActivation::Silu } else { ConvolutionActivation::None };
    let filter = Filter { weight: &weight, bias: has_bias.then_some(&bias), activation };
    let [found, next] = (kernels.convolution)(x.heads(), &state, filter, lengths)?;
    let at = |row: i32, position: i32, channel: i32| match position {
        ..0 => state_values[((row * before + before + position) * channels + channel) as usize],
        _ => x.values[((row * l + position) * channels + channel) as usize],
    };
    let (mut expected, mut expected_next) = (Vec::new(), Vec::new());
    for row in 0..b {
        for t in 0..l {
            expected.extend((0..channels).map(|channel| {
                let tap = |tap| at(row, t - before + tap, channel);
                let products = (0..taps).map(|i| tap(i) * by[(i * channels + channel) as usize]);
                let bias = if has_bias { added[channel as usize] } else { 0.0 };
                let sum: f32 = bias + products.sum::<f32>();
                if is_silu { sum / (1.0 + (-sum).exp()) } else { sum }
            }));
        }
        let count = lengths.get(row as usize).copied().unwrap_or(l);
        for i in 0..before {
            expected_next.extend((0..channels).map(|channel| at(row, count - before + i, channel)));
        }
    }
    let what = format!("{sizes:?} {dtype:?} {lengths:?} {has_bias}");
    assert_near(&found, &expected, &what);
    assert_near(&next, &expected_next, &what);
    Ok(())
}

pub fn delta(
    kernels: &Kernels,
    [b, l]: [i32; 2],
    heads: [i32; 4],
    decays: i32,
    dtype: Dtype,
    lengths: &[i32],
) -> Result<()> {
    let [k_heads, v_heads, dk, dv] = heads;
    let columns = 2 * k_heads * dk + v_heads * dv;
    let (mixed, mixed_values) = values(&[b, l, columns], 1, dtype)?;
    let a = Cut::new([b, l, v_heads * decays], 2, dtype)?;
    let beta = Cut::new([b, l, v_heads], 3, dtype)?;
    let (a_log, log_values) = values(&[v_heads], 4, Dtype::F32)?;
    let (dt_bias, bias_values) = values(&[v_heads * decays], 5, Dtype::F32)?;
    let (state, mut held) = values(&[b, v_heads, dv, dk], 6, Dtype::F32)?;
    let rule = DeltaRule {
        mixed: &mixed,
        a: a.heads(),
        b: beta.heads(),
        a_log: &a_log,
        dt_bias: &dt_bias,
        k_heads,
        lengths,
        state: &state,
    };
    let [found, next] = (kernels.delta)(&rule)?;
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
                let gain = 1.0 / (1.0 + (-beta.values[at]).exp());
                let decay = |column: usize| {
                    let own = column % decays as usize;
                    let moved = a.values[at * decays as usize + own]
                        + bias_values[head * decays as usize + own];
                    (-log_values[head].exp() * moved.exp().ln_1p()).exp()
                };
                for (value, line) in state.chunks_mut(dk).enumerate() {
                    line.iter_mut().enumerate().for_each(|(column, s)| *s *= decay(column));
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
    let what = format!("{b} x {l} {heads:?} {decays} {dtype:?} {lengths:?}");
    assert_near(&found, &expected, &what);
    assert_within(1e-4, &next, &held, &what);
    Ok(())
}

pub fn scan(
    kernels: &Kernels,
    [b, l]: [i32; 2],
    sizes: [i32; 4],
    dtype: Dtype,
    lengths: &[i32],
) -> Result<()> {
    let [heads, groups, p, n] = sizes;
    let (inner, limits) = (heads * p, [0.4, 0.9]);
    let columns = inner + 2 * groups * n;
    let (mixed, mixed_values) = values(&[b, l, columns], 1, dtype)?;
    let dt = Cut::new([b, l, heads], 2, dtype)?;
    let (a_log, log_values) = values(&[heads], 3, Dtype::F32)?;
    let (dt_bias, bias_values) = values(&[heads], 4, Dtype::F32)?;
    let (d, passed) = values(&[heads], 5, Dtype::F32)?;
    let (state, mut held) = values(&[b, heads, p, n], 6, Dtype::F32)?;
    let of = SelectiveScan {
        mixed: &mixed,
        dt: dt.heads(),
        a_log: &a_log,
        dt_bias: &dt_bias,
        d: &d,
        groups,
        limits,
        lengths,
        state: &state,
    };
    let [found, next] = (kernels.scan)(&of)?;
    let [p, n] = [p as usize, n as usize];
    let mut expected = vec![0.0; (b * l * inner) as usize];
    for row in 0..b {
        for head in 0..heads as usize {
            let state = &mut held[(row as usize * heads as usize + head) * p * n..][..p * n];
            for t in 0..lengths.get(row as usize).copied().unwrap_or(l) {
                let place = (row * l + t) as usize;
                let own = &mixed_values[place * columns as usize..][..columns as usize];
                let group = inner as usize + head / (heads / groups) as usize * n;
                let (writes, reads) =
                    (&own[group..][..n], &own[group + groups as usize * n..][..n]);
                let step =
                    (dt.values[place * heads as usize + head] + bias_values[head]).exp().ln_1p();
                let step = step.clamp(limits[0], limits[1]);
                let decay = (-log_values[head].exp() * step).exp();
                for (value, line) in state.chunks_mut(n).enumerate() {
                    let x = own[head * p + value];
                    line.iter_mut().zip(writes).for_each(|(s, b)| *s = decay * *s + step * x * b);
                    let sum: f32 = line.iter().zip(reads).map(|(s, c)| s * c).sum();
                    expected[place * inner as usize + head * p + value] = sum + passed[head] * x;
                }
            }
        }
    }
    let what = format!("{b} x {l} {sizes:?} {dtype:?} {lengths:?}");
    assert_near(&found, &expected, &what);
    assert_within(1e-4, &next, &held, &what);
    Ok(())
}

fn opened(activation: Activation, gate: f32) -> f32 {
    let sigmoid = 1.0 / (1.0 + (-gate).exp());
    match activation {
        Activation::Silu => gate * sigmoid,
        Activation::Softplus => gate.exp().ln_1p(),
        Activation::Identity => gate,
        _ => sigmoid,
    }
}

pub fn norm_and_gate(
    kernels: &Kernels,
    sizes: [i32; 4],
    (of_groups, gate_is_first, activation): (bool, bool, Activation),
    dtype: Dtype,
) -> Result<()> {
    let [b, l, groups, size] = sizes;
    let (x, x_values) = values(&[b, l, groups * size], 1, dtype)?;
    let gate = Cut::new([b, l, groups * size], 2, dtype)?;
    let shape = [groups, size];
    let (weight, by) = values(if of_groups { &shape } else { &shape[1..] }, 3, dtype)?;
    let eps = 1e-5;
    let all = NormAndGate { weight: &weight, eps, gate: gate.heads(), activation, gate_is_first };
    let found = (kernels.norm_and_gate)(&x, &all)?;
    let mut expected = Vec::new();
    for (group, values) in x_values.chunks(size as usize).enumerate() {
        let opens = &gate.values[group * size as usize..][..size as usize];
        let opens: Vec<f32> = opens.iter().map(|gate| opened(activation, *gate)).collect();
        let before = |(x, open): (&f32, &f32)| if gate_is_first { x * open } else { *x };
        let seen: Vec<f32> = values.iter().zip(&opens).map(before).collect();
        let mean = seen.iter().map(|x| x * x).sum::<f32>() / size as f32;
        let first = if of_groups { group % groups as usize * size as usize } else { 0 };
        expected.extend(seen.iter().enumerate().map(|(i, x)| {
            let normed = x / (mean + eps).sqrt() * by[first + i];
            if gate_is_first { normed } else { normed * opens[i] }
        }));
    }
    assert_near(&found, &expected, &format!("{sizes:?} {dtype:?} {of_groups} {gate_is_first}"));
    Ok(())
}

/// A column of a gate for `each` of the columns beside it.
pub fn gated(kernels: &Kernels, activation: Activation, dtype: Dtype, each: i32) -> Result<()> {
    let (b, l, columns) = (3, 2, 64);
    let gate = Cut::new([b, l, columns / each], 1, dtype)?;
    let up = Cut::new([b, l, columns], 2, dtype)?;
    let found = (kernels.gated)(activation, [gate.heads(), up.heads()], [columns, each])?;
    let value = |(i, up): (usize, &f32)| opened(activation, gate.values[i / each as usize]) * up;
    let expected: Vec<f32> = up.values.iter().enumerate().map(value).collect();
    assert_near(&found, &expected, &format!("{activation:?} {dtype:?} {each}"));
    Ok(())
}
