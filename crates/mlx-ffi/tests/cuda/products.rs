//! Our kernels for CUDA against MLX's operations in f32.

use mlx_ffi::cuda::{self, Around, Attended, Weights};
use mlx_ffi::step::{Counters, HeadNorms, Heads, Step, Turn};
use mlx_ffi::{Activation, Array, Dtype, Error, Recorded, Replay, Result, eval_all, fast, ops};

use super::arrays::{assert_near, cast, values, wide};
use super::matrix::Matrix;
use super::on_cuda::{some, use_cuda};

const PACKINGS: [Option<(i32, i32)>; 6] =
    [None, Some((4, 64)), Some((4, 32)), Some((4, 128)), Some((8, 64)), Some((8, 32))];

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn products_of_one_row_are_those_of_mlx() {
    use_cuda();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        for packing in PACKINGS {
            let all =
                [(64, 128), (202, 1152), (1000, 1152), (4096, 1024), (2560, 9728), (20002, 2560)];
            for (n, k) in some(&all, 2) {
                one_row(*n, *k, dtype, packing).expect("products");
            }
        }
    }
}

fn one_row(n: i32, k: i32, dtype: Dtype, packing: Option<(i32, i32)>) -> Result<()> {
    // An odd number of rows.
    let w = Matrix::new(n - 1, k, dtype, packing);
    let x = cast(&values(&[1, 1, k], 2), dtype);
    let found = cuda::one_row(&x, w.weights(), &Around::default())?;
    let expected = ops::matmul(&wide(&x), &w.transposed()?)?;
    assert_near(&found, &expected, 1e-2, &format!("{} x {k} {dtype:?} {packing:?}", n - 1));

    let what = |of: &str| format!("{of} {n} x {k} {dtype:?} {packing:?}");
    let w = Matrix::new(n, k, dtype, packing);
    let (weights, transposed) = (w.weights(), w.transposed()?);
    let x = cast(&values(&[1, 1, k], 1), dtype);
    let plain = ops::matmul(&wide(&x), &transposed)?;
    assert!(cuda::takes_one_row(&x, weights, &Around::default()));
    let found = cuda::one_row(&x, weights, &Around::default())?;
    assert_near(&found, &plain, 1e-2, &what("plain"));

    let (norm, bias) = (cast(&values(&[k], 3), dtype), cast(&values(&[n], 4), dtype));
    let onto = cast(&values(&[1, 1, n], 5), dtype);
    let normed = fast::rms_norm(&wide(&x), Some(&wide(&norm)), 1e-5)?;
    let product = ops::add(&ops::matmul(&normed, &transposed)?, &wide(&bias))?;
    let around = Around {
        norm: Some((&norm, 1e-5)),
        bias: Some(&bias),
        onto: Some(&onto),
        ..Around::default()
    };
    let expected = ops::add(&product, &wide(&onto))?;
    assert_near(&cuda::one_row(&x, weights, &around)?, &expected, 2e-2, &what("around"));

    let half = n / 2;
    let (gate, up) =
        (ops::slice_axis(&product, -1, 0, half)?, ops::slice_axis(&product, -1, half, n)?);
    let silu = ops::multiply(&gate, &ops::sigmoid(&gate)?)?;
    let around = Around { gate: Some(Activation::Silu), onto: None, ..around };
    let found = cuda::one_row(&x, weights, &around)?;
    assert_near(&found, &ops::multiply(&silu, &up)?, 2e-2, &what("silu"));
    let scalar = |value: f32| Array::scalar(value, Dtype::F32);
    let cube = ops::multiply(&ops::multiply(&gate, &gate)?, &gate)?;
    let inner = ops::add(&gate, &ops::multiply(&cube, &scalar(0.044_715)?)?)?;
    let inner = ops::tanh(&ops::multiply(&inner, &scalar(0.797_884_6)?)?)?;
    let open = ops::multiply(&ops::add(&inner, &scalar(1.0)?)?, &scalar(0.5)?)?;
    let gelu = ops::multiply(&gate, &open)?;
    let around = Around { gate: Some(Activation::GeluTanh), ..around };
    let found = cuda::one_row(&x, weights, &around)?;
    assert_near(&found, &ops::multiply(&gelu, &up)?, 2e-2, &what("gelu"));
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn launches_that_are_kept_repeat_what_they_did() {
    use_cuda();
    // The products of the last ones are those of NVIDIA's library. A processor keeps no launches of
    // kernels.
    for b in some(&[1, 5, 40, 130], 0) {
        repeated(*b).expect("steps");
    }
}

/// Arrays that a step of some rows reads and writes.
struct Held {
    keys: Array,
    values: Array,
    at: Array,
}

/// Steps of a layer, each of its own input, some as they are and the others as repetitions.
fn repeated(b: i32) -> Result<()> {
    const STEPS: i32 = 80;
    let (dtype, hidden, heads, d, capacity) = (Dtype::Bf16, 256, 12, 64, 512);
    let w = Matrix::new(3 * heads * d, hidden, dtype, None);
    let w_out = Matrix::new(hidden, heads * d, dtype, None);
    let rows = Array::from_i32(&vec![0; 2 * b.max(2) as usize], &[2 * b.max(2)])?;
    let counters = Counters::new(b * heads)?;
    let one = Array::from_i32(&[1], &[1])?;
    // What a step reads before the kernel before it has ended.
    let angles: Vec<f32> = (0..d / 2).map(|pair| 0.8_f32.powi(pair)).collect();
    let radians = Array::from_f32(&angles, &[d / 2])?;
    let [q_norm, k_norm] = [7, 8].map(|seed| cast(&values(&[d], seed), dtype));
    eval_all([&rows, &radians, &q_norm, &k_norm])?;
    let product = |x: &Array, w: &Matrix| match (b, w.weights()) {
        (1, w) => cuda::one_row(x, w, &Around::default()),
        (33.., Weights::Dense(w)) => cuda::dense(x, w),
        (_, w) => cuda::several_rows(x, w),
    };
    let layer = |x: &Array, index: i32, held: &Held| -> Result<[Array; 3]> {
        let qkv = product(x, &w)?;
        let part = |at| Heads { array: &qkv, at };
        let step = Step {
            q: part(0),
            k: part(heads * d),
            v: part(2 * heads * d),
            n_heads: heads,
            keys: &held.keys,
            values: &held.values,
            packing: None,
            at: index,
            on_device: &held.at,
            rows: &rows,
            window: None,
            turn: Some(Turn { radians: &radians, scale: 1.0, magnitude: 1.0 }),
            norms: Some(HeadNorms { q: &q_norm, k: &k_norm, v: None, eps: 1e-6 }),
            scale: 0.1,
            softcap: None,
            sinks: None,
        };
        let Attended { out, buffers } = cuda::step_attention(&step, &counters)?;
        let Ok([keys, values]) = <[Array; 2]>::try_from(buffers) else {
            return Err(Error::new("a step of attention without keys and values"));
        };
        let added = match b {
            2..=cuda::MOST_DENSE_ROWS => cuda::several_rows_in_parts(&out, w_out.weights())?,
            _ => product(&out, &w_out)?,
        };
        Ok([cuda::residual(x, &added, None, None, 0.0, None, None)?.0, keys, values])
    };
    let run = |repeats: bool| -> Result<Vec<Vec<f32>>> {
        let empty = || ops::zeros(&[b, heads, capacity, d], dtype);
        let at = Array::from_i32(&[-1; 4], &[4])?;
        let mut held = Held { keys: empty()?, values: empty()?, at };
        eval_all([&held.keys, &held.values])?;
        let (mut replay, mut outputs, mut repetitions) = (None, Vec::new(), 0);
        for index in 0..STEPS {
            let x = cast(&values(&[b, 1, hidden], 50 + index as u32), dtype);
            held.at = ops::add(&held.at, &one)?;
            let again = match &mut replay {
                Some(Recorded::Kept(replay)) => {
                    Replay::run(replay, &[&x, &held.at], &[&held.keys, &held.values])?
                }
                _ => None,
            };
            if let Some(out) = again {
                repetitions += 1;
                outputs.push(wide(&out).to_vec_f32()?);
                continue;
            }
            let [out, keys, values] = layer(&x, index, &held)?;
            // A minute for their compilation.
            for _ in 0..if repeats && index == 2 { 6000 } else { 0 } {
                let fixed = [&held.keys, &held.values];
                replay = Some(Replay::record(
                    &out,
                    &[&x, &held.at],
                    &fixed,
                    b <= cuda::MOST_SEVERAL_ROWS,
                    None,
                )?);
                match replay {
                    Some(Recorded::Kept(_)) => break,
                    Some(Recorded::NotYet) => {}
                    _ => panic!("launches of {b} rows are not kept"),
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            outputs.push(wide(&out).to_vec_f32()?);
            (held.keys, held.values) = (keys, values);
        }
        assert_eq!(repetitions, if repeats { STEPS - 3 } else { 0 });
        if let Some(Recorded::Kept(mut replay)) = replay {
            // Buffers that are others, and shapes that are.
            let x = values(&[b, 1, hidden], 1);
            let (x, wider) = (cast(&x, dtype), wide(&x));
            let keys = ops::add(&held.keys, &held.keys)?;
            eval_all([&keys])?;
            assert!(replay.run(&[&x, &held.at], &[&keys, &held.values])?.is_none());
            assert!(replay.run(&[&wider, &held.at], &[&held.keys, &held.values])?.is_none());
            assert!(replay.run(&[&x], &[&held.keys, &held.values])?.is_none());
        }
        Ok(outputs)
    };
    let (found, expected) = (run(true)?, run(false)?);
    if b <= cuda::MOST_DENSE_ROWS {
        assert_eq!(found, expected, "{b} rows");
    } else {
        // MLX lets the library choose another kernel.
        let all = |steps: &[Vec<f32>]| Array::from_f32(&steps.concat(), &[STEPS, b * hidden]);
        assert_near(&all(&found)?, &all(&expected)?, 2e-2, &format!("{b} rows"));
    }
    // What is not only launches of these kernels is not kept.
    let x = cast(&values(&[b, 1, hidden], 1), dtype);
    let other = ops::add(&product(&x, &w)?, &one)?;
    let found = Replay::record(&other, &[&x], &[], false, None)?;
    assert!(matches!(found, Recorded::Impossible));
    Ok(())
}
