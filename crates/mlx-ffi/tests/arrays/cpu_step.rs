//! A step of attention by our own kernels for CPUs, and steps that are repeated as one.

use mlx_ffi::step::{HeadNorms, Heads, Step, Turn};
use mlx_ffi::{
    Array, Device, Dtype, Recorded, Replay, Result, cpu, eval_all, ops, random, use_device,
};

const HEADS: i32 = 6;
const KV_HEADS: i32 = 2;
const D: i32 = 16;
const HIDDEN: i32 = 48;
const CAPACITY: i32 = 64;

fn normal(shape: &[i32], dtype: Dtype, seed: u64) -> Result<Array> {
    let array = random::normal(shape, dtype, &random::key(seed)?)?;
    array.eval()?;
    Ok(array)
}

/// The values, by way of an operation: what repetitions give is not waited for otherwise.
fn bits(array: &Array) -> Result<Vec<f32>> {
    ops::reshape(&ops::astype(&ops::negative(array)?, Dtype::F32)?, &[-1])?.to_vec_f32()
}

/// A layer: attention with norms and a rotation, and a residual.
struct Layer {
    qkv: Array,
    o: Array,
    bias: Array,
    norm: Array,
    q_norm: Array,
    k_norm: Array,
    radians: Array,
    /// First position and distance of each row.
    rows: Array,
    window: Option<i32>,
}

/// Keys and values that steps have written.
struct Held {
    keys: Array,
    values: Array,
}

impl Layer {
    fn new(dtype: Dtype, b: i32, window: Option<i32>) -> Result<Layer> {
        let rows: Vec<i32> = (0..b).flat_map(|row| [row, -row]).collect();
        Ok(Layer {
            qkv: normal(&[(HEADS + 2 * KV_HEADS) * D, HIDDEN], dtype, 1)?,
            o: normal(&[HIDDEN, HEADS * D], dtype, 2)?,
            bias: normal(&[HIDDEN], dtype, 3)?,
            norm: normal(&[HIDDEN], dtype, 4)?,
            q_norm: normal(&[D], dtype, 5)?,
            k_norm: normal(&[D], dtype, 6)?,
            radians: Array::from_f32(&[1.0, 0.3, 0.1, 0.03], &[4])?,
            rows: Array::from_i32(&rows, &[2 * b])?,
            window,
        })
    }

    fn held(&self, dtype: Dtype, b: i32) -> Result<Held> {
        let buffer = || ops::zeros(&[b, KV_HEADS, CAPACITY, D], dtype);
        let held = Held { keys: buffer()?, values: buffer()? };
        eval_all([&held.keys, &held.values])?;
        Ok(held)
    }

    /// Hidden states and the buffers after a step.
    fn step(&self, x: &Array, at: i32, on_device: &Array, held: &Held) -> Result<[Array; 3]> {
        let qkv = cpu::matmul(&cpu::rms_norm(x, &self.norm, 1e-5)?, &self.qkv)?;
        let part = |head| Heads { array: &qkv, at: head * D };
        let turn = Turn { radians: &self.radians, scale: 0.5, magnitude: 1.25 };
        let [out, keys, values] = cpu::step_attention(&Step {
            q: part(0),
            k: part(HEADS),
            v: part(HEADS + KV_HEADS),
            n_heads: HEADS,
            keys: &held.keys,
            values: &held.values,
            packing: None,
            at,
            on_device,
            rows: &self.rows,
            window: self.window,
            turn: Some(turn),
            norms: Some(HeadNorms { q: &self.q_norm, k: &self.k_norm, v: None, eps: 1e-4 }),
            scale: 0.3,
            softcap: None,
            sinks: None,
        })?;
        let out = cpu::add(&cpu::matmul(&out, &self.o)?, &self.bias)?;
        Ok([cpu::add(x, &out)?, keys, values])
    }

