//! Norms, rotations and gates against plain ones in f64, and that a row's result is its own, under
//! every level.

use super::numbers::{push, random, value};
use cpu_kernels::{
    Activation, Dtype, Gated, Heads, Level, Norm, Rotation, Rows, Sum, gated, gated_at, rows,
    rows_at, sum, sum_at,
};
use half::{bf16, f16};

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
const EPS: f32 = 1e-3;

fn values(dtype: Dtype, count: usize, size: f32, seed: usize) -> Vec<u8> {
    let (mut state, mut bytes) = (seed as u64, Vec::new());
    (0..count).for_each(|_| push(dtype, &mut bytes, size * random(&mut state)));
    bytes
}

fn rounded(dtype: Dtype, value: f64) -> f64 {
    match dtype {
        Dtype::F32 => f64::from(value as f32),
        Dtype::F16 => f16::from_f64(value).to_f64(),
        Dtype::Bf16 => bf16::from_f64(value).to_f64(),
    }
}

/// A few units in the last place of a value of this size, or of what it is the difference of.
fn tolerance(dtype: Dtype, size: f64) -> f64 {
    let unit = match dtype {
        Dtype::F32 => 2.0_f64.powi(-20),
        Dtype::F16 => 2.0_f64.powi(-9),
        Dtype::Bf16 => 2.0_f64.powi(-6),
    };
    unit * size.abs().max(0.5)
}

#[track_caller]
fn assert_near(dtype: Dtype, level: Level, found: &[u8], expected: &[f64]) {
    assert_eq!(found.len(), expected.len() * dtype.size());
    for (i, &expected) in expected.iter().enumerate() {
        let found = value(dtype, found, i);
        let near = (found - expected).abs() <= tolerance(dtype, expected);
        assert!(near, "{level:?} {dtype:?} {i}: {found}, expected {expected}");
    }
}

/// Rows `[b, l, n, d]` of x, of which each is followed by three values of no row.
struct Case {
    dtype: Dtype,
    sizes: [usize; 3],
    d: usize,
    x: Vec<u8>,
    weight: Option<Vec<u8>>,
    /// The rows of the batch, and the values, that are turned.
    turns: Option<(usize, usize, Vec<u8>)>,
}

impl Case {
    fn random(dtype: Dtype, sizes: [usize; 3], d: usize, norm: bool, turned: [usize; 2]) -> Case {
        let [b, l, n] = sizes;
        let [rows, dims] = turned;
        let x = values(dtype, b * l * n * (d + 3), 2.0, d + l);
        // One for all heads, or one for each.
        let weights = if d.is_multiple_of(2) { 1 } else { n };
        let weight = norm.then(|| values(dtype, weights * d, 1.5, 3));
        let turns = (dims > 0).then(|| (rows, dims, values(Dtype::F32, rows * l * dims, 1.0, 5)));
        Case { dtype, sizes, d, x, weight, turns }
    }

    fn task<'a>(&'a self, out: &'a mut [u8]) -> Rows<'a> {
        let [_, l, n] = self.sizes;
        let step = self.d + 3;
        let norm = self.weight.as_deref().map(|weight| Norm::root_mean_square(weight, EPS));
        let rotation = self.turns.as_ref().map(|(_, dims, turns)| Rotation { dims: *dims, turns });
        let x = Heads { data: &self.x, strides: [l * n * step, n * step, step] };
        Rows { dtype: self.dtype, sizes: self.sizes, d: self.d, x, norm, rotation, out }
    }

    fn run(&self, level: Level) -> Vec<u8> {
        let mut out = vec![0x55; self.sizes.iter().product::<usize>() * self.d * self.dtype.size()];
        rows_at(level, self.task(&mut out)).expect("fits");
        out
    }

