//! Operations that are sent to a CUDA device past MLX, against those that MLX evaluates.

use mlx_ffi::cuda::Attended;
use mlx_ffi::step::{Heads, Step};
use mlx_ffi::{
    Array, Dispatch, Dispatcher, Dtype, Error, Recorded, Replay, Result, cuda, eval_all, ops,
};

use super::arrays::{assert_near, cast, values, wide};
use super::on_cuda::use_cuda;

const HEADS: i32 = 2;
const D: i32 = 64;
const HIDDEN: i32 = HEADS * D;
const DTYPE: Dtype = Dtype::Bf16;

/// The matrices of a layer: of queries, keys and values, and of what attention gives.
struct Layer([Array; 2]);

impl Layer {
    fn new() -> Result<Layer> {
        let scale = Array::scalar((HIDDEN as f32).sqrt().recip(), Dtype::F32)?;
        let weights = |n| ops::multiply(&values(&[n, HIDDEN], 7), &scale).map(|w| cast(&w, DTYPE));
        let matrices = [weights(3 * HIDDEN)?, weights(HIDDEN)?];
        eval_all(&matrices)?;
        Ok(Layer(matrices))
    }

    /// Hidden states, keys and values with `l` positions more, from `at` on, of which `on_device`
    /// has the index and the rows.
    fn forward(
        &self,
        x: &Array,
        held: &[Array; 2],
        at: i32,
        [on_device, rows]: [&Array; 2],
    ) -> Result<[Array; 3]> {
        let Layer([w_qkv, w_out]) = self;
        let qkv = cuda::dense(x, w_qkv)?;
        let part = |head| Heads { array: &qkv, at: head * D };
        let step = Step {
            q: part(0),
            k: part(HEADS),
            v: part(2 * HEADS),
            n_heads: HEADS,
            keys: &held[0],
            values: &held[1],
            packing: None,
            at,
            on_device,
            rows,
            window: None,
            turn: None,
            norms: None,
            scale: 0.1,
            softcap: None,
            sinks: None,
        };
        let Attended { out, buffers } = cuda::chunk_attention(&step)?;
        let Ok([keys, values]) = <[Array; 2]>::try_from(buffers) else {
            return Err(Error::new("a chunk of attention without keys and values"));
        };
        let h = cuda::residual(x, &cuda::dense(&out, w_out)?, None, None, 0.0, None, None)?.0;
        Ok([h, keys, values])
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn dispatched_operations_are_those_that_mlx_evaluates() {
    use_cuda();
    dispatched().expect("a layer");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn a_captured_chunk_follows_its_buffers() {
    use_cuda();
    followed().expect("a layer");
}

/// Rows of a product, apart and joined again.
#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn parts_of_what_is_dispatched_are_taken_where_they_lie() {
    use_cuda();
    apart().expect("a product");
}

fn apart() -> Result<()> {
    let Layer([w_qkv, _]) = &Layer::new()?;
    let made = |x: &Array| -> Result<[Array; 2]> {
        let qkv = cuda::dense(x, w_qkv)?;
        let first = ops::reshape(&ops::slice_axis(&qkv, 1, 1, 7)?, &[2, 3, 3 * HIDDEN])?;
        let last = ops::slice_axis(&ops::slice_axis(&qkv, 1, 5, 8)?, 1, 2, 3)?;
        Ok([cuda::join(&cuda::sum(&first, &first)?, &last)?, last])
    };
    let x = cast(&values(&[1, 8, HIDDEN], 3), DTYPE);
    let expected = made(&x)?;
    eval_all(&expected)?;
    let mut dispatcher = Dispatcher::new(None)?;
    let found = made(&x)?;
    // A minute for their compilation.
    for _ in 0..600 {
        match dispatcher.send(&found)? {
            Dispatch::NotYet => std::thread::sleep(std::time::Duration::from_millis(100)),
            outcome => {
                assert_eq!(outcome, Dispatch::Sent);
                break;
            }
        }
    }
    dispatcher.wait()?;
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.shape(), expected.shape());
        assert_near(found, &wide(expected), 1e-2, "parts");
    }
    Ok(())
}

