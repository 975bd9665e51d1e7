//! Arguments that nobody should give to our kernels for CUDA: they stay inside their buffers.

use mlx_ffi::step::{Counters, Heads, Step};
use mlx_ffi::{Array, Device, Dtype, Result, cuda, eval_all, ops, random, use_device};

/// Uses the CUDA device on this thread; there must be one.
fn use_cuda() {
    use_device(Device::Gpu).expect("a GPU that MLX uses");
    assert_eq!(Device::Gpu.info().expect("a device").backend, "cuda");
}

fn normal(shape: &[i32], seed: u64) -> Result<Array> {
    random::normal(shape, Dtype::Bf16, &random::key(seed)?)
}

fn wide(x: &Array) -> Result<Vec<f32>> {
    ops::astype(x, Dtype::F32)?.to_vec_f32()
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn a_step_stays_inside_its_buffers_whatever_the_device_holds() {
    use_cuda();
    hostile_step().expect("steps");
}

fn hostile_step() -> Result<()> {
    const D: i32 = 64;
    const CAPACITY: i32 = 8;
    const AROUND: i32 = 4;
    let qkv = normal(&[1, 1, 3 * D], 1)?;
    let gaps = normal(&[1, 3 * D, 2], 1)?;
    let gaps = ops::swap_axes(&ops::slice_axis(&gaps, 2, 0, 1)?, 1, 2)?;
    let counters = Counters::new(1)?;
    for (at, first, x, fails) in [
        (-1, 0, &qkv, false),
        (CAPACITY, 0, &qkv, false),
        (i32::MAX, 0, &qkv, false),
        (i32::MIN, i32::MIN, &qkv, false),
        (3, -100, &qkv, false),
        (3, 100, &qkv, false),
        (3, 0, &gaps, true),
    ] {
        // The buffers of keys and values are the middle of something larger.
        let whole = || normal(&[1, 1, CAPACITY + 2 * AROUND, D], 2);
        let (around_keys, around_values) = (whole()?, whole()?);
        let middle = |of: &Array| ops::slice_axis(of, 2, AROUND, AROUND + CAPACITY);
        let (keys, values) = (middle(&around_keys)?, middle(&around_values)?);
        eval_all([&around_keys, &around_values, &keys, &values, &gaps])?;
        let outside = |of: &Array| -> Result<Vec<f32>> {
            let low = wide(&ops::slice_axis(of, 2, 0, AROUND)?)?;
            let high = ops::slice_axis(of, 2, AROUND + CAPACITY, CAPACITY + 2 * AROUND)?;
            Ok([low, wide(&high)?].concat())
        };
        let before = [outside(&around_keys)?, outside(&around_values)?];
        let on_device = Array::from_i32(&[at; 4], &[4])?;
        let rows = Array::from_i32(&[first, 0, 0, 0], &[4])?;
        let part = |head| Heads { array: x, at: head * D };
        let made = cuda::step_attention(&Step {
            q: part(0),
            k: part(1),
            v: part(2),
            n_heads: 1,
            keys: &keys,
            values: &values,
            at: 3,
            on_device: &on_device,
            rows: &rows,
            window: None,
            counters: &counters,
            turn: None,
            norms: None,
            scale: 0.1,
            softcap: None,
            sinks: None,
        })?;
        if fails {
            let error = made[0].eval().expect_err("queries with gaps").to_string();
            assert!(error.contains("has gaps"), "{error}");
            continue;
        }
        eval_all(&made)?;
        let after = [outside(&around_keys)?, outside(&around_values)?];
        assert_eq!(before, after, "position {at} of a row that begins at {first}");
    }
    Ok(())
}
