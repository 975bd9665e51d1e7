//! Fused operations against plain f64 arithmetic written out here.

use super::near::assert_near;
use mlx_ffi::fast::{
    AttentionMask, RopeFrequencies, RopeOffset, RopeRange, rms_norm, rope,
    scaled_dot_product_attention,
};
use mlx_ffi::{Array, Dtype, Result, ops, random};

/// Relative to values near 1: f32 against f64.
const TOLERANCE: f32 = 2e-5;
/// The usual base of wavelengths.
const BASE: RopeFrequencies<'_> = RopeFrequencies::Base(1e4);
/// How far results in bf16, which has eight bits, may be apart.
const BF16_TOLERANCE: f32 = 4e-2;

fn normal(shape: &[i32], seed: u64) -> Result<Array> {
    random::normal(shape, Dtype::F32, &random::key(seed)?)
}

fn f64s(array: &Array) -> Result<Vec<f64>> {
    Ok(array.to_vec_f32()?.into_iter().map(f64::from).collect())
}

fn f32s(values: Vec<f64>) -> Vec<f32> {
    values.into_iter().map(|value| value as f32).collect()
}

fn rms_norm_by_hand(x: &[f64], weight: Option<&[f64]>, size: usize, eps: f64) -> Vec<f64> {
    let row = |row: &[f64]| -> Vec<f64> {
        let mean = row.iter().map(|v| v * v).sum::<f64>() / size as f64;
        let scaled = row.iter().map(|v| v / (mean + eps).sqrt());
        scaled.enumerate().map(|(i, v)| v * weight.map_or(1.0, |w| w[i])).collect()
    };
    x.chunks(size).flat_map(row).collect()
}

#[test]
fn rms_norm_divides_by_the_root_of_the_mean_square() -> Result<()> {
    let (x, weight) = (normal(&[2, 3, 7], 1)?, normal(&[7], 2)?);
    let (plain_x, plain_weight) = (f64s(&x)?, f64s(&weight)?);
    let expected = rms_norm_by_hand(&plain_x, Some(&plain_weight), 7, 1e-6);
    let normed = rms_norm(&x, Some(&weight), 1e-6)?;
    assert_eq!(normed.shape(), [2, 3, 7]);
    assert_near(&normed.to_vec_f32()?, &f32s(expected), TOLERANCE);
    // A large eps shows that it is added to the mean, not to the root.
    let expected = rms_norm_by_hand(&plain_x, None, 7, 0.5);
    assert_near(&rms_norm(&x, None, 0.5)?.to_vec_f32()?, &f32s(expected), TOLERANCE);
    Ok(())
}

#[test]
fn rms_norm_keeps_bf16() -> Result<()> {
    let x = ops::astype(&normal(&[3, 8], 3)?, Dtype::Bf16)?;
    let expected = rms_norm_by_hand(&f64s(&x)?, None, 8, 1e-5);
    let normed = rms_norm(&x, None, 1e-5)?;
    assert_eq!(normed.dtype(), Dtype::Bf16);
    assert_near(&normed.to_vec_f32()?, &f32s(expected), BF16_TOLERANCE);
    Ok(())
}

/// Rotates the first `2 · inverse.len()` values of each head of `[…, l, head_dim]`; `inverse` is
/// the angle by which each pair turns a position.
fn rope_by_hand(x: &[f64], l: usize, d: usize, inverse: &[f64], scale: f64, at: i32) -> Vec<f64> {
    let half = inverse.len();
    let mut out = x.to_vec();
    for (row, values) in out.chunks_mut(d).enumerate() {
        let position = f64::from((row % l) as i32 + at) * scale;
        for i in 0..half {
            let (sin, cos) = (position * inverse[i]).sin_cos();
            let (a, b) = (values[i], values[i + half]);
            (values[i], values[i + half]) = (a * cos - b * sin, a * sin + b * cos);
        }
    }
    out
}

