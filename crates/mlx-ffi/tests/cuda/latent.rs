//! Our kernels for latent attention against MLX's operations in f32.

use mlx_ffi::cuda::{LatentStep, Weights, latent_step, takes_latent_step};
use mlx_ffi::step::Turn;
use mlx_ffi::{Array, Dtype, QuantMode, Quantization, Quantized, Result, dequantize, eval_all};
use mlx_ffi::{fast, ops, quantize};

use super::arrays::{assert_near, cast, values, wide};
use super::on_cuda::{some, use_cuda};

/// Matrices of heads, `[heads, out, in]`.
enum Matrices {
    Dense(Array),
    Packed(Quantized),
}

impl Matrices {
    fn new(shape: [i32; 3], seed: u32, dtype: Dtype, packing: Option<(i32, i32)>) -> Matrices {
        let scale = Array::scalar((shape[2] as f32).sqrt().recip(), Dtype::F32).expect("a scalar");
        let w = cast(&ops::multiply(&values(&shape, seed), &scale).expect("weights"), dtype);
        match packing {
            None => Matrices::Dense(w),
            Some((bits, group_size)) => {
                let quantization = Quantization { mode: QuantMode::Affine, bits, group_size };
                Matrices::Packed(quantize(&w, quantization).expect("packed"))
            }
        }
    }

    fn weights(&self) -> Weights<'_> {
        match self {
            Matrices::Dense(w) => Weights::Dense(w),
            Matrices::Packed(w) => Weights::Packed(w),
        }
    }

    /// `[1, heads, in, out]`.
    fn transposed(&self) -> Result<Array> {
        let w = match self {
            Matrices::Dense(w) => wide(w),
            Matrices::Packed(w) => wide(&dequantize(w, w.scales.dtype())?),
        };
        ops::expand_dims(&ops::swap_axes(&w, -1, -2)?, 0)
    }
}

/// Heads, rank, nope, rope and value.
const GLM: [i32; 5] = [20, 512, 192, 64, 256];
const DEEPSEEK: [i32; 5] = [128, 512, 128, 64, 128];
const KIMI: [i32; 5] = [32, 512, 128, 64, 128];
const SMALL: [i32; 5] = [3, 64, 64, 32, 40];
const ODD: [i32; 5] = [17, 192, 128, 96, 72];

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn a_step_of_latent_attention_is_that_of_mlx() {
    use_cuda();
    let rows = [(1, 0), (3, 130), (1, 63), (1, 700), (8, 511), (33, 100), (70, 40), (2, 5000)];
    for &sizes in some(&[SMALL, ODD, GLM, KIMI], 2) {
        for packing in [None, Some((4, 64)), Some((8, 32))] {
            for &(b, at) in some(&rows, 2) {
                step([b, at], sizes, Dtype::Bf16, packing).expect("a step");
            }
        }
    }
    let all = [(SMALL, None), (DEEPSEEK, None), (DEEPSEEK, Some((4, 64)))];
    for &(sizes, packing) in some(&all, 1) {
        for &(b, at) in some(&[(1, 300), (9, 70)], 1) {
            step([b, at], sizes, Dtype::Bf16, packing).expect("a step");
            step([b, at], sizes, Dtype::F16, packing).expect("a step");
        }
    }
}