    /// The output of attention in a step, by operations for any number of positions.
    fn expected(&self, x: &Array, at: i32, held: &Held) -> Result<Array> {
        let b = x.shape()[0];
        let qkv = cpu::matmul(&cpu::rms_norm(x, &self.norm, 1e-5)?, &self.qkv)?;
        let mut turns: Vec<f32> = Vec::new();
        for row in 0..b {
            let angles = [1.0f32, 0.3, 0.1, 0.03].map(|radians| (at - row) as f32 * 0.5 * radians);
            turns.extend(angles.map(|angle| angle.cos() * 1.25));
            turns.extend(angles.map(|angle| angle.sin() * 1.25));
        }
        let turns = Array::from_f32(&turns, &[b, 1, 8])?;
        let heads = |first: i32, n: i32, norm: Option<&Array>, turns: Option<&Array>| {
            let columns = first * D..(first + n) * D;
            cpu::heads(&qkv, columns, D, norm.map(|norm| (norm, 1e-4)), turns)
        };
        let q = heads(0, HEADS, Some(&self.q_norm), Some(&turns))?;
        let k = heads(HEADS, KV_HEADS, Some(&self.k_norm), Some(&turns))?;
        let v = heads(HEADS + KV_HEADS, KV_HEADS, None, None)?;
        let written = |buffer: &Array, new: &Array| {
            let all = ops::slice_update_axis(buffer, new, 2, at, at + 1)?;
            ops::slice_axis(&all, 2, 0, at + 1)
        };
        let (keys, values) = (written(&held.keys, &k)?, written(&held.values, &v)?);
        let starts: Vec<i32> = (0..b).collect();
        let visible = cpu::Visible { starts: &starts, causal: true, window: self.window };
        cpu::attention(&q, &keys, &values, 0.3, None, None, visible)
    }
}

#[test]
fn a_step_of_attention_is_that_of_many_positions_to_the_bit() -> Result<()> {
    use_device(Device::Cpu)?;
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        for (b, window) in [(1, None), (3, None), (2, Some(7))] {
            let layer = Layer::new(dtype, b, window)?;
            let mut held = layer.held(dtype, b)?;
            for at in 0..20 {
                let x = normal(&[b, 1, HIDDEN], dtype, 100 + at as u64)?;
                let on_device = Array::from_i32(&[at], &[1])?;
                let out = cpu::matmul(&layer.expected(&x, at, &held)?, &layer.o)?;
                let expected = ops::add(&x, &ops::add(&out, &layer.bias)?)?;
                let expected = bits(&expected)?;
                let [h, keys, values] = layer.step(&x, at, &on_device, &held)?;
                assert_eq!(bits(&h)?, expected, "{dtype:?} {b} rows, position {at}");
                held = Held { keys, values };
            }
        }
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    use_device(Device::Cpu)?;
    let layer = Layer::new(Dtype::F32, 1, None)?;
    let held = layer.held(Dtype::F32, 1)?;
    let x = normal(&[1, 1, HIDDEN], Dtype::F32, 9)?;
    let index = |at| Array::from_i32(&[at], &[1]);
    layer.step(&x, CAPACITY, &index(0)?, &held).expect_err("no room");
    layer.step(&normal(&[2, 1, HIDDEN], Dtype::F32, 9)?, 0, &index(0)?, &held).expect_err("rows");
    layer.step(&x, 0, &normal(&[1], Dtype::F32, 1)?, &held).expect_err("no integers");
    // What is known only when it is computed is the error of the evaluation.
    let error = layer.step(&x, 0, &index(CAPACITY)?, &held)?[0].eval().expect_err("no room");
    assert!(error.to_string().contains("no room for position 64"), "{error}");
    let twice = Held { keys: held.keys.share()?, values: held.keys.share()? };
    let error = layer.step(&x, 0, &index(0)?, &twice)?[0].eval().expect_err("one buffer for both");
    assert!(error.to_string().contains("another of its inputs too"), "{error}");
    cpu::add(&x, &normal(&[3], Dtype::F32, 1)?).expect_err("shapes");
    cpu::add(&x, &normal(&[HIDDEN], Dtype::F16, 1)?).expect_err("types");
    Ok(())
}