    /// In f64, straight from the definition, rounded where the definition says so.
    fn expected(&self) -> Vec<f64> {
        let Case { dtype, sizes: [b, l, n], d, .. } = *self;
        let mut out = Vec::new();
        for index in 0..b * l * n {
            let mut row: Vec<f64> =
                (0..d).map(|i| value(dtype, &self.x, index * (d + 3) + i)).collect();
            if let Some(weight) = &self.weight {
                let mean = row.iter().map(|x| x * x).sum::<f64>() / d as f64;
                for (i, x) in row.iter_mut().enumerate() {
                    let normed = rounded(dtype, *x / (mean + f64::from(EPS)).sqrt());
                    let first = index % n * d % (weight.len() / dtype.size());
                    *x = rounded(dtype, normed * value(dtype, weight, first + i));
                }
            }
            if let Some((rows, dims, turns)) = &self.turns {
                let position = index / n % (rows * l);
                let turn = |i| value(Dtype::F32, turns, position * dims + i);
                for i in 0..dims / 2 {
                    let (x, y) = (row[i], row[i + dims / 2]);
                    let (cos, sin) = (turn(i), turn(i + dims / 2));
                    (row[i], row[i + dims / 2]) = (x * cos - y * sin, x * sin + y * cos);
                }
            }
            out.extend(row);
        }
        out
    }
}

#[test]
fn rows_agree_with_the_plain_ones() {
    for dtype in DTYPES {
        for (sizes, d) in [([1, 1, 1], 1), ([2, 3, 5], 18), ([1, 1, 16], 128), ([2, 9, 7], 331)] {
            let batch = sizes[0];
            for (norm, turned) in [
                (true, [1, 0]),
                (false, [1, d / 2 * 2]),
                (true, [batch, d / 4 * 2]),
                (false, [1, 0]),
            ] {
                let case = Case::random(dtype, sizes, d, norm, turned);
                let expected = case.expected();
                for &level in Level::available() {
                    assert_near(dtype, level, &case.run(level), &expected);
                }
            }
        }
    }
}

#[test]
fn a_row_alone_is_the_same_row_among_many() {
    for dtype in DTYPES {
        // Enough for several threads.
        let case = Case::random(dtype, [3, 40, 3], 200, true, [3, 128]);
        let Some((_, dims, turns)) = &case.turns else { panic!("it was asked for") };
        for &level in Level::available() {
            let all = case.run(level);
            for index in [0, 7, 119, 359] {
                let x = case.x[index * 203 * dtype.size()..][..203 * dtype.size()].to_vec();
                let turns = turns[index / 3 * dims * 4..][..dims * 4].to_vec();
                let weight = case.weight.clone();
                let turns = Some((1, *dims, turns));
                let own = Case { dtype, sizes: [1, 1, 1], d: 200, x, weight, turns };
                let size = 200 * dtype.size();
                assert!(
                    own.run(level) == all[index * size..][..size],
                    "{level:?} {dtype:?} {index}"
                );
            }
        }
    }
}

const GATES: [Activation; 7] = [
    Activation::Silu,
    Activation::GeluTanh,
    Activation::Gelu,
    Activation::Relu,
    Activation::Sigmoid,
    Activation::Softplus,
    Activation::Identity,
];

/// The function of a gate, from its definition.
fn activated(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::Gelu => {
            // The density of a normal distribution from 0 to x, by Simpson's rule.
            let steps = 400;
            let step = x / f64::from(steps);
            let density = |i: i32| {
                let x = step * f64::from(i);
                (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
            };
            let weight = |i: i32| match i {
                0 => 1.0,
                i if i == steps => 1.0,
                i if i % 2 == 1 => 4.0,
                _ => 2.0,
            };
            let area: f64 = (0..=steps).map(|i| weight(i) * density(i)).sum();
            x * (0.5 + area * step / 3.0)
        }
        Activation::Relu => x.max(0.0),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Softplus => x.exp().ln_1p(),
        Activation::Identity => x,
    }
}

