//! Short convolutions and the gated delta rule against plain ones in f64, whole and in parts, under
//! every level.

use super::numbers::{push, random, value};
use cpu_kernels::{
    Convolution, ConvolutionActivation, Delta, Dtype, Heads, Level, convolution_at, delta_at,
};

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

fn values(dtype: Dtype, count: usize, seed: u64) -> Vec<u8> {
    let (mut state, mut bytes) = (seed, Vec::new());
    (0..count).for_each(|_| push(dtype, &mut bytes, random(&mut state)));
    bytes
}

fn all(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
    (0..bytes.len() / dtype.size()).map(|i| value(dtype, bytes, i)).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    all(Dtype::F32, bytes).into_iter().map(|value| value as f32).collect()
}

#[track_caller]
fn assert_near(dtype: Dtype, found: &[u8], expected: &[f64], what: &str) {
    let tolerance = match dtype {
        Dtype::F32 => 1e-4,
        Dtype::F16 => 4e-3,
        Dtype::Bf16 => 3e-2,
    };
    assert_eq!(found.len(), expected.len() * dtype.size());
    for (i, expected) in expected.iter().enumerate() {
        let found = value(dtype, found, i);
        assert!((found - expected).abs() <= tolerance, "{what} {i}: {found}, expected {expected}");
    }
}

/// The sizes of a delta rule, with keys of 20 values, which no vector divides.
const KEY_HEADS: usize = 2;
const HEADS: usize = 6;
const DK: usize = 20;
const DV: usize = 11;
const COLUMNS: usize = 2 * KEY_HEADS * DK + HEADS * DV;

struct Inputs {
    dtype: Dtype,
    rows: usize,
    l: usize,
    /// Of a head: 1 or `DK`.
    decays: usize,
    mixed: Vec<u8>,
    a: Vec<u8>,
    b: Vec<u8>,
    a_log: Vec<f32>,
    dt_bias: Vec<f32>,
}

impl Inputs {
    fn new(dtype: Dtype, rows: usize, l: usize, decays: usize) -> Inputs {
        Inputs {
            dtype,
            rows,
            l,
            decays,
            mixed: values(dtype, rows * l * COLUMNS, 1),
            a: values(dtype, rows * l * HEADS * decays, 2),
            b: values(dtype, rows * l * HEADS, 3),
            a_log: floats(&values(Dtype::F32, HEADS, 4)),
            dt_bias: floats(&values(Dtype::F32, HEADS * decays, 5)),
        }
    }

    /// The result of the positions `first..end`, after which `state` is theirs.
    fn run(
        &self,
        level: Level,
        (first, end): (usize, usize),
        lengths: &[i32],
        state: &mut [u8],
    ) -> Vec<u8> {
        let part = |data: &'_ [u8], width: usize| {
            data[first * width * self.dtype.size()..].to_vec().leak() as &'static [u8]
        };
        let heads = |data: &[u8], width: usize| Heads {
            data: part(data, width),
            strides: [self.l * width, 0, width],
        };
        let mut out = vec![0xff; self.rows * (end - first) * HEADS * DV * self.dtype.size()];
        delta_at(
            level,
            Delta {
                dtype: self.dtype,
                sizes: [self.rows, end - first],
                k_heads: KEY_HEADS,
                v_heads: HEADS,
                dk: DK,
                dv: DV,
                mixed: heads(&self.mixed, COLUMNS),
                decays: self.decays,
                a: heads(&self.a, HEADS * self.decays),
                b: heads(&self.b, HEADS),
                a_log: &self.a_log,
                dt_bias: &self.dt_bias,
                lengths,
                state,
                out: &mut out,
            },
        )
        .expect("sizes that fit");
        out
    }

    /// One row's results and its state afterwards, after `state`.
    fn plain(&self, row: usize, length: usize, state: &mut [f64]) -> Vec<f64> {
        let (mixed, a) = (all(self.dtype, &self.mixed), all(self.dtype, &self.a));
        let b = all(self.dtype, &self.b);
        let unit = |x: &[f64]| -> Vec<f64> {
            let length = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
            x.iter().map(|x| x / length).collect()
        };
        let mut out = Vec::new();
        for t in 0..length {
            let at = row * self.l + t;
            let mixed = &mixed[at * COLUMNS..][..COLUMNS];
            for head in 0..HEADS {
                let key = head / (HEADS / KEY_HEADS);
                let q = unit(&mixed[key * DK..][..DK]);
                let k = unit(&mixed[(KEY_HEADS + key) * DK..][..DK]);
                let v = &mixed[2 * KEY_HEADS * DK + head * DV..][..DV];
                let decay = |column: usize| {
                    let column = head * self.decays + column % self.decays;
                    let a = a[at * HEADS * self.decays + column];
                    let softplus = (a + f64::from(self.dt_bias[column])).exp().ln_1p();
                    (-f64::from(self.a_log[head]).exp() * softplus).exp()
                };
                let decays: Vec<f64> = (0..DK).map(decay).collect();
                let beta = 1.0 / (1.0 + (-b[at * HEADS + head]).exp());
                for (i, v) in v.iter().enumerate() {
                    let held = &mut state[(head * DV + i) * DK..][..DK];
                    held.iter_mut().zip(&decays).for_each(|(held, decay)| *held *= decay);
                    let known: f64 = held.iter().zip(&k).map(|(held, k)| held * k).sum();
                    let wrong = beta * (v - known);
                    held.iter_mut().zip(&k).for_each(|(held, k)| *held += wrong * k);
                    let y: f64 = held.iter().zip(&q).map(|(held, q)| held * q).sum();
                    out.push(y / (DK as f64).sqrt());
                }
            }
        }
        out
    }
}

