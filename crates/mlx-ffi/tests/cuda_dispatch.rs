//! Operations that are sent to a CUDA device past MLX, against those that MLX evaluates.

mod arrays;
mod on_cuda;

use mlx_ffi::step::{Heads, Step};
use mlx_ffi::{Array, Dispatch, Dispatcher, Dtype, Result, cuda, eval_all, ops};

use self::arrays::{assert_near, cast, values, wide};
use self::on_cuda::use_cuda;

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn dispatched_operations_are_those_that_mlx_evaluates() {
    use_cuda();
    dispatched().expect("a layer");
}

fn dispatched() -> Result<()> {
    const HEADS: i32 = 2;
    const D: i32 = 64;
    const HIDDEN: i32 = HEADS * D;
    const L: i32 = 40;
    let dtype = Dtype::Bf16;
    let scale = Array::scalar((HIDDEN as f32).sqrt().recip(), Dtype::F32)?;
    let weights = |n| ops::multiply(&values(&[n, HIDDEN], 7), &scale).map(|w| cast(&w, dtype));
    let (w_qkv, w_out) = (&weights(3 * HIDDEN)?, &weights(HIDDEN)?);
    let rows = Array::from_i32(&[0; 4], &[4])?;
    let ats = [0, L].map(|at| Array::from_i32(&[at; 4], &[4]).expect("an index"));
    let layer = |x: &Array, held: &[Array; 2], index: usize| -> Result<[Array; 3]> {
        let qkv = cuda::dense(x, w_qkv)?;
        let part = |head| Heads { array: &qkv, at: head * D };
        let step = Step {
            q: part(0),
            k: part(HEADS),
            v: part(2 * HEADS),
            n_heads: HEADS,
            keys: &held[0],
            values: &held[1],
            at: L * index as i32,
            on_device: &ats[index],
            rows: &rows,
            window: None,
            turn: None,
            norms: None,
            scale: 0.1,
            softcap: None,
            sinks: None,
        };
        let [out, keys, values] = cuda::chunk_attention(&step)?;
        Ok([cuda::residual(x, &cuda::dense(&out, w_out)?, None, None, 0.0, None)?.0, keys, values])
    };
    // What is lazy, and not ours, is evaluated before.
    let x = |index| cast(&values(&[1, L, HIDDEN], 20 + index as u32), dtype);
    let held = || cuda::buffers(&[1, HEADS, 2 * L, D], dtype);
    let mut dispatcher = Dispatcher::new(None)?;
    let (mut by_mlx, mut ours) = (held()?, held()?);
    for index in 0..2 {
        let [expected, keys, values] = layer(&x(index), &by_mlx, index)?;
        eval_all([&expected, &keys, &values])?;
        by_mlx = [keys, values];
        let [h, keys, values] = layer(&x(index), &ours, index)?;
        // A minute for their compilation.
        let sent = (0..600).map(|_| {
            let outcome = dispatcher.send([&h, &keys, &values]);
            if matches!(outcome, Ok(Dispatch::NotYet)) {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            outcome
        });
        let mut sent = sent.take_while(Result::is_ok).flatten();
        assert_eq!(sent.find(|of| *of != Dispatch::NotYet), Some(Dispatch::Sent));
        ours = [keys, values];
        let twice = ops::add(&h, &h)?;
        assert_near(&twice, &wide(&ops::add(&expected, &expected)?), 1e-2, "hidden states");
        dispatcher.wait()?;
        let filled = |held: &Array| ops::slice_axis(held, 2, 0, L * (index as i32 + 1));
        for (found, expected) in ours.iter().zip(&by_mlx) {
            assert_near(&filled(found)?, &wide(&filled(expected)?), 1e-2, "keys and values");
        }
    }
    // An operation of MLX's between ours, which MLX may evaluate with what is before it.
    let between = ops::add(&cuda::dense(&x(0), w_out)?, &x(1))?;
    let last = cuda::dense(&between, w_out)?;
    assert_eq!(dispatcher.send([&last])?, Dispatch::Sent);
    let expected = ops::matmul(&wide(&between), &ops::swap_axes(&wide(w_out), 0, 1)?)?;
    assert_near(&last, &expected, 1e-2, "what was sent behind another operation");
    // It may not where one of ours writes in place.
    let [h, keys, values] = layer(&x(0), &held()?, 0)?;
    let last = cuda::dense(&ops::add(&h, &x(1))?, w_out)?;
    assert_eq!(dispatcher.send([&last, &keys, &values])?, Dispatch::Impossible);
    eval_all([&last, &keys, &values])?;
    assert_eq!(dispatcher.send([&last])?, Dispatch::Sent);
    Ok(())
}