#[test]
fn rope_turns_pairs_by_powers_of_the_base() -> Result<()> {
    let x = normal(&[2, 3, 5, 8], 4)?;
    for (dims, base, scale, offset) in
        [(8, 10_000.0, 1.0, 0), (8, 500.0, 1.0, 17), (4, 10_000.0, 0.25, 3), (8, 1e6, 2.0, 1)]
    {
        let inverse: Vec<f64> =
            (0..dims / 2).map(|i| f64::powf(base, -2.0 * f64::from(i) / f64::from(dims))).collect();
        let expected = rope_by_hand(&f64s(&x)?, 5, 8, &inverse, scale, offset);
        let frequencies = RopeFrequencies::Base(base as f32);
        let turned =
            rope(&x, RopeRange::Halves(dims), frequencies, scale as f32, RopeOffset::Same(offset))?;
        assert_eq!(turned.shape(), x.shape());
        assert_near(&turned.to_vec_f32()?, &f32s(expected), TOLERANCE);
    }
    Ok(())
}

#[test]
fn rope_takes_wavelengths() -> Result<()> {
    let x = normal(&[1, 2, 3, 6], 5)?;
    let wavelengths = [1.0, 7.0, 150.0];
    let inverse = wavelengths.map(|wavelength| 1.0 / f64::from(wavelength));
    let expected = rope_by_hand(&f64s(&x)?, 3, 6, &inverse, 0.5, 40);
    let wavelengths = Array::from_f32(&wavelengths, &[3])?;
    let frequencies = RopeFrequencies::Wavelengths(&wavelengths);
    let turned = rope(&x, RopeRange::Halves(6), frequencies, 0.5, RopeOffset::Same(40))?;
    assert_near(&turned.to_vec_f32()?, &f32s(expected), TOLERANCE);
    Ok(())
}

#[test]
fn rope_of_neighbours_is_that_of_halves_in_another_order() -> Result<()> {
    let x = normal(&[1, 2, 3, 10], 8)?;
    let turned = rope(&x, RopeRange::Neighbours(8), BASE, 1.0, RopeOffset::Same(4))?;
    let (turning, rest) = (ops::slice_axis(&x, -1, 0, 8)?, ops::slice_axis(&x, -1, 8, 10)?);
    // The first values of all pairs, then the second ones; and back.
    let halves = ops::swap_axes(&ops::reshape(&turning, &[1, 2, 3, 4, 2])?, -1, -2)?;
    let halves = ops::reshape(&halves, &[1, 2, 3, 8])?;
    let halves = rope(&halves, RopeRange::Halves(8), BASE, 1.0, RopeOffset::Same(4))?;
    let pairs = ops::swap_axes(&ops::reshape(&halves, &[1, 2, 3, 2, 4])?, -1, -2)?;
    let expected = ops::concatenate(&[&ops::reshape(&pairs, &[1, 2, 3, 8])?, &rest], -1)?;
    assert_near(&turned.to_vec_f32()?, &expected.to_vec_f32()?, TOLERANCE);
    Ok(())
}

#[test]
fn rope_takes_an_offset_for_each_row() -> Result<()> {
    let x = normal(&[3, 2, 4, 8], 7)?;
    let offsets = [5, 0, -2];
    let each = Array::from_i32(&offsets, &[3])?;
    let turned = rope(&x, RopeRange::Halves(8), BASE, 1.0, RopeOffset::Each(&each))?;
    for (row, offset) in (0..).zip(offsets) {
        let own = ops::slice_axis(&x, 0, row, row + 1)?;
        let alone = rope(&own, RopeRange::Halves(8), BASE, 1.0, RopeOffset::Same(offset))?;
        let found = ops::slice_axis(&turned, 0, row, row + 1)?;
        assert_eq!(found.to_vec_f32()?, alone.to_vec_f32()?, "row {row}");
    }
    Ok(())
}

