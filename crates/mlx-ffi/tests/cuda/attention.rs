//! Our kernels of attention for CUDA against MLX's operations in f32.

use mlx_ffi::cuda::Attended;
use mlx_ffi::step::{Counters, HeadNorms, Heads, Packing, Step, Turn};
use mlx_ffi::{
    Array, Dtype, QuantMode, Quantization, Quantized, Result, cuda, dequantize, eval_all, fast,
    ops, quantize,
};

use super::arrays::{assert_near, cast, values, wide};
use super::on_cuda::{is_emulated, some, use_cuda};

/// How queries, keys and values are made, and which keys a query sees. Each is compiled by itself.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Of how many parts of a head the first is rotated; 0: of none.
    turned: i32,
    /// Queries and keys are normed, and there are sinks.
    norms: bool,
    /// So are values.
    normed_values: bool,
    softcap: Option<f32>,
    window: Option<i32>,
    /// How keys and values are packed.
    packing: Option<Quantization>,
}

const PLAIN: Way = Way {
    turned: 1,
    norms: false,
    normed_values: false,
    softcap: None,
    window: None,
    packing: None,
};
const NORMED: Way = Way { norms: true, ..PLAIN };
const CAPPED: Way = Way { turned: 2, softcap: Some(20.0), window: Some(100), ..PLAIN };
const UNTURNED: Way = Way { turned: 0, ..PLAIN };
const ALONE: Way = Way { window: Some(1), ..PLAIN };
const NORMED_VALUES: Way = Way { norms: true, normed_values: true, window: Some(70), ..PLAIN };

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn steps_with_heads_of_32_are_those_of_mlx() {
    steps(&[[4, 4]], 32).expect("steps");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn steps_with_heads_of_64_are_those_of_mlx() {
    steps(&[[14, 2], [9, 3]], 64).expect("steps");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn steps_with_heads_of_128_are_those_of_mlx() {
    steps(&[[32, 8], [16, 8], [16, 1], [28, 4]], 128).expect("steps");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn steps_with_heads_of_256_are_those_of_mlx() {
    steps(&[[8, 4]], 256).expect("steps");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn steps_with_heads_of_512_are_those_of_mlx() {
    steps(&[[8, 1], [6, 2]], 512).expect("steps");
}

/// Steps of so many heads and key heads: the first ones in all ways, the others in those that
/// differ most.
fn steps(heads: &[[i32; 2]], d: i32) -> Result<()> {
    use_cuda();
    for (i, [n_heads, n_kv_heads]) in some(heads, 1).iter().enumerate() {
        let sizes = [*n_heads, *n_kv_heads, d];
        let ways = match i {
            0 => &[NORMED, CAPPED, UNTURNED, ALONE, NORMED_VALUES][..],
            _ => &[CAPPED, NORMED_VALUES],
        };
        for (b, at) in some(&[(1, 0), (3, 130), (1, 63), (1, 700), (8, 511), (2, 4000)], 2) {
            attention([*b, 1, *at], sizes, Dtype::Bf16, ways)?;
        }
        // Blocks are smaller where there are many, and look at keys in the same way.
        for (b, at) in some(&[(32, 600), (80, 150)], 0) {
            attention([*b, 1, *at], sizes, Dtype::Bf16, &[NORMED_VALUES])?;
        }
        // Rows of long buffers have parts of their own number: here from one to as many as there
        // are.
        for (b, at) in some(&[(40, 1300), (60, 9000)], 1) {
            attention([*b, 1, *at], sizes, Dtype::Bf16, &[NORMED, NORMED_VALUES])?;
        }
    }
    let [n_heads, n_kv_heads] = heads[0];
    attention([1, 1, 700], [n_heads, n_kv_heads, d], Dtype::F16, &[CAPPED, NORMED_VALUES])
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn packed_steps_with_heads_of_64_are_those_of_mlx() {
    packed_steps([14, 2, 64]).expect("steps");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn packed_steps_with_heads_of_128_are_those_of_mlx() {
    packed_steps([16, 4, 128]).expect("steps");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn packed_steps_with_heads_of_other_sizes_are_those_of_mlx() {
    for sizes in some(&[[8, 4, 256], [4, 4, 32], [6, 2, 512]], 2) {
        packed_steps(*sizes).expect("steps");
    }
}

/// Steps over packed keys and values of so many heads, key heads and values of a head.
fn packed_steps(sizes: [i32; 3]) -> Result<()> {
    use_cuda();
    let of = |bits, group_size| Quantization { mode: QuantMode::Affine, bits, group_size };
    let groups = if sizes[2] < 64 { &[32][..] } else { &[64, 32] };
    for (bits, group_size) in groups.iter().flat_map(|size| [(8, *size), (4, *size)]) {
        let packed = |way: Way| Way { packing: Some(of(bits, group_size)), ..way };
        let ways = [NORMED, CAPPED, NORMED_VALUES].map(packed);
        for (b, at) in some(&[(1, 700), (3, 130), (1, 63), (8, 511), (2, 4000)], 2) {
            attention([*b, 1, *at], sizes, Dtype::Bf16, &ways)?;
        }
        for (b, at) in some(&[(32, 600), (40, 1300), (60, 9000)], 0) {
            attention([*b, 1, *at], sizes, Dtype::Bf16, &ways[2..])?;
        }
        attention([1, 1, 140], sizes, Dtype::F16, &[packed(CAPPED)])?;
    }
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn chunks_with_heads_of_32_are_those_of_mlx() {
    chunks([4, 4, 32]).expect("chunks");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn chunks_with_heads_of_64_are_those_of_mlx() {
    chunks([9, 3, 64]).expect("chunks");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn chunks_with_heads_of_128_are_those_of_mlx() {
    chunks([16, 8, 128]).expect("chunks");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn chunks_with_heads_of_256_are_those_of_mlx() {
    chunks([8, 4, 256]).expect("chunks");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn packed_chunks_are_those_of_mlx() {
    use_cuda();
    let of = |bits, group_size| Quantization { mode: QuantMode::Affine, bits, group_size };
    let all = [([9, 3, 64], of(8, 64)), ([16, 8, 128], of(4, 64)), ([4, 4, 32], of(8, 32))];
    for (sizes, by) in some(&all, 3) {
        let packed = |way: Way| Way { packing: Some(*by), ..way };
        for way in some(&[[1, 17, 130], [3, 64, 0], [2, 65, 63], [1, 600, 0], [2, 200, 2000]], 2) {
            let ways = [NORMED, CAPPED].map(packed);
            attention(*way, *sizes, Dtype::Bf16, &ways).expect("chunks");
        }
    }
}

fn chunks(sizes: [i32; 3]) -> Result<()> {
    use_cuda();
    let all = [[1, 2, 0], [1, 17, 130], [3, 64, 0], [2, 65, 63], [1, 600, 0], [2, 200, 2000]];
    for of in some(&all, 2) {
        attention(*of, sizes, Dtype::Bf16, &[NORMED, CAPPED, UNTURNED, ALONE])?;
    }
    let last = if is_emulated() { [1, 3, 63] } else { [2, 65, 63] };
    attention(last, sizes, Dtype::F16, &[NORMED, CAPPED])
}

/// Outputs of a kernel in one way, to be computed yet.
struct Found {
    way: Way,
    angles: Array,
    out: Array,
    /// Keys, then values, as they are held.
    held: [Vec<Array>; 2],
    borrowed: Option<Array>,
}

/// Keys or values as they are held: codes, scales and biases where they are packed.
fn packed(held: &Array, by: Option<Quantization>) -> Result<Vec<Array>> {
    let Some(by) = by else { return Ok(vec![held.share()?]) };
    let Quantized { weight, scales, biases, .. } = quantize(held, by)?;
    Ok([weight, scales].into_iter().chain(biases).collect())
}

/// [`packed`] undone.
fn unpacked(held: &[Array], by: Option<Quantization>, dtype: Dtype) -> Result<Array> {
    let (Some(quantization), [weight, scales, biases]) = (by, held) else {
        return Ok(wide(&held[0]));
    };
    let [weight, scales, biases] = [weight.share()?, wide(scales), wide(biases)];
    assert_eq!(held[1].dtype(), dtype);
    dequantize(&Quantized { weight, scales, biases: Some(biases), quantization }, Dtype::F32)
}

/// The scales and biases of codes.
fn packing(held: &[Vec<Array>; 2], by: Option<Quantization>) -> Option<Packing<'_>> {
    let [keys, values] = [&held[0], &held[1]].map(|held| [held.get(1), held.get(2)]);
    match (by, keys, values) {
        (Some(quantization), [Some(a), Some(b)], [Some(c), Some(d)]) => {
            Some(Packing { quantization, keys: [a, b], values: [c, d] })
        }
        _ => None,
    }
}

/// A step where there is one new position of each row, a chunk where there are several.
fn attention([b, l, at]: [i32; 3], sizes: [i32; 3], dtype: Dtype, ways: &[Way]) -> Result<()> {
    let [n_heads, n_kv_heads, d] = sizes;
    let (end, capacity) = (at + l, at + l + 4);
    let (q_dim, kv_dim) = (n_heads * d, n_kv_heads * d);
    let qkv = cast(&values(&[b, l, q_dim + 2 * kv_dim], 1), dtype);
    let held = |seed| cast(&values(&[b, n_kv_heads, capacity, d], seed), dtype);
    let (keys, values_) = (held(2), held(3));
    let [q_norm, k_norm, v_norm] = [4, 5, 12].map(|seed| cast(&values(&[d], seed), dtype));
    let starts: Vec<i32> = (0..b).map(|row| (row * 37) % (at + 1)).collect();
    // Some rows' positions are more than their indices.
    let beyond: Vec<i32> = (0..b).map(|row| row * 3 - starts[row as usize]).collect();
    let rows: Vec<i32> = starts.iter().zip(&beyond).flat_map(|(a, b)| [*a, *b]).collect();
    let rows = Array::from_i32(&rows, &[2 * b])?;
    let on_device = Array::from_i32(&[at; 4], &[4])?;
    let counters = Counters::new(b * n_heads)?;
    let sinks = cast(&values(&[n_heads], 9), dtype);
    // Kernels are compiled as they are asked for once a thread has used the device: those of all
    // ways at once.
    eval_all([&qkv, &keys, &values_])?;
    let find = |way: Way| -> Result<Found> {
        let held = [packed(&keys, way.packing)?, packed(&values_, way.packing)?];
        eval_all(held.iter().flatten())?;
        let dims = if way.turned > 0 { d / way.turned } else { 0 };
        let radians: Vec<f32> =
            (0..dims / 2).map(|pair| 1e4_f32.powf(-2.0 * pair as f32 / dims as f32)).collect();
        let turns: Vec<f32> = beyond
            .iter()
            .flat_map(|beyond| (at + beyond..end + beyond).map(|position| 0.5 * position as f32))
            .flat_map(|position| {
                let angles = radians.iter().map(move |speed| position * speed);
                angles
                    .clone()
                    .map(|angle| 1.5 * angle.cos())
                    .chain(angles.map(|angle| 1.5 * angle.sin()))
            })
            .collect();
        let angles = Array::from_f32(&turns, &[b, l, dims])?;
        let radians = Array::from_f32(&radians, &[dims / 2])?;
        let turn = Turn { radians: &radians, scale: 0.5, magnitude: 1.5 };
        let v = way.normed_values.then_some(&v_norm);
        let norms = HeadNorms { q: &q_norm, k: &k_norm, v, eps: 1e-5 };
        let heads = |at| Heads { array: &qkv, at };
        let step = Step {
            q: heads(0),
            k: heads(q_dim),
            v: heads(q_dim + kv_dim),
            n_heads,
            keys: &held[0][0],
            values: &held[1][0],
            packing: packing(&held, way.packing),
            at,
            on_device: &on_device,
            rows: &rows,
            window: way.window,
            turn: (dims > 0).then_some(turn),
            norms: way.norms.then_some(norms),
            scale: 0.1,
            softcap: way.softcap,
            sinks: way.norms.then_some(&sinks),
        };
        let Attended { out, mut buffers } = match l {
            1 => cuda::step_attention(&step, &counters)?,
            _ => cuda::chunk_attention(&step)?,
        };
        let values = buffers.split_off(buffers.len() / 2);
        let held = [buffers, values];
        let borrowed = match l == 1 && way.norms {
            // What another layer wrote is seen as one's own.
            true => Some(cuda::borrowed_step_attention(
                &Step {
                    keys: &held[0][0],
                    values: &held[1][0],
                    packing: packing(&held, way.packing),
                    ..step
                },
                &counters,
            )?),
            false => None,
        };
        Ok(Found { way, angles, out, held, borrowed })
    };
    let found: Vec<Found> = ways.iter().map(|way| find(*way)).collect::<Result<_>>()?;
    for Found { way, angles, out, held, borrowed } in found {
        let what =
            |of: &str| format!("{of}: {b} rows, {l} after {at} keys, {sizes:?} {dtype:?} {way:?}");
        let dims = angles.shape()[2];
        // What is written in place may be read once it was evaluated.
        eval_all(held.iter().flatten().chain([&out]))?;
        let [new_keys, new_values] = &held;
        eval_all(&borrowed)?;
        // By MLX's operations in f32, which round where norms do: a score adds up what that does to
        // all values of a head.
        let normed = |x: &Array, norm: &Array| -> Result<Array> {
            let even = cast(&fast::rms_norm(x, None, 1e-5)?, dtype);
            Ok(wide(&cast(&ops::multiply(&wide(&even), &wide(norm))?, dtype)))
        };
        let part = |from: i32, n: i32| -> Result<Array> {
            let x = wide(&ops::slice_axis(&qkv, -1, from, from + n * d)?);
            ops::swap_axes(&ops::reshape(&x, &[b, l, n, d])?, 1, 2)
        };
        let made = |from: i32, n: i32, norm: &Array| -> Result<Array> {
            let x = part(from, n)?;
            let x = if way.norms { normed(&x, norm)? } else { x };
            if dims == 0 {
                return Ok(x);
            }
            let half = dims / 2;
            let angles = ops::reshape(&angles, &[b, 1, l, dims])?;
            let (cos, sin) =
                (ops::slice_axis(&angles, -1, 0, half)?, ops::slice_axis(&angles, -1, half, dims)?);
            let (low, high) =
                (ops::slice_axis(&x, -1, 0, half)?, ops::slice_axis(&x, -1, half, dims)?);
            let turned = [
                ops::subtract(&ops::multiply(&low, &cos)?, &ops::multiply(&high, &sin)?)?,
                ops::add(&ops::multiply(&low, &sin)?, &ops::multiply(&high, &cos)?)?,
                ops::slice_axis(&x, -1, dims, d)?,
            ];
            ops::concatenate(&turned.iter().collect::<Vec<_>>(), -1)
        };
        let (q, k) = (made(0, n_heads, &q_norm)?, made(q_dim, n_kv_heads, &k_norm)?);
        let v = part(q_dim + kv_dim, n_kv_heads)?;
        let v = if way.normed_values { normed(&v, &v_norm)? } else { v };
        let whole = |held: &Array, new: &Array| -> Result<Array> {
            let held = unpacked(&packed(held, way.packing)?, way.packing, dtype)?;
            let before = ops::slice_axis(&held, 2, 0, at)?;
            ops::concatenate(&[&before, &wide(&cast(new, dtype))], 2)
        };
        let (all_keys, all_values) = (whole(&keys, &k)?, whole(&values_, &v)?);
        let until =
            |held: &[Array]| ops::slice_axis(&unpacked(held, way.packing, dtype)?, 2, 0, end);
        // A code's worth: groups reach from -largest to largest at most. Zero has a code, so that
        // the end of a group may be off by one.
        let of_code = way.packing.map_or(0.0, |of| 2.0 / ((1 << of.bits) - 1) as f32);
        assert_held(&until(new_keys)?, &all_keys, 1e-2 + of_code, &what("keys"))?;
        let (expected, bound) = match way.packing {
            // New values are packed as they came, just as MLX packs them, but for ties.
            Some(_) if !way.normed_values => {
                let new = unpacked(&packed(&cast(&v, dtype), way.packing)?, way.packing, dtype)?;
                let found = ops::slice_axis(&until(new_values)?, 2, at, end)?;
                let off = ops::contiguous(&ops::subtract(&found, &new)?)?.to_vec_f32()?;
                let off = off.iter().map(|off| off.abs()).sum::<f32>() / off.len() as f32;
                assert!(off < of_code / 12.0, "{}: off by {off} in the mean", what("values"));
                let held = ops::slice_axis(&all_values, 2, 0, at)?;
                (ops::concatenate(&[&held, &new], 2)?, 1e-2 + of_code)
            }
            _ if way.normed_values => (all_values.share()?, 1e-2 + of_code),
            _ => (all_values.share()?, 1e-6),
        };
        assert_held(&until(new_values)?, &expected, bound, &what("values"))?;
        // New positions are seen as they are held, but for those of a first chunk.
        let (all_keys, all_values) = match way.packing {
            Some(_) if l == 1 || at > 0 => (until(new_keys)?, until(new_values)?),
            _ => (all_keys, all_values),
        };
        let shared_by = n_heads / n_kv_heads;
        let grouped = ops::reshape(&cast(&q, dtype), &[b, n_kv_heads, shared_by, l, d])?;
        let by_heads = |x: &Array| ops::expand_dims(x, 2);
        let scale = Array::scalar(0.1, Dtype::F32)?;
        let scores = ops::matmul(&wide(&grouped), &by_heads(&ops::swap_axes(&all_keys, -1, -2)?)?)?;
        let mut scores = ops::multiply(&scores, &scale)?;
        if let Some(softcap) = way.softcap {
            let softcap = Array::scalar(softcap, Dtype::F32)?;
            let capped = ops::tanh(&ops::divide(&scores, &softcap)?)?;
            scores = ops::multiply(&capped, &softcap)?;
        }
        let seen: Vec<f32> = starts
            .iter()
            .flat_map(|start| (at..end).map(move |query| (*start, query)))
            .flat_map(|(start, query)| {
                let first = start.max(way.window.map_or(0, |window| query + 1 - window));
                (0..end).map(move |key| if (first..=query).contains(&key) { 0.0 } else { -1e30 })
            })
            .collect();
        let seen = Array::from_f32(&seen, &[b, 1, 1, l, end])?;
        let mut scores = ops::add(&scores, &seen)?;
        if way.norms {
            let sinks = ops::reshape(&wide(&sinks), &[1, n_kv_heads, shared_by, 1, 1])?;
            let sinks = ops::broadcast_to(&sinks, &[b, n_kv_heads, shared_by, l, 1])?;
            scores = ops::concatenate(&[&scores, &sinks], -1)?;
        }
        let weights = ops::slice_axis(&ops::softmax(&scores, -1, true)?, -1, 0, end)?;
        let expected = ops::matmul(&weights, &by_heads(&all_values)?)?;
        let expected = ops::reshape(&expected, &[b, n_heads, l, d])?;
        let expected = ops::reshape(&ops::swap_axes(&expected, 1, 2)?, &[b, l, q_dim])?;
        // A step does not round weights: what is left is the result's rounding, 2⁻⁸, and now and
        // then another value of a key.
        let bound = if l == 1 { 1e-2 } else { 2e-2 };
        assert_near(&out, &expected, bound, &what("out"));
        if let Some(borrowed) = &borrowed {
            assert_near(borrowed, &expected, bound, &what("borrowed"));
        }
    }
    Ok(())
}

/// [`assert_near`] of arrays so large that their differences are found on the device.
#[track_caller]
fn assert_held(found: &Array, expected: &Array, bound: f32, what: &str) -> Result<()> {
    assert_eq!(found.shape(), expected.shape(), "{what}");
    let largest = |x: &Array| -> Result<f32> {
        let all = ops::reshape(&ops::abs(x)?, &[-1])?;
        Ok(ops::max(&all, 0, false)?.to_vec_f32()?[0])
    };
    let difference = largest(&ops::subtract(&wide(found), expected)?)?;
    let worst = difference / largest(expected)?.max(1e-3);
    assert!(worst < bound, "{what}: off by {worst}");
    Ok(())
}