#[test]
fn repetitions_follow_buffers_to_where_they_are() -> Result<()> {
    const STEPS: i32 = 30;
    use_device(Device::Cpu)?;
    let (dtype, b) = (Dtype::Bf16, 2);
    let layers = [Layer::new(dtype, b, None)?, Layer::new(dtype, b, Some(9))?];
    let run = |follows: bool| -> Result<Vec<Vec<f32>>> {
        let mut held = [layers[0].held(dtype, b)?, layers[1].held(dtype, b)?];
        let (mut replay, mut found) = (None, Vec::new());
        for at in 0..STEPS {
            let x = normal(&[b, 1, HIDDEN], dtype, 300 + at as u64)?;
            let x = ops::add(&x, &ops::zeros(&[1], dtype)?)?;
            let on_device = Array::from_i32(&[at], &[1])?;
            if let Some(Recorded::Kept(replay)) = &mut replay {
                // Some stay where they are.
                if at % 3 != 0 {
                    let copy = |of: &Array| ops::add(of, &ops::zeros(&[1], dtype)?);
                    let of = &held[at as usize % 2];
                    let copies = Held { keys: copy(&of.keys)?, values: copy(&of.values)? };
                    eval_all([&copies.keys, &copies.values])?;
                    held[at as usize % 2] = copies;
                }
                let [first, second] = &held;
                let fixed = [&first.keys, &first.values, &second.keys, &second.values];
                let h = Replay::run(replay, &[&x, &on_device], &fixed)?.expect("all have one form");
                found.push(bits(&h)?);
                continue;
            }
            let [first, second] = &held;
            let fixed = [&first.keys, &first.values, &second.keys, &second.values];
            let [h, first_keys, first_values] = layers[0].step(&x, at, &on_device, first)?;
            let [h, keys, values] = layers[1].step(&h, at, &on_device, second)?;
            if follows && at == 3 {
                replay = Some(Replay::record_following(&h, &[&x, &on_device], &fixed, None)?);
                assert!(matches!(replay, Some(Recorded::Kept(_))), "{replay:?}");
            }
            found.push(bits(&h)?);
            held = [Held { keys: first_keys, values: first_values }, Held { keys, values }];
        }
        if let Some(Recorded::Kept(mut replay)) = replay {
            replay.wait()?;
            let (x, at) = (normal(&[b, 1, HIDDEN], dtype, 1)?, Array::from_i32(&[5], &[1])?);
            let [first, second] = &held;
            let fixed = |keys| [keys, &first.values, &second.keys, &second.values];
            let longer = ops::concatenate(&[&first.keys, &first.keys], 2)?;
            let gaps = ops::slice_axis(&longer, 2, 0, CAPACITY)?;
            let other = ops::astype(&first.keys, Dtype::F32)?;
            eval_all([&longer, &gaps, &other])?;
            for keys in [&longer, &gaps, &other] {
                assert!(replay.run(&[&x, &at], &fixed(keys))?.is_none(), "{keys:?}");
            }
            // One buffer for both is no buffer to write, and what refused it is of no use any more.
            replay.run(&[&x, &at], &fixed(&first.values)).expect_err("one buffer for both");
            assert!(replay.run(&[&x, &at], &fixed(&first.keys))?.is_none());
        }
        Ok(found)
    };
    assert_eq!(run(true)?, run(false)?);
    Ok(())
}

/// Outputs of two layers for each of some positions; `repeats`: as repetitions from the fourth on.
fn steps(dtype: Dtype, b: i32, repeats: bool) -> Result<Vec<Vec<f32>>> {
    const STEPS: i32 = 40;
    let layers = [Layer::new(dtype, b, None)?, Layer::new(dtype, b, Some(9))?];
    let mut held = [layers[0].held(dtype, b)?, layers[1].held(dtype, b)?];
    let (mut replay, mut found, mut repetitions) = (None, Vec::new(), 0);
    for at in 0..STEPS {
        let x =
            ops::add(&normal(&[b, 1, HIDDEN], dtype, 200 + at as u64)?, &ops::zeros(&[1], dtype)?)?;
        let on_device = Array::from_i32(&[at], &[1])?;
        let fixed: Vec<&Array> = held.iter().flat_map(|held| [&held.keys, &held.values]).collect();
        if let Some(Recorded::Kept(replay)) = &mut replay {
            let h = Replay::run(replay, &[&x, &on_device], &fixed)?.expect("all is as it was");
            found.push(bits(&h)?);
            repetitions += 1;
            continue;
        }
        let [h, first_keys, first_values] = layers[0].step(&x, at, &on_device, &held[0])?;
        let [h, keys, values] = layers[1].step(&h, at, &on_device, &held[1])?;
        if repeats && at == 3 {
            replay = Some(Replay::record(&h, &[&x, &on_device], &fixed, false, None)?);
            assert!(matches!(replay, Some(Recorded::Kept(_))), "{replay:?}");
        }
        found.push(bits(&h)?);
        held = [Held { keys: first_keys, values: first_values }, Held { keys, values }];
    }
    assert_eq!(repetitions, if repeats { STEPS - 4 } else { 0 });
    if let Some(Recorded::Kept(mut replay)) = replay {
        let x = normal(&[b, 1, HIDDEN], dtype, 1)?;
        let at = Array::from_i32(&[5], &[1])?;
        let other = layers[0].held(dtype, b)?;
        let [first, second] = &held;
        let fixed = |keys| [keys, &first.values, &second.keys, &second.values];
        assert!(replay.run(&[&x, &at], &fixed(&other.keys))?.is_none(), "another buffer");
        assert!(replay.run(&[&x], &fixed(&first.keys))?.is_none(), "one array too few");
        let wide = normal(&[b + 1, 1, HIDDEN], dtype, 1)?;
        assert!(replay.run(&[&wide, &at], &fixed(&first.keys))?.is_none(), "another shape");
    }
    Ok(found)
}