#[test]
fn rope_keeps_bf16_and_views() -> Result<()> {
    // The layout that attention hands over: `[b, l, n, d]` seen as `[b, n, l, d]`.
    let stored = ops::astype(&normal(&[1, 4, 2, 8], 6)?, Dtype::Bf16)?;
    let x = ops::swap_axes(&stored, 1, 2)?;
    let inverse: Vec<f64> = (0..4).map(|i| f64::powf(1e4, -f64::from(i) / 4.0)).collect();
    let expected = rope_by_hand(&f64s(&x)?, 4, 8, &inverse, 1.0, 2);
    let turned = rope(&x, RopeRange::Halves(8), BASE, 1.0, RopeOffset::Same(2))?;
    assert_eq!(turned.dtype(), Dtype::Bf16);
    assert_near(&turned.to_vec_f32()?, &f32s(expected), BF16_TOLERANCE);
    Ok(())
}

/// An attention problem: `[b, n_heads, l, d]` queries on `[b, n_kv_heads, keys, d]` keys.
struct Problem {
    b: usize,
    n_heads: usize,
    n_kv_heads: usize,
    l: usize,
    keys: usize,
    d: usize,
}

impl Problem {
    fn arrays(&self) -> Result<[Array; 3]> {
        let shape = |n: usize, l: usize| [self.b, n, l, self.d].map(|size| size as i32);
        let (q, kv) = (shape(self.n_heads, self.l), shape(self.n_kv_heads, self.keys));
        Ok([normal(&q, 21)?, normal(&kv, 22)?, normal(&kv, 23)?])
    }

    /// `bias(head, query, key)` is added to the logits.
    fn by_hand(
        &self,
        [q, k, v]: &[Array; 3],
        scale: f64,
        bias: impl Fn(usize, usize, usize) -> f64,
        sinks: Option<&[f64]>,
    ) -> Result<Vec<f32>> {
        let (q, k, v) = (f64s(q)?, f64s(k)?, f64s(v)?);
        let Problem { b, n_heads, n_kv_heads, l, keys, d } = *self;
        let mut out = Vec::new();
        for row in 0..b * n_heads * l {
            let (batch, head, query) = (row / (n_heads * l), row / l % n_heads, row % l);
            let kv = (batch * n_kv_heads + head * n_kv_heads / n_heads) * keys;
            let logit = |key: usize| -> f64 {
                let dot: f64 = (0..d).map(|i| q[row * d + i] * k[(kv + key) * d + i]).sum();
                dot * scale + bias(head, query, key)
            };
            let weights: Vec<f64> = (0..keys).map(|key| logit(key).exp()).collect();
            let sink = sinks.map_or(0.0, |sinks| sinks[head].exp());
            let total = weights.iter().sum::<f64>() + sink;
            out.extend((0..d).map(|i| {
                let sum: f64 = (0..keys).map(|key| weights[key] * v[(kv + key) * d + i]).sum();
                (sum / total) as f32
            }));
        }
        Ok(out)
    }
}

/// Problems of attention: one query, a chunk behind a cache, odd sizes.
const PROBLEMS: [Problem; 4] = [
    Problem { b: 1, n_heads: 2, n_kv_heads: 2, l: 4, keys: 4, d: 8 },
    Problem { b: 2, n_heads: 4, n_kv_heads: 2, l: 3, keys: 7, d: 5 },
    Problem { b: 1, n_heads: 6, n_kv_heads: 1, l: 1, keys: 9, d: 64 },
    Problem { b: 3, n_heads: 8, n_kv_heads: 2, l: 17, keys: 17, d: 64 },
];

#[test]
fn attention_without_a_mask_sees_everything() -> Result<()> {
    for problem in PROBLEMS {
        let [q, k, v] = &problem.arrays()?;
        let out = scaled_dot_product_attention(q, k, v, 0.3, AttentionMask::None, None)?;
        assert_eq!(out.shape(), q.shape());
        let expected = problem.by_hand(&problem.arrays()?, 0.3, |_, _, _| 0.0, None)?;
        assert_near(&out.to_vec_f32()?, &expected, TOLERANCE);
    }
    Ok(())
}