#[test]
fn layer_norms_agree_with_the_plain_ones() {
    for dtype in DTYPES {
        for (count, d) in [(1, 1), (3, 65), (90, 333)] {
            let x = values(dtype, count * d, 2.0, d);
            let [weight, bias] = [3, 7].map(|seed| values(dtype, d, 1.5, seed));
            for bias in [None, Some(&bias[..])] {
                let mut expected = Vec::new();
                for row in 0..count {
                    let row: Vec<f64> = (0..d).map(|i| value(dtype, &x, row * d + i)).collect();
                    let mean = row.iter().sum::<f64>() / d as f64;
                    let squares = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
                    let deviation = (squares / d as f64 + f64::from(EPS)).sqrt();
                    expected.extend(row.iter().enumerate().map(|(i, x)| {
                        let bias = bias.map_or(0.0, |bias| value(dtype, bias, i));
                        (x - mean) / deviation * value(dtype, &weight, i) + bias
                    }));
                }
                for &level in Level::available() {
                    let mut out = vec![0x55; count * d * dtype.size()];
                    let norm = Some(Norm { weight: &weight, eps: EPS, is_centred: true, bias });
                    let x = Heads { data: &x, strides: [0, 0, d] };
                    let (sizes, out_of) = ([1, 1, count], &mut out[..]);
                    let task = Rows { dtype, sizes, d, x, norm, rotation: None, out: out_of };
                    rows_at(level, task).expect("fits");
                    assert_near(dtype, level, &out, &expected);
                }
            }
        }
    }
}

#[test]
fn gates_agree_with_the_plain_ones_over_slices_of_one_matrix() {
    for dtype in DTYPES {
        for activation in GATES {
            for (count, d) in [(1, 1), (3, 65), (90, 333)] {
                let both = values(dtype, count * 2 * d, 9.0, d);
                let half = |first: usize| {
                    let data = &both[first * dtype.size()..];
                    Heads { data, strides: [0, 0, 2 * d] }
                };
                let expected: Vec<f64> = (0..count * d)
                    .map(|i| i / d * 2 * d + i % d)
                    .map(|i| {
                        activated(activation, value(dtype, &both, i)) * value(dtype, &both, i + d)
                    })
                    .collect();
                for &level in Level::available() {
                    let mut out = vec![0x55; count * d * dtype.size()];
                    let (gate, up, sizes) = (half(0), half(d), [1, 1, count]);
                    let out_of = &mut out[..];
                    let task = Gated { dtype, sizes, d, gate, up, activation, out: out_of };
                    gated_at(level, task).expect("fits");
                    assert_near(dtype, level, &out, &expected);
                }
            }
        }
    }
}

#[test]
fn sums_are_rounded_once_and_a_vector_is_added_to_all_rows() {
    for dtype in DTYPES {
        for (count, d) in [(1, 1), (3, 65), (90, 333)] {
            let (x, y) = (values(dtype, count * d, 9.0, d), values(dtype, count * d, 3.0, d + 1));
            for step in [d, 0] {
                let expected = (0..count * d).map(|i| {
                    let y = value(dtype, &y, if step == 0 { i % d } else { i });
                    // In f32 first, as everywhere.
                    let sum = (value(dtype, &x, i) as f32 + y as f32) as f64;
                    rounded(dtype, sum)
                });
                let expected: Vec<f64> = expected.collect();
                for &level in Level::available() {
                    let mut out = vec![0x55; count * d * dtype.size()];
                    let operands = [(&x, d), (&y, step)]
                        .map(|(data, step)| Heads { data, strides: [0, 0, step] });
                    let sizes = [1, 1, count];
                    sum_at(level, Sum { dtype, sizes, d, operands, out: &mut out }).expect("fits");
                    let found: Vec<f64> = (0..count * d).map(|i| value(dtype, &out, i)).collect();
                    assert_eq!(found, expected, "{level:?} {dtype:?} {count} {d}");
                }
            }
        }
    }
}