fn step(
    [b, at]: [i32; 2],
    sizes: [i32; 5],
    dtype: Dtype,
    packing: Option<(i32, i32)>,
) -> Result<()> {
    let [heads, rank, nope, rope, value] = sizes;
    let what = |of: &str| format!("{of}: {b} rows after {at}, {sizes:?} {packing:?} {dtype:?}");
    let (capacity, width) = (at + 5, rank + rope);
    let q = cast(&values(&[b, 1, heads * (nope + rope)], 1), dtype);
    let latents = cast(&values(&[b, 1, width], 2), dtype);
    let norm = cast(&values(&[rank], 3), dtype);
    let embed_q = Matrices::new([heads, rank, nope], 4, dtype, packing);
    let unembed_out = Matrices::new([heads, value, rank], 5, dtype, packing);
    let starts: Vec<i32> = (0..b).map(|row| (row * 37) % (at + 1)).collect();
    // Some rows' positions are more than their indices.
    let beyond: Vec<i32> = (0..b).map(|row| row * 3 - starts[row as usize]).collect();
    let rows: Vec<i32> = starts.iter().zip(&beyond).flat_map(|(a, b)| [*a, *b]).collect();
    let rows = Array::from_i32(&[rows, vec![0; 2]].concat(), &[2 * b + 2])?;
    let on_device = Array::from_i32(&[at; 4], &[4])?;
    let projections = [embed_q.weights(), unembed_out.weights()];
    assert!(takes_latent_step(dtype, rope, projections), "{}", what("sizes"));
    for (turns, turns_neighbours) in [(true, true), (true, false), (false, false)] {
        let held = cast(&values(&[b, 1, capacity, width], 6), dtype);
        let before = wide(&ops::slice_axis(&held, 2, 0, at)?);
        eval_all([&held, &before])?;
        let radians: Vec<f32> =
            (0..rope / 2).map(|pair| 1e4_f32.powf(-2.0 * pair as f32 / rope as f32)).collect();
        let angles = || {
            let positions = beyond.iter().map(|beyond| 0.5 * (at + beyond) as f32);
            positions.flat_map(|position| radians.iter().map(move |speed| position * speed))
        };
        let made = |of: fn(f32) -> f32| -> Result<Array> {
            let values: Vec<f32> = angles().map(|angle| 1.5 * of(angle)).collect();
            Array::from_f32(&values, &[b, 1, 1, rope / 2])
        };
        let (cos, sin) = (made(f32::cos)?, made(f32::sin)?);
        let radians = Array::from_f32(&radians, &[rope / 2])?;
        let turn = Turn { radians: &radians, scale: 0.5, magnitude: 1.5 };
        let found = latent_step(&LatentStep {
            q: &q,
            latents: &latents,
            norm: (&norm, 1e-6),
            embed_q: embed_q.weights(),
            unembed_out: unembed_out.weights(),
            held: &held,
            at,
            on_device: &on_device,
            rows: &rows,
            turn: turns.then_some(turn),
            turns_neighbours,
            scale: 0.1,
        })?;
        // What is written in place may be read once it was evaluated.
        eval_all(&found)?;
        let [out, new_held] = found;

        // By MLX's operations in f32: `x` is `[b, n, 1, rope]`.
        let turned = |x: &Array, n: i32| -> Result<Array> {
            if !turns {
                return x.share();
            }
            let (pairs, axis) = match turns_neighbours {
                true => ([b, n, 1, rope / 2, 2], -1),
                false => ([b, n, 1, 2, rope / 2], -2),
            };
            let x = ops::reshape(x, &pairs)?;
            let part = |at| ops::squeeze(&ops::slice_axis(&x, axis, at, at + 1)?, axis);
            let (low, high) = (part(0)?, part(1)?);
            let low_turned =
                ops::subtract(&ops::multiply(&low, &cos)?, &ops::multiply(&high, &sin)?)?;
            let high_turned = ops::add(&ops::multiply(&low, &sin)?, &ops::multiply(&high, &cos)?)?;
            let both = [&low_turned, &high_turned].map(|of| ops::expand_dims(of, axis));
            let [low, high] = both;
            ops::reshape(&ops::concatenate(&[&low?, &high?], axis)?, &[b, n, 1, rope])
        };
        let latent = ops::slice_axis(&wide(&latents), -1, 0, rank)?;
        let latent = fast::rms_norm(&latent, Some(&wide(&norm)), 1e-6)?;
        let shared =
            ops::reshape(&ops::slice_axis(&wide(&latents), -1, rank, width)?, &[b, 1, 1, rope])?;
        let latent = ops::reshape(&latent, &[b, 1, 1, rank])?;
        let new = ops::concatenate(&[&latent, &turned(&shared, 1)?], -1)?;
        let keys = ops::concatenate(&[&before, &wide(&cast(&new, dtype))], 2)?;
        let until = ops::slice_axis(&new_held, 2, 0, at + 1)?;
        assert_near(&until, &keys, 1e-2, &what("held"));
        let keys = wide(&until);

        let heads_of_q = ops::reshape(&wide(&q), &[b, heads, 1, nope + rope])?;
        let own = ops::slice_axis(&heads_of_q, -1, 0, nope)?;
        let own = ops::matmul(&own, &embed_q.transposed()?)?;
        let q_rope = turned(&ops::slice_axis(&heads_of_q, -1, nope, nope + rope)?, heads)?;
        let queries = wide(&cast(&ops::concatenate(&[&own, &q_rope], -1)?, dtype));
        let scores = ops::matmul(&queries, &ops::swap_axes(&keys, -1, -2)?)?;
        let scores = ops::multiply(&scores, &Array::scalar(0.1, Dtype::F32)?)?;
        let seen: Vec<f32> = starts
            .iter()
            .flat_map(|start| (0..=at).map(move |key| if key >= *start { 0.0 } else { -1e30 }))
            .collect();
        let scores = ops::add(&scores, &Array::from_f32(&seen, &[b, 1, 1, at + 1])?)?;
        let weights = ops::softmax(&scores, -1, true)?;
        let seen = ops::matmul(&weights, &ops::slice_axis(&keys, -1, 0, rank)?)?;
        let seen = wide(&cast(&seen, dtype));
        let expected = ops::matmul(&seen, &unembed_out.transposed()?)?;
        let expected = ops::reshape(&expected, &[b, 1, heads * value])?;
        assert_near(&out, &expected, 2e-2, &what("out"));
    }
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn a_step_stays_inside_what_is_held_whatever_the_device_holds() {
    use_cuda();
    hostile().expect("steps");
}

fn hostile() -> Result<()> {
    const CAPACITY: i32 = 8;
    const AROUND: i32 = 4;
    let ([heads, rank, nope, rope, value], dtype) = (SMALL, Dtype::Bf16);
    let width = rank + rope;
    let q = cast(&values(&[1, 1, heads * (nope + rope)], 1), dtype);
    let latents = cast(&values(&[1, 1, width], 2), dtype);
    let norm = cast(&values(&[rank], 3), dtype);
    let embed_q = Matrices::new([heads, rank, nope], 4, dtype, None);
    let unembed_out = Matrices::new([heads, value, rank], 5, dtype, None);
    for (at, first) in [
        (-1, 0),
        (CAPACITY, 0),
        (i32::MAX, 0),
        (i32::MIN, i32::MIN),
        (3, -100),
        (3, 100),
        (3, i32::MAX),
    ] {
        // What is held is the middle of something larger.
        let whole = cast(&values(&[1, 1, CAPACITY + 2 * AROUND, width], 6), dtype);
        let held = ops::slice_axis(&whole, 2, AROUND, AROUND + CAPACITY)?;
        eval_all([&whole, &held])?;
        let outside = || -> Result<Vec<f32>> {
            let low = wide(&ops::slice_axis(&whole, 2, 0, AROUND)?).to_vec_f32()?;
            let high = ops::slice_axis(&whole, 2, AROUND + CAPACITY, CAPACITY + 2 * AROUND)?;
            Ok([low, wide(&high).to_vec_f32()?].concat())
        };
        let before = outside()?;
        let on_device = Array::from_i32(&[at; 4], &[4])?;
        let rows = Array::from_i32(&[first, 0, 0, 0], &[4])?;
        let step = LatentStep {
            q: &q,
            latents: &latents,
            norm: (&norm, 1e-6),
            embed_q: embed_q.weights(),
            unembed_out: unembed_out.weights(),
            held: &held,
            at: 3,
            on_device: &on_device,
            rows: &rows,
            turn: None,
            turns_neighbours: false,
            scale: 0.1,
        };
        eval_all(&latent_step(&step)?)?;
        assert_eq!(before, outside()?, "position {at} of a row that begins at {first}");
        assert!(latent_step(&LatentStep { at: CAPACITY, ..step }).is_err());
        assert!(latent_step(&LatentStep { q: &latents, ..step }).is_err());
    }
    Ok(())
}

#[test]
fn sizes_that_no_kernel_knows_are_refused() {
    let of = |shape: [i32; 3]| ops::zeros(&shape, Dtype::Bf16).expect("matrices");
    let (into, out) = (of([2, 64, 64]), of([2, 24, 64]));
    let takes = |rope, into: &Array, out: &Array| {
        takes_latent_step(Dtype::Bf16, rope, [into, out].map(Weights::Dense))
    };
    assert!(takes(32, &into, &out));
    assert!(!takes(16, &into, &out));
    assert!(!takes(256, &into, &out));
    assert!(!takes(32, &of([2, 64, 48]), &out));
    assert!(!takes(32, &of([2, 576, 64]), &of([2, 24, 576])));
    assert!(!takes(32, &into, &of([3, 24, 64])));
    assert!(!takes_latent_step(Dtype::F32, 32, [&into, &out].map(Weights::Dense)));
}
