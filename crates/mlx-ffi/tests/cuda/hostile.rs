//! Arguments that nobody should give to our kernels for CUDA: they stay inside their buffers.

use mlx_ffi::cuda::{Attended, Place, Places};
use mlx_ffi::step::{Counters, Heads, Step};
use mlx_ffi::{Array, Dtype, Result, cuda, eval_all, ops, random};

use super::on_cuda::use_cuda;

fn normal(shape: &[i32], seed: u64) -> Result<Array> {
    random::normal(shape, Dtype::Bf16, &random::key(seed)?)
}

fn wide(x: &Array) -> Result<Vec<f32>> {
    ops::astype(x, Dtype::F32)?.to_vec_f32()
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn attention_stays_inside_its_buffers_whatever_the_device_holds() {
    use_cuda();
    for l in [1, 2, 5] {
        hostile_attention(l).expect("attention");
    }
}

/// Of a step where there is one new position, of a chunk where there are several.
fn hostile_attention(l: i32) -> Result<()> {
    const D: i32 = 64;
    const CAPACITY: i32 = 8;
    const AROUND: i32 = 4;
    let qkv = normal(&[1, l, 3 * D], 1)?;
    let gaps = normal(&[l, 3 * D, 2], 1)?;
    let gaps = ops::swap_axes(&ops::slice_axis(&gaps, 2, 0, 1)?, 0, 2)?;
    let gaps = ops::swap_axes(&gaps, 1, 2)?;
    let counters = Counters::new(1)?;
    for (at, first, x, fails) in [
        (-1, 0, &qkv, false),
        (CAPACITY, 0, &qkv, false),
        (i32::MAX, 0, &qkv, false),
        (i32::MIN, i32::MIN, &qkv, false),
        (3, -100, &qkv, false),
        (3, 100, &qkv, false),
        (3, i32::MAX, &qkv, false),
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
        let step = Step {
            q: part(0),
            k: part(1),
            v: part(2),
            n_heads: 1,
            keys: &keys,
            values: &values,
            packing: None,
            at: 3,
            on_device: &on_device,
            rows: &rows,
            window: None,
            turn: None,
            norms: None,
            scale: 0.1,
            softcap: None,
            sinks: None,
        };
        let Attended { out, buffers } = match l {
            1 => cuda::step_attention(&step, &counters)?,
            _ => cuda::chunk_attention(&step)?,
        };
        let made: Vec<Array> = [out].into_iter().chain(buffers).collect();
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

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn rows_are_placed_where_they_belong_and_nowhere_else() {
    use_cuda();
    for (dtype, width) in [(Dtype::Bf16, 64), (Dtype::F32, 3), (Dtype::U32, 8), (Dtype::F16, 5)] {
        placed(dtype, width).expect("rows");
    }
}

/// `[b, heads, n, width]` of numbers from `first` on that all types here hold.
fn numbers(shape: [i32; 4], first: i32, dtype: Dtype) -> Result<Array> {
    let count = shape.iter().product::<i32>();
    let values: Vec<i32> = (0..count).map(|i| first + i % 97).collect();
    ops::astype(&Array::from_i32(&values, &shape)?, dtype)
}

fn placed(dtype: Dtype, width: i32) -> Result<()> {
    let (heads, n, capacity) = (3, 11, 20);
    let from = numbers([4, heads, n, width], 1, dtype)?;
    let into = numbers([5, heads, capacity, width], 101, dtype)?;
    let before = wide(&into)?;
    let held = wide(&from)?;
    let inside = [
        Place { row: 3, slot: 0, first: 0, at: 9, count: 11, before: 4 },
        Place { row: 0, slot: 4, first: 4, at: 2, count: 7, before: 0 },
        Place { row: 1, slot: 2, first: 5, at: 0, count: 0, before: 0 },
        Place { row: 1, slot: 3, first: 0, at: 13, count: 0, before: 13 },
    ];
    let outside = [
        Place { row: 4, slot: 1, first: 0, at: 0, count: 1, before: 0 },
        Place { row: -1, slot: 1, first: 0, at: 0, count: 1, before: 0 },
        Place { row: 0, slot: 5, first: 0, at: 0, count: 1, before: 0 },
        Place { row: 0, slot: 1, first: 5, at: 0, count: 7, before: 0 },
        Place { row: 0, slot: 1, first: 0, at: 10, count: 11, before: 0 },
        Place { row: 0, slot: 1, first: i32::MAX, at: 0, count: i32::MAX, before: 0 },
        Place { row: 0, slot: 1, first: 0, at: -1, count: 2, before: 0 },
        Place { row: 0, slot: 1, first: 0, at: 3, count: 2, before: 4 },
        Place { row: 0, slot: 1, first: 0, at: 3, count: 2, before: -1 },
    ];
    let places = Places::new(&[&inside[..], &outside[..]].concat())?;
    let placed = cuda::place(&from, &into, &places)?;
    placed.eval()?;
    let found = wide(&placed)?;
    let mut expected = before.clone();
    for place in inside {
        for head in 0..heads {
            for i in 0..place.count * width {
                let source = ((place.row * heads + head) * n + place.first) * width + i;
                let target = ((place.slot * heads + head) * capacity + place.at) * width + i;
                expected[target as usize] = held[source as usize];
            }
            for i in 0..place.before * width {
                let first = place.at - place.before;
                let target = ((place.slot * heads + head) * capacity + first) * width + i;
                expected[target as usize] = 0.0;
            }
        }
    }
    let differs = |found: &[f32]| {
        let at = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        at.map(|at| (at, found[at], expected[at], before[at]))
    };
    assert_eq!(differs(&found), None, "{dtype:?}, width {width}");
    // In place.
    assert_eq!(differs(&wide(&into)?), None, "{dtype:?}, width {width}");
    let parts = [&from; 18];
    for place in [outside[0], outside[1], outside[3]] {
        eval_all(&cuda::copied(&parts, &Places::new(&[place])?)?)?;
    }
    // No positions, and other numbers of them for other rows.
    assert!(cuda::copied(&parts, &Places::new(&inside[2..])?).is_err());
    assert!(cuda::copied(&parts, &Places::new(&inside[..2])?).is_err());
    let wider = numbers([4, heads, n, 2 * width], 7, dtype)?;
    assert!(cuda::copied(&[&from, &wider], &Places::new(&inside[..1])?).is_err());
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn rows_of_other_widths_have_no_place() {
    use_cuda();
    let places = Places::new(&[Place { row: 0, slot: 0, first: 0, at: 0, count: 1, before: 0 }])
        .expect("one");
    let from = numbers([1, 2, 3, 8], 1, Dtype::F32).expect("numbers");
    for (shape, dtype) in
        [([1, 2, 3, 4], Dtype::F32), ([1, 3, 3, 8], Dtype::F32), ([1, 2, 3, 8], Dtype::U32)]
    {
        let into = numbers(shape, 1, dtype).expect("numbers");
        let error = cuda::place(&from, &into, &places).expect_err("another shape").to_string();
        assert!(error.contains("have no place"), "{error}");
    }
    assert!(Places::new(&[]).is_err());
}