#[test]
fn causal_attention_puts_the_last_query_at_the_last_key() -> Result<()> {
    for problem in PROBLEMS {
        let [q, k, v] = &problem.arrays()?;
        let out = scaled_dot_product_attention(q, k, v, 0.3, AttentionMask::Causal, None)?;
        let first = problem.keys - problem.l;
        let bias = |_, query, key| if key <= first + query { 0.0 } else { f64::NEG_INFINITY };
        let expected = problem.by_hand(&problem.arrays()?, 0.3, bias, None)?;
        assert_near(&out.to_vec_f32()?, &expected, TOLERANCE);
    }
    Ok(())
}

#[test]
fn mask_arrays_hide_or_add() -> Result<()> {
    for problem in PROBLEMS {
        let [q, k, v] = &problem.arrays()?;
        let shape = [problem.l as i32, problem.keys as i32];
        let hidden = |query: usize, key: usize| key > 0 && (query + key).is_multiple_of(3);
        let cells = || (0..problem.l * problem.keys).map(|i| (i / problem.keys, i % problem.keys));

        let visible: Vec<u8> = cells().map(|(query, key)| u8::from(!hidden(query, key))).collect();
        let mask = Array::from_bytes(&visible, &shape, Dtype::Bool)?;
        let out = scaled_dot_product_attention(q, k, v, 0.3, AttentionMask::Array(&mask), None)?;
        let bias = |_, query, key| if hidden(query, key) { f64::NEG_INFINITY } else { 0.0 };
        let expected = problem.by_hand(&problem.arrays()?, 0.3, bias, None)?;
        assert_near(&out.to_vec_f32()?, &expected, TOLERANCE);

        let added: Vec<f32> =
            cells().map(|(query, key)| (query as f32 - key as f32) / 4.0).collect();
        let mask = Array::from_f32(&added, &shape)?;
        let out = scaled_dot_product_attention(q, k, v, 0.3, AttentionMask::Array(&mask), None)?;
        let bias = |_, query: usize, key: usize| (query as f64 - key as f64) / 4.0;
        let expected = problem.by_hand(&problem.arrays()?, 0.3, bias, None)?;
        assert_near(&out.to_vec_f32()?, &expected, TOLERANCE);
    }
    Ok(())
}

#[test]
fn sinks_take_part_in_the_softmax_and_add_nothing() -> Result<()> {
    for problem in PROBLEMS {
        let [q, k, v] = &problem.arrays()?;
        let sinks = normal(&[problem.n_heads as i32], 24)?;
        let mask = AttentionMask::Causal;
        let out = scaled_dot_product_attention(q, k, v, 0.3, mask, Some(&sinks))?;
        let first = problem.keys - problem.l;
        let bias = |_, query, key| if key <= first + query { 0.0 } else { f64::NEG_INFINITY };
        let expected = problem.by_hand(&problem.arrays()?, 0.3, bias, Some(&f64s(&sinks)?))?;
        assert_near(&out.to_vec_f32()?, &expected, TOLERANCE);
    }
    Ok(())
}

#[test]
fn attention_keeps_bf16() -> Result<()> {
    let problem = &PROBLEMS[1];
    let [q, k, v] = problem.arrays()?;
    let half = |array: &Array| ops::astype(array, Dtype::Bf16);
    let arrays = [half(&q)?, half(&k)?, half(&v)?];
    let [q, k, v] = &arrays;
    let out = scaled_dot_product_attention(q, k, v, 0.3, AttentionMask::None, None)?;
    assert_eq!(out.dtype(), Dtype::Bf16);
    let expected = problem.by_hand(&arrays, 0.3, |_, _, _| 0.0, None)?;
    assert_near(&out.to_vec_f32()?, &expected, BF16_TOLERANCE);
    Ok(())
}

#[test]
fn no_queries_give_no_rows_and_no_keys_give_zeros() -> Result<()> {
    let none = ops::zeros(&[1, 2, 0, 4], Dtype::F32)?;
    let some = normal(&[1, 2, 3, 4], 25)?;
    let attend = |q, kv| scaled_dot_product_attention(q, kv, kv, 1.0, AttentionMask::None, None);
    assert_eq!(attend(&none, &some)?.to_vec_f32()?, []);
    assert_eq!(attend(&some, &none)?.to_vec_f32()?, [0.0; 24]);
    Ok(())
}