fn followed() -> Result<()> {
    const L: i32 = 48;
    let layer = Layer::new()?;
    let run = |captures: bool| -> Result<Vec<Array>> {
        let (mut replay, mut found, mut repetitions) = (None, Vec::new(), 0);
        // Others begin behind a prefix, in longer buffers.
        for (index, (at, capacity)) in
            [(0, 64), (0, 64), (0, 128), (5, 64), (70, 128), (0, 64)].into_iter().enumerate()
        {
            let shape = [1, HEADS, capacity, D];
            let held = if at > 0 {
                [ops::zeros(&shape, DTYPE)?, ops::zeros(&shape, DTYPE)?]
            } else {
                cuda::buffers_of_layers(&shape, DTYPE, 9)?.swap_remove(8 * (index % 2))
            };
            eval_all(&held)?;
            let x = cast(&values(&[1, L, HIDDEN], 40 + index as u32), DTYPE);
            let on_device = Array::from_i32(&[at; 4], &[4])?;
            let rows = Array::from_i32(&[0; 4], &[4])?;
            let (moving, fixed) = ([&x, &on_device, &rows], [&held[0], &held[1]]);
            if let Some(Recorded::Kept(replay)) = &mut replay {
                let h = Replay::run(replay, &moving, &fixed)?.expect("all have one form");
                repetitions += 1;
                let h = wide(&h);
                eval_all([&h])?;
                Replay::wait(replay)?;
                found.push(h);
                let filled = ops::slice_axis(&held[0], 2, at, at + L)?;
                found.push(wide(&filled));
                continue;
            }
            let [h, keys, _] = layer.forward(&x, &held, at, [&on_device, &rows])?;
            // A minute for their compilation.
            for _ in 0..if captures && index == 1 { 6000 } else { 0 } {
                replay = Some(Replay::record_following(&h, &moving, &fixed, None)?);
                match replay {
                    Some(Recorded::Kept(_)) => break,
                    Some(Recorded::NotYet) => {}
                    _ => panic!("a chunk is not kept"),
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            found.extend([wide(&h), wide(&ops::slice_axis(&keys, 2, at, at + L)?)]);
        }
        assert_eq!(repetitions, if captures { 4 } else { 0 });
        if let Some(Recorded::Kept(mut replay)) = replay {
            let short = cuda::buffers(&[1, HEADS, L, D], DTYPE)?;
            let long = cuda::buffers(&[1, HEADS, 256, D], DTYPE)?;
            eval_all(short.iter().chain(&long))?;
            let x = cast(&values(&[1, L, HIDDEN], 1), DTYPE);
            let at = Array::from_i32(&[0; 4], &[4])?;
            let mut run = |keys, values| replay.run(&[&x, &at, &at], &[keys, values]);
            assert!(run(&short[0], &short[1])?.is_none(), "shorter ones");
            assert!(run(&long[0], &short[1])?.is_none(), "one that is longer");
            assert!(run(&long[0], &long[1])?.is_some(), "both are longer");
        }
        Ok(found)
    };
    for (found, expected) in run(true)?.iter().zip(&run(false)?) {
        assert_near(found, expected, 1e-2, "hidden states and keys");
    }
    Ok(())
}

fn dispatched() -> Result<()> {
    const L: i32 = 40;
    let layer = Layer::new()?;
    let Layer([_, w_out]) = &layer;
    let rows = Array::from_i32(&[0; 4], &[4])?;
    let ats = [0, L].map(|at| Array::from_i32(&[at; 4], &[4]).expect("an index"));
    let layer = |x: &Array, held: &[Array; 2], index: usize| {
        layer.forward(x, held, L * index as i32, [&ats[index], &rows])
    };
    // What is lazy, and not ours, is evaluated before.
    let x = |index| cast(&values(&[1, L, HIDDEN], 20 + index as u32), DTYPE);
    let held = || cuda::buffers(&[1, HEADS, 2 * L, D], DTYPE);
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
