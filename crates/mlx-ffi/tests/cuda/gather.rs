//! Operations of MLX that mixtures of experts are made of where no kernel of ours computes them, on
//! CUDA against the CPU.
//!
//! `gather_mm` is not told there that indices are sorted: it may read indices that are not computed
//! yet (MLX 0.32.2).

use mlx_ffi::{Array, Device, Dtype, Indices, Result, ops, use_device};

fn values(shape: &[i32], speed: f32) -> Result<Array> {
    let count = shape.iter().product::<i32>();
    let values: Vec<f32> = (0..count).map(|i| (i as f32 * speed + 0.3).sin()).collect();
    Array::from_f32(&values, shape)
}

fn wide(x: &Array) -> Result<Vec<f32>> {
    ops::astype(x, Dtype::F32)?.to_vec_f32()
}

fn chain(device: Device, t: i32, experts: i32, e: i32) -> Result<Vec<(String, Vec<f32>)>> {
    use_device(device)?;
    let (hidden, inner) = (48, 24);
    let mut out = Vec::new();
    let mut note = |name: &str, x: &Array| -> Result<()> {
        out.push((name.to_owned(), wide(x)?));
        Ok(())
    };
    let x = values(&[t, hidden], 0.371)?;
    let logits = values(&[t, experts], 1.713)?;
    let scores = ops::softmax(&logits, -1, true)?;
    note("softmax", &scores)?;
    let first = experts - e;
    let order = ops::argpartition(&scores, first, -1)?;
    let indices = order.slice_axis(-1, first, experts)?;
    note("sorted indices", &ops::sort(&ops::astype(&indices, Dtype::F32)?, -1)?)?;
    note("whole order", &ops::sort(&ops::astype(&order, Dtype::F32)?, -1)?)?;
    let weights = ops::take_along_axis(&scores, &indices, -1)?;
    note("weights, sorted", &ops::sort(&weights, -1)?)?;
    note("sum", &ops::sum(&weights, -1, true)?)?;
    let chosen = indices.reshape(&[t * e])?;
    let order = ops::argsort(&chosen, 0)?;
    let back = ops::argsort(&order, 0)?;
    note("chosen in order", &ops::astype(&*chosen.take(&order, 0)?, Dtype::F32)?)?;
    note("there and back", &ops::astype(&*order.take(&back, 0)?, Dtype::F32)?)?;
    let token = Indices::up_to(t)?.expand_dims(1)?.broadcast_to(&[t, e])?.reshape(&[t * e])?;
    note("token", &ops::astype(&token, Dtype::F32)?)?;
    let rows = ops::take(&x, &token.take(&order, 0)?, 0)?;
    let sorted = chosen.take(&order, 0)?.expand_dims(1)?;
    let w = values(&[experts, 2 * inner, hidden], 0.0131)?;
    let down = values(&[experts, hidden, inner], 0.0217)?;
    let gather = |x: &Array, w: &Array, indices: &Indices| -> Result<Array> {
        let (x, w) = (ops::expand_dims(x, -2)?, ops::swap_axes(w, -1, -2)?);
        ops::squeeze(&ops::gather_mm(&x, &w, indices, false)?, -2)
    };
    let spread = |rows: &Array, indices: &Indices| -> Result<[Array; 2]> {
        let both = gather(rows, &w, indices)?;
        let gate = ops::slice_axis(&both, -1, 0, inner)?;
        let up = ops::slice_axis(&both, -1, inner, 2 * inner)?;
        let product = ops::multiply(&ops::multiply(&gate, &ops::sigmoid(&gate)?)?, &up)?;
        let y = gather(&product, &down, indices)?;
        Ok([both, y])
    };
    let weighed = |y: &Array| -> Result<Array> {
        ops::sum(&ops::multiply(y, &ops::expand_dims(&weights, -1)?)?, 1, false)
    };
    let [_, y] = spread(&ops::expand_dims(&rows, 1)?, &sorted)?;
    let y = ops::take(&ops::squeeze(&y, 1)?, &back, 0)?;
    note("in order, weighed", &weighed(&ops::reshape(&y, &[t, e, hidden])?)?)?;
    let [both, y] = spread(&ops::expand_dims(&x, 1)?, &indices)?;
    note("both", &ops::sum(&both, 1, false)?)?;
    note("weighed", &weighed(&y)?)?;
    Ok(out)
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn what_mixtures_are_made_of_is_the_same_on_cuda() {
    let mut wrong = Vec::new();
    for (t, experts, e) in [(1, 8, 2), (5, 8, 2), (40, 8, 2), (40, 16, 3), (200, 8, 4), (37, 60, 4)]
    {
        let on = |device| {
            let run = move || chain(device, t, experts, e).expect("values");
            std::thread::spawn(run).join().expect("a thread")
        };
        for ((name, found), (_, expected)) in on(Device::Gpu).iter().zip(&on(Device::Cpu)) {
            let largest = expected.iter().fold(1e-3_f32, |most, value| most.max(value.abs()));
            let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            let is_near = off < 1e-3 * largest && found.len() == expected.len();
            if !is_near {
                wrong.push(format!("{t} {experts} {e} {name}: {off} of {largest}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn line_of(indices: &[u32]) -> Result<Indices> {
    Indices::from_u32(indices, &[indices.len() as i32])
}

/// Rows and entries of tables in other orders than row-major, by indices of one and of two
/// dimensions.
fn taken(device: Device, dtype: Dtype) -> Result<Vec<Vec<f32>>> {
    use_device(device)?;
    let table = ops::astype(&values(&[300, 40], 0.713)?, dtype)?;
    let turned = ops::swap_axes(&ops::astype(&values(&[40, 300], 0.37)?, dtype)?, 0, 1)?;
    let ids: Vec<u32> = (0..12).map(|i| i * 101 % 300).collect();
    let line = line_of(&ids)?;
    let square = line.reshape(&[3, 4])?;
    let column = ops::slice_axis(&ops::astype(&table, Dtype::F32)?, -1, 3, 4)?;
    let column = ops::astype(&ops::squeeze(&column, 1)?, dtype)?;
    let buffers = ops::astype(&values(&[5, 3, 9, 16], 0.53)?, dtype)?;
    let part = ops::slice_axis(&buffers, 2, 2, 7)?;
    let narrow = ops::slice_axis(&buffers, 3, 1, 14)?;
    let rows = line_of(&[4, 0, 4, 3])?;
    let found = [
        ops::take(&buffers, &rows, 0)?,
        ops::take(&part, &rows, 0)?,
        ops::take(&narrow, &line_of(&[2])?, 0)?,
        ops::take(&ops::swap_axes(&part, 2, 3)?, &rows, 0)?,
        ops::take(&ops::swap_axes(&buffers, 0, 1)?, &line_of(&[2, 1, 0])?, 0)?,
        ops::take(&ops::reshape(&buffers, &[15, 9, 16])?, &line_of(&[14, 3, 3, 0])?, 0)?,
        ops::take(&ops::swap_axes(&ops::reshape(&buffers, &[5, 27, 16])?, 0, 1)?, &rows, 0)?,
        ops::take(&table, &line, 0)?,
        ops::take(&table, &square, 0)?,
        ops::take(&turned, &square, 0)?,
        ops::take(&column, &square, 0)?,
        ops::take_along_axis(
            &ops::swap_axes(&turned, 0, 1)?,
            &Indices::from_u32(&[299; 40], &[40, 1])?,
            1,
        )?,
        ops::take_along_axis(
            &ops::slice_axis(&ops::swap_axes(&table, 0, 1)?, 0, 0, 3)?,
            &square,
            1,
        )?,
    ];
    found.iter().map(wide).collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn what_is_taken_is_what_the_cpu_takes() {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::U32, Dtype::U8] {
        let expected = taken(Device::Cpu, dtype).expect("values");
        assert_eq!(taken(Device::Gpu, dtype).expect("values"), expected, "{dtype:?}");
    }
}