#[test]
fn steps_that_are_kept_repeat_what_they_did() -> Result<()> {
    use_device(Device::Cpu)?;
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for b in [1, 3] {
            let (found, expected) = (steps(dtype, b, true)?, steps(dtype, b, false)?);
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found, expected, "{dtype:?}, {b} rows, position {at}");
            }
            assert_eq!(found.len(), expected.len());
        }
    }
    Ok(())
}

#[test]
fn a_moving_array_of_another_stream_is_not_taken() -> Result<()> {
    // Of the stream that this thread has before it asks for one on the CPU.
    let other = ops::zeros(&[1, 1, HIDDEN], Dtype::F32)?;
    use_device(Device::Cpu)?;
    let layer = Layer::new(Dtype::F32, 1, None)?;
    let x = ops::zeros(&[1, 1, HIDDEN], Dtype::F32)?;
    let h = cpu::rms_norm(&x, &layer.norm, 1e-5)?;
    let Recorded::Kept(mut replay) = Replay::record(&h, &[&x], &[], false, None)? else {
        panic!("all of it can be kept");
    };
    assert!(replay.run(&[&other], &[])?.is_none());
    assert!(replay.run(&[&x], &[])?.is_some());
    Ok(())
}

#[test]
fn other_operations_are_not_kept() -> Result<()> {
    use_device(Device::Cpu)?;
    let x = normal(&[1, 1, HIDDEN], Dtype::F32, 1)?;
    let layer = Layer::new(Dtype::F32, 1, None)?;
    let record = |output: &Array| Replay::record(output, &[&x], &[], false, None);
    let own = cpu::rms_norm(&x, &layer.norm, 1e-5)?;
    assert!(matches!(record(&own)?, Recorded::Kept(_)));
    let normed = cpu::rms_norm(&x, &layer.norm, 1e-5)?;
    assert!(matches!(record(&ops::add(&normed, &x)?)?, Recorded::Impossible));
    assert!(matches!(record(&cpu::add(&ops::exp(&x)?, &x)?)?, Recorded::Impossible));
    Ok(())
}

#[test]
fn what_a_repeated_kernel_refuses_is_the_error_of_the_evaluation() -> Result<()> {
    use_device(Device::Cpu)?;
    let layer = Layer::new(Dtype::F32, 1, None)?;
    let held = layer.held(Dtype::F32, 1)?;
    let x = normal(&[1, 1, HIDDEN], Dtype::F32, 1)?;
    let index = |at| Array::from_i32(&[at], &[1]);
    let (first, fixed) = (index(0)?, [&held.keys, &held.values]);
    let [h, ..] = layer.step(&x, 0, &first, &held)?;
    let Recorded::Kept(mut replay) = Replay::record(&h, &[&x, &first], &fixed, false, None)? else {
        panic!("all of it can be kept");
    };
    let h = replay.run(&[&x, &index(CAPACITY)?], &fixed)?.expect("all is as it was");
    let error = bits(&h).expect_err("no room");
    assert!(error.to_string().contains("no room for position 64"), "{error}");
    Ok(())
}

/// A step of queries of two heads and keys of one, over buffers of four positions.
struct Small {
    qkv: Array,
    keys: Array,
    values: Array,
    on_device: Array,
    rows: Array,
    radians: Array,
}

impl Small {
    fn new(on_device: i32, rows: [i32; 2]) -> Result<Small> {
        let held = Small {
            qkv: normal(&[1, 1, 32], Dtype::F32, 1)?,
            keys: normal(&[1, 1, 4, 8], Dtype::F32, 2)?,
            values: normal(&[1, 1, 4, 8], Dtype::F32, 3)?,
            on_device: Array::from_i32(&[on_device], &[1])?,
            rows: Array::from_i32(&rows, &[2])?,
            radians: Array::from_f32(&[1.0, 0.5, 0.25, 0.125], &[4])?,
        };
        Ok(held)
    }

