//! Draws by our kernel for CUDA against plain arithmetic with MLX's random numbers.

use mlx_ffi::cuda::{self, Drawer, Drawing};
use mlx_ffi::{Array, Dtype, Result, ops, random};

use super::on_cuda::{is_emulated, some, use_cuda};

const ALL: Drawing = Drawing { temperature: Some(1.0), top_p: 1.0, min_p: 0.0, top_k: 0, seed: 7 };

/// The key of a draw.
fn key(seed: u64, step: u64) -> Result<Array> {
    let mut z = seed.wrapping_add(step.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Ok(random::split(&random::key(z ^ (z >> 31))?)?.0)
}

/// The ids that may be drawn.
fn kept(logits: &[f32], drawing: &Drawing) -> Vec<bool> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let part = |logit: f32| f64::from(logit - largest).exp();
    let total: f64 = logits.iter().map(|logit| part(*logit)).sum();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    let (mut mass, mut least) = (0.0, f32::NEG_INFINITY);
    for at in &order {
        if mass >= f64::from(drawing.top_p) * total {
            break;
        }
        mass += part(logits[*at]);
        least = logits[*at];
    }
    let is_likely = |at: usize| logits[at] >= least && logits[at] - largest >= drawing.min_p.ln();
    let most = if drawing.top_k == 0 { logits.len() } else { drawing.top_k as usize };
    let mut kept = vec![false; logits.len()];
    order.into_iter().filter(|at| is_likely(*at)).take(most).for_each(|at| kept[at] = true);
    kept
}