#[test]
fn a_delta_rule_is_the_plain_one_whole_and_in_parts() {
    let (rows, l) = (3, 9);
    for (&level, decays) in
        Level::available().iter().flat_map(|level| [1, DK].map(|decays| (level, decays)))
    {
        for dtype in DTYPES {
            let inputs = Inputs::new(dtype, rows, l, decays);
            let before = values(Dtype::F32, rows * HEADS * DV * DK, 6);
            let mut state = before.clone();
            let whole = inputs.run(level, (0, l), &[], &mut state);
            let width = HEADS * DV;
            for row in 0..rows {
                let what = format!("{level:?} {dtype:?} {decays} decays, row {row}");
                let mut plain = all(Dtype::F32, &before)[row * width * DK..][..width * DK].to_vec();
                let expected = inputs.plain(row, l, &mut plain);
                let size = dtype.size();
                let found = &whole[row * l * width * size..][..l * width * size];
                assert_near(dtype, found, &expected, &what);
                let found = &state[row * width * DK * 4..][..width * DK * 4];
                assert_near(Dtype::F32, found, &plain, &what);
            }
            // In parts the same bits.
            let mut parts = before.clone();
            let mut rest: Vec<Vec<u8>> = Vec::new();
            for part in [(0, 1), (1, 5), (5, l)] {
                rest.push(inputs.run(level, part, &[], &mut parts));
            }
            assert!(parts == state, "{level:?} {dtype:?}");
            let size = width * dtype.size();
            assert_eq!(rest[0][..size], whole[..size]);
            assert_eq!(rest[1][..4 * size], whole[size..5 * size]);
            // Rows that end earlier keep the state that they had there.
            let lengths = [l as i32, 4, 0];
            let mut ended = before.clone();
            let found = inputs.run(level, (0, l), &lengths, &mut ended);
            for (row, length) in lengths.into_iter().enumerate() {
                let mut alone = before.clone();
                inputs.run(level, (0, length as usize), &[], &mut alone);
                let of_row = row * width * DK * 4..(row + 1) * width * DK * 4;
                assert!(ended[of_row.clone()] == alone[of_row], "{level:?} {dtype:?} row {row}");
                let of_row = row * l * size..row * l * size + length as usize * size;
                assert!(found[of_row.clone()] == whole[of_row], "{level:?} {dtype:?} row {row}");
            }
        }
    }
}