    fn step(&self) -> Step<'_> {
        let part = |head| Heads { array: &self.qkv, at: head * 8 };
        Step {
            q: part(0),
            k: part(2),
            v: part(3),
            n_heads: 2,
            keys: &self.keys,
            values: &self.values,
            packing: None,
            at: 3,
            on_device: &self.on_device,
            rows: &self.rows,
            window: None,
            turn: Some(Turn { radians: &self.radians, scale: 1.0, magnitude: 1.0 }),
            norms: None,
            scale: 0.3,
            softcap: None,
            sinks: None,
        }
    }
}

#[test]
fn a_step_stays_inside_its_buffers_whatever_the_device_holds() -> Result<()> {
    use_device(Device::Cpu)?;
    for at in [-1, 4, i32::MIN, i32::MAX] {
        let small = Small::new(at, [0, 0])?;
        let before = small.keys.to_vec_f32()?;
        let [out, ..] = cpu::step_attention(&small.step())?;
        let error = out.eval().expect_err("there is no such position").to_string();
        assert!(error.contains(&format!("no room for position {at} among 4")), "{error}");
        assert_eq!(small.keys.to_vec_f32()?, before);
    }
    for rows in [[-7, 0], [i32::MIN, i32::MAX], [9, i32::MIN], [i32::MAX, 1]] {
        let small = Small::new(3, rows)?;
        let [out, keys, values] = cpu::step_attention(&small.step())?;
        eval_all([&out, &keys, &values])?;
        assert!(bits(&out)?.iter().all(|value| value.is_finite()), "{rows:?}");
    }
    Ok(())
}

#[test]
fn a_step_that_does_not_fit_its_buffers_is_refused() -> Result<()> {
    use_device(Device::Cpu)?;
    let small = Small::new(3, [0, 0])?;
    let good = small.step();
    cpu::step_attention(&good)?.iter().try_for_each(Array::eval)?;
    let small = Small::new(3, [0, 0])?;
    let good = small.step();
    let half = ops::astype(&small.qkv, Dtype::F16)?;
    let square = ops::reshape(&small.radians, &[2, 2])?;
    let table = ops::reshape(&small.rows, &[1, 2])?;
    let floats = ops::astype(&small.rows, Dtype::F32)?;
    let none = Array::from_i32(&[], &[0])?;
    let long = Array::from_f32(&[1.0; 5], &[5])?;
    let turned = |radians| Some(Turn { radians, scale: 1.0, magnitude: 1.0 });
    for step in [
        Step { at: -1, ..good },
        Step { at: 4, ..good },
        Step { n_heads: 0, ..good },
        Step { n_heads: -2, ..good },
        Step { n_heads: i32::MAX, ..good },
        Step { window: Some(0), ..good },
        Step { window: Some(-1), ..good },
        Step { q: Heads { array: &small.qkv, at: 17 }, ..good },
        Step { k: Heads { array: &small.qkv, at: -1 }, ..good },
        Step { v: Heads { array: &half, at: 24 }, ..good },
        Step { on_device: &none, ..good },
        Step { on_device: &floats, ..good },
        Step { rows: &small.on_device, ..good },
        Step { rows: &table, ..good },
        Step { turn: turned(&square), ..good },
        Step { turn: turned(&long), ..good },
        Step { turn: turned(&small.rows), ..good },
    ] {
        cpu::step_attention(&step).expect_err("the step does not fit");
    }
    Ok(())
}

#[test]
fn keys_and_values_in_one_buffer_are_refused_by_a_step_and_its_repetition() -> Result<()> {
    use_device(Device::Cpu)?;
    let small = Small::new(3, [0, 0])?;
    let step = Step { values: &small.keys, ..small.step() };
    let [out, ..] = cpu::step_attention(&step)?;
    let error = out.eval().expect_err("both would be written").to_string();
    assert!(error.contains("another of its inputs too"), "{error}");
    let [out, ..] = cpu::step_attention(&step)?;
    let recorded = Replay::record(&out, &[&small.qkv], &[&small.keys], false, None)?;
    assert!(matches!(recorded, Recorded::Impossible), "{recorded:?}");
    Ok(())
}