fn draws(b: i32, n: i32, dtype: Dtype, spread: f32, drawing: Drawing) -> Result<()> {
    let noise = random::normal(&[b, n], Dtype::F32, &random::key(n as u64)?)?;
    let logits = ops::astype(&ops::multiply(&noise, &Array::scalar(spread, Dtype::F32)?)?, dtype)?;
    let values = ops::astype(&logits, Dtype::F32)?.to_vec_f32()?;
    let rows: Vec<&[f32]> = values.chunks(n as usize).collect();
    let of_row = |row: usize| Drawing { seed: drawing.seed + row as u64 * 1_000_003, ..drawing };
    let (mut drawer, mut others) = (Drawer::default(), 0);
    let steps = if is_emulated() { 2 } else { 12 };
    for step in 3..3 + steps {
        // A row that left draws anything, and may come again.
        let is_there = |row: &usize| *row != 1 || step != 4;
        let wanted: Vec<Option<(Drawing, u32)>> = (0..b as usize)
            .map(|row| Some((of_row(row), step)).filter(|_| is_there(&row)))
            .collect();
        let found = drawer.draw(&logits, &wanted)?.to_vec_u32()?;
        let all = rows.iter().zip(found).enumerate();
        for (row, (values, found)) in all.filter(|(row, _)| is_there(row)) {
            let kept = kept(values, &drawing);
            let what = format!("step {step} of row {row}, {dtype:?}, {n} ids, {drawing:?}");
            assert!(kept[found as usize], "{what}: id {found} is left out");
            let scale = drawing.temperature.expect("a temperature").recip();
            let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f32 = values.iter().map(|value| (value - largest).exp()).sum();
            let noise = random::uniform(&[1, n], &key(of_row(row).seed, u64::from(step))?)?;
            // Gumbel's distribution makes the largest one a draw.
            let score = |(value, uniform): (&f32, f32)| {
                (value - largest - total.ln()) * scale - (-uniform.ln()).ln()
            };
            let scores: Vec<f32> = values.iter().zip(noise.to_vec_f32()?).map(score).collect();
            let among = (0..scores.len()).filter(|at| kept[*at]);
            let expected = among.max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
            others += usize::from(expected != Some(found as usize));
            // Alone, and with arrays of its own.
            let alone = ops::slice_axis(&logits, 0, row as i32, row as i32 + 1)?;
            let alone = Drawer::default().draw(&alone, &[Some((of_row(row), step))])?;
            assert_eq!(alone.to_vec_u32()?, [found], "{what}: alone");
        }
    }
    let all = b as usize * steps as usize;
    // Two scores that are nearly the same may be rounded to either order.
    assert!(others * 100 <= all, "{others} of {all} draws are others: {drawing:?}");
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn draws_are_those_of_plain_arithmetic() {
    use_cuda();
    let all = [(Dtype::F16, 33), (Dtype::F32, 1001), (Dtype::Bf16, 1000), (Dtype::Bf16, 151_936)];
    for (dtype, n) in some(&all, 1) {
        for drawing in [
            ALL,
            Drawing { temperature: Some(0.7), top_p: 0.9, ..ALL },
            Drawing { min_p: 0.05, ..ALL },
            Drawing { top_k: 20, seed: u64::MAX / 3, ..ALL },
            Drawing { top_k: 1, ..ALL },
            Drawing { temperature: Some(1.5), top_p: 0.95, min_p: 0.01, top_k: 40, seed: 1 << 40 },
            Drawing { top_p: 1e-30, ..ALL },
        ] {
            draws(5, *n, *dtype, 3.0, drawing).expect("draws");
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn equals_are_cut_by_their_order_and_the_first_of_them_is_the_most_likely() {
    use_cuda();
    if is_emulated() {
        // It draws 400 times, which takes a processor a minute.
        return;
    }
    let logits =
        Array::from_f32(&[[1.0; 50].as_slice(), &[2.0; 50]].concat(), &[1, 100]).expect("logits");
    let mut seen = [false; 100];
    for step in 0..400 {
        let drawing = Drawing { top_k: 60, ..ALL };
        let id = Drawer::default()
            .draw(&logits, &[Some((drawing, step))])
            .and_then(|id| id.to_vec_u32());
        seen[id.expect("a draw")[0] as usize] = true;
    }
    assert!(seen[10..50].iter().all(|seen| !seen), "of 50 equals, ten are kept");
    assert!(seen[..10].iter().any(|seen| *seen) && seen[50..].iter().all(|seen| *seen));
    let best = Drawing { temperature: None, ..ALL };
    let id = Drawer::default().draw(&logits, &[Some((best, 0))]).and_then(|id| id.to_vec_u32());
    assert_eq!(id.expect("a draw"), [50]);
    let error = Drawer::default().draw(&logits, &[]).expect_err("no rows").to_string();
    assert!(error.contains("are not drawn"), "{error}");
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn the_largest_is_finite_where_all_are_numbers() {
    use_cuda();
    let (infinity, nan) = (f32::INFINITY, f32::NAN);
    for (dtype, n) in some(&[(Dtype::Bf16, 1500), (Dtype::F16, 31), (Dtype::F32, 151_936)], 2) {
        let n = *n;
        let row = |at: usize, value: f32| {
            let mut row: Vec<f32> = (0..n).map(|i| -1.0 - (i % 7) as f32).collect();
            row[at] = value;
            row
        };
        let last = n as usize - 1;
        let none = vec![-infinity; n as usize];
        let some = [&none[1..], &[-2.5]].concat();
        let rows = [
            (row(last, 3.0), 3.0),
            (row(0, -infinity), -1.0),
            (row(13, nan), nan),
            (row(last, nan), nan),
            (row(0, infinity), infinity),
            (none, -infinity),
            (some, -2.5),
        ];
        let (values, expected): (Vec<Vec<f32>>, Vec<f32>) = rows.into_iter().unzip();
        let logits = Array::from_floats(&values.concat(), &[values.len() as i32, n], *dtype);
        let found = logits.and_then(|logits| cuda::largest(&logits)).expect("a launch");
        assert_eq!(found.dtype(), Dtype::F32);
        let found = found.to_vec_f32().expect("values");
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                *found == expected || found.is_nan() && expected.is_nan(),
                "{found} {expected}"
            );
        }
    }
    let three = ops::zeros(&[1, 2, 3], Dtype::F32).expect("zeros");
    let error = cuda::largest(&three).expect_err("three axes").to_string();
    assert!(error.contains("not found"), "{error}");
}