#[test]
fn a_convolution_is_the_plain_one_whole_and_in_parts() {
    // More channels than are computed at a time, and no multiple of them.
    let (b, l, channels, taps) = (3, 7, 71, 4);
    let forms = [(false, ConvolutionActivation::Silu), (true, ConvolutionActivation::None)];
    for (&level, (has_bias, activation)) in
        Level::available().iter().flat_map(|level| forms.map(|form| (level, form)))
    {
        for dtype in DTYPES {
            let (x, weight) =
                (values(dtype, b * l * channels, 1), values(dtype, taps * channels, 2));
            let bias = has_bias.then(|| values(dtype, channels, 4));
            let before = values(dtype, b * (taps - 1) * channels, 3);
            let run = |(first, end): (usize, usize), lengths: &[i32], state: &mut [u8]| {
                let mut out = vec![0xff; b * (end - first) * channels * dtype.size()];
                let strides = [l * channels, 0, channels];
                let x = Heads { data: &x[first * channels * dtype.size()..], strides };
                let (l, weight, out_bytes) = (end - first, &weight[..], &mut out[..]);
                let task = Convolution {
                    dtype,
                    b,
                    l,
                    channels,
                    taps,
                    x,
                    state,
                    lengths,
                    weight,
                    bias: bias.as_deref(),
                    activation,
                    out: out_bytes,
                };
                convolution_at(level, task).expect("sizes that fit");
                out
            };
            let mut state = before.clone();
            let whole = run((0, l), &[], &mut state);
            let (x, weight, held) = (all(dtype, &x), all(dtype, &weight), all(dtype, &before));
            let bias = bias.as_ref().map(|bias| all(dtype, bias));
            let mut expected = Vec::new();
            for (row, t, channel) in (0..b)
                .flat_map(|row| (0..l).map(move |t| (row, t)))
                .flat_map(|(row, t)| (0..channels).map(move |channel| (row, t, channel)))
            {
                let sum: f64 = (0..taps)
                    .map(|tap| {
                        let seen = match (t + tap).checked_sub(taps - 1) {
                            Some(own) => x[(row * l + own) * channels + channel],
                            None => held[(row * (taps - 1) + t + tap) * channels + channel],
                        };
                        seen * weight[tap * channels + channel]
                    })
                    .sum();
                let sum = sum + bias.as_ref().map_or(0.0, |bias| bias[channel]);
                expected.push(match activation {
                    ConvolutionActivation::None => sum,
                    ConvolutionActivation::Silu => sum / (1.0 + (-sum).exp()),
                });
            }
            assert_near(dtype, &whole, &expected, &format!("{level:?} {dtype:?}"));
            // In parts, of which some are shorter than the state.
            let mut parts = before.clone();
            for part in [(0, 1), (1, 3), (3, l)] {
                run(part, &[], &mut parts);
            }
            assert!(parts == state, "{level:?} {dtype:?}");
            let lengths = [l as i32, 2, 0];
            let mut ended = before.clone();
            run((0, l), &lengths, &mut ended);
            let size = (taps - 1) * channels * dtype.size();
            for (row, length) in lengths.into_iter().enumerate() {
                let mut alone = before.clone();
                run((0, length as usize), &[], &mut alone);
                assert_eq!(ended[row * size..][..size], alone[row * size..][..size], "row {row}");
            }
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused_and_nothing_is_written() {
    let inputs = Inputs::new(Dtype::F32, 1, 2, 1);
    let heads = |data: &'static [u8], width: usize| Heads { data, strides: [2 * width, 0, width] };
    let mixed: &'static [u8] = inputs.mixed.clone().leak();
    let gates: &'static [u8] = inputs.a.clone().leak();
    let mut state = vec![7; HEADS * DV * DK * 4];
    let mut try_with =
        |[dk, decays]: [usize; 2], mixed: &'static [u8], a_log: &[f32], lengths: &[i32]| {
            let mut out = vec![7; 2 * HEADS * DV * 4];
            let refused = delta_at(
                Level::Portable,
                Delta {
                    dtype: Dtype::F32,
                    sizes: [1, 2],
                    k_heads: KEY_HEADS,
                    v_heads: HEADS,
                    dk,
                    dv: DV,
                    mixed: heads(mixed, COLUMNS),
                    decays,
                    a: heads(gates, HEADS),
                    b: heads(gates, HEADS),
                    a_log,
                    dt_bias: &inputs.dt_bias,
                    lengths,
                    state: &mut state,
                    out: &mut out,
                },
            );
            assert!(out.iter().all(|byte| *byte == 7) && state.iter().all(|byte| *byte == 7));
            refused.expect_err("they do not fit").to_string()
        };
    assert!(try_with([DK, 1], &mixed[8..], &inputs.a_log, &[]).contains("mixed"));
    assert!(try_with([DK + 1, 1], mixed, &inputs.a_log, &[]).contains("keys of 21 values"));
    assert!(try_with([DK, 1], mixed, &inputs.a_log[1..], &[]).contains("a_log has 5 of 6"));
    assert!(try_with([DK, 1], mixed, &inputs.a_log, &[1, 1]).contains("2 lengths of 1 rows"));
    assert!(try_with([DK, 3], mixed, &inputs.a_log, &[]).contains("3 decays"));
    assert!(try_with([DK, DK], mixed, &inputs.a_log, &[]).starts_with("a "));
}