#[test]
fn a_gate_holds_at_the_ends_of_its_range() {
    let numbers = [f32::MAX, f32::MIN, f32::INFINITY, f32::NAN, 100.0, -100.0, 0.0, -0.0];
    let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let (gate, up) = (bytes(&numbers), bytes(&[1.0; 8]));
    for &level in Level::available() {
        for activation in GATES {
            let mut out = vec![0; 32];
            let [gate, up] = [&gate, &up].map(|data| Heads { data, strides: [0; 3] });
            let (dtype, sizes) = (Dtype::F32, [1; 3]);
            let task = Gated { dtype, sizes, d: 8, gate, up, activation, out: &mut out };
            gated_at(level, task).expect("fits");
            let found: Vec<f64> = (0..8).map(|i| value(Dtype::F32, &out, i)).collect();
            let max = f64::from(f32::MAX);
            let what = format!("{level:?} {activation:?} {found:?}");
            assert!(found[3].is_nan(), "{what}");
            let ends = (found[0], found[1].abs(), found[2], found[4]);
            match activation {
                Activation::Sigmoid => {
                    assert_eq!(ends, (1.0, 0.0, 1.0, 1.0), "{what}");
                    assert!(found[5] < 1e-40 && found[6..] == [0.5, 0.5], "{what}");
                }
                Activation::Softplus => {
                    assert_eq!(ends, (max, 0.0, f64::INFINITY, 100.0), "{what}");
                    let ln_2 = std::f64::consts::LN_2;
                    let near = found[6..].iter().all(|found| (found - ln_2).abs() < 1e-6);
                    assert!(found[5] < 1e-40 && near, "{what}");
                }
                Activation::Identity => {
                    assert_eq!(ends, (max, max, f64::INFINITY, 100.0), "{what}");
                    assert_eq!(found[5..], [-100.0, 0.0, 0.0], "{what}");
                }
                _ => {
                    assert_eq!(ends, (max, 0.0, f64::INFINITY, 100.0), "{what}");
                    assert!(found[5].abs() < 1e-40 && found[6..] == [0.0, 0.0], "{what}");
                }
            }
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let case = Case::random(Dtype::F32, [2, 3, 4], 8, true, [2, 8]);
    let mut out = vec![0; 2 * 3 * 4 * 8 * 4];
    let mut refused = |change: &dyn Fn(&mut Rows<'_>), text: &str| {
        let mut task = case.task(&mut out);
        change(&mut task);
        let error = rows(task).expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
    };
    refused(&|task| task.x.data = &task.x.data[..task.x.data.len() - 16], "x has");
    refused(&|task| task.sizes[0] = 3, "x has");
    refused(&|task| task.norm = Some(Norm::root_mean_square(&[0; 31], EPS)), "the norm's weight");
    refused(&|task| task.rotation = Some(Rotation { dims: 10, turns: &[] }), "no rotation of 10");
    refused(&|task| task.rotation = Some(Rotation { dims: 3, turns: &[] }), "no rotation of 3");
    refused(&|task| task.rotation = Some(Rotation { dims: 8, turns: &[0; 95] }), "turns has");
    refused(&|task| task.out = &mut [], "out has 0");

    let bytes = [0; 64];
    let heads = Heads { data: &bytes[..], strides: [0, 0, 8] };
    let few = Heads { data: &bytes[..60], strides: [0, 0, 8] };
    let mut out = [0; 64];
    let mut refused = |gate, up, sizes, text: &str| {
        let (dtype, activation) = (Dtype::F32, Activation::Silu);
        let task = Gated { dtype, sizes, d: 8, gate, up, activation, out: &mut out };
        let error = gated(task).expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
    };
    refused(few, heads, [1, 1, 2], "gate has 60");
    refused(heads, few, [1, 1, 2], "up has 60");
    refused(heads, heads, [1, 1, 1], "out has 64");
    let mut refused = |x, y, text: &str| {
        let operands = [x, y];
        let task = Sum { dtype: Dtype::F32, sizes: [1, 1, 2], d: 8, operands, out: &mut out };
        let error = sum(task).expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
    };
    refused(few, heads, "x has 60");
    refused(heads, few, "y has 60");
}
