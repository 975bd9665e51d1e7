//! The selective scan against a plain one in f64, whole and in parts, under every level.

use super::numbers::{push, random, value};
use cpu_kernels::{Dtype, Heads, Level, Scan, scan_at};

/// Sizes that no vector divides; more rows of a state than one unit of work has.
const HEADS: usize = 6;
const GROUPS: usize = 2;
const HEAD_DIM: usize = 19;
const STATE_DIM: usize = 21;
const INNER: usize = HEADS * HEAD_DIM;
const COLUMNS: usize = INNER + 2 * GROUPS * STATE_DIM;
const STATE: usize = INNER * STATE_DIM;

fn values(dtype: Dtype, count: usize, seed: u64) -> Vec<u8> {
    let (mut state, mut bytes) = (seed, Vec::new());
    (0..count).for_each(|_| push(dtype, &mut bytes, random(&mut state)));
    bytes
}

fn all(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
    (0..bytes.len() / dtype.size()).map(|i| value(dtype, bytes, i)).collect()
}

#[track_caller]
fn assert_near(dtype: Dtype, found: &[u8], expected: &[f64], what: &str) {
    let tolerance = match dtype {
        Dtype::F32 => 1e-4,
        Dtype::F16 => 1e-2,
        Dtype::Bf16 => 6e-2,
    };
    assert_eq!(found.len(), expected.len() * dtype.size());
    for (i, expected) in expected.iter().enumerate() {
        let found = value(dtype, found, i);
        assert!((found - expected).abs() <= tolerance, "{what} {i}: {found}, expected {expected}");
    }
}

struct Inputs {
    dtype: Dtype,
    rows: usize,
    l: usize,
    mixed: Vec<u8>,
    dt: Vec<u8>,
    /// The logarithm of the rate, the bias of steps, and what passes the state by.
    each: [Vec<f32>; 3],
    limits: [f32; 2],
}

impl Inputs {
    fn new(dtype: Dtype, rows: usize, l: usize, limits: [f32; 2]) -> Inputs {
        let each = [4, 5, 6].map(|seed| {
            let values = all(Dtype::F32, &values(Dtype::F32, HEADS, seed));
            values.into_iter().map(|value| value as f32).collect()
        });
        let mixed = values(dtype, rows * l * COLUMNS, 1);
        Inputs { dtype, rows, l, mixed, dt: values(dtype, rows * l * HEADS, 2), each, limits }
    }

    /// The result of the positions `first..end`, after which `state` is theirs.
    fn run(
        &self,
        level: Level,
        (first, end): (usize, usize),
        lengths: &[i32],
        state: &mut [u8],
    ) -> Vec<u8> {
        let mut out = vec![0xff; self.rows * (end - first) * INNER * self.dtype.size()];
        let heads = |data, width: usize| -> Heads<'_> {
            let data: &[u8] = data;
            let at = (first * width * self.dtype.size()).min(data.len());
            Heads { data: &data[at..], strides: [self.l * width, 0, width] }
        };
        let [a_log, dt_bias, d] = &self.each;
        let task = Scan {
            dtype: self.dtype,
            sizes: [self.rows, end - first],
            heads: HEADS,
            groups: GROUPS,
            head_dim: HEAD_DIM,
            state_dim: STATE_DIM,
            mixed: heads(&self.mixed, COLUMNS),
            dt: heads(&self.dt, HEADS),
            a_log,
            dt_bias,
            d,
            limits: self.limits,
            lengths,
            state,
            out: &mut out,
        };
        scan_at(level, task).expect("sizes that fit");
        out
    }

    /// One row's results, after which `state` is that of its end.
    fn plain(&self, row: usize, state: &mut [f64]) -> Vec<f64> {
        let (mixed, dt) = (all(self.dtype, &self.mixed), all(self.dtype, &self.dt));
        let [a_log, dt_bias, d] = &self.each;
        let [least, largest] = self.limits.map(f64::from);
        let mut out = Vec::new();
        for at in row * self.l..(row + 1) * self.l {
            let mixed = &mixed[at * COLUMNS..][..COLUMNS];
            for head in 0..HEADS {
                let step = (dt[at * HEADS + head] + f64::from(dt_bias[head])).exp().ln_1p();
                let step = step.clamp(least, largest);
                let decay = (-f64::from(a_log[head]).exp() * step).exp();
                let group = head / (HEADS / GROUPS);
                let b = &mixed[INNER + group * STATE_DIM..][..STATE_DIM];
                let c = &mixed[INNER + (GROUPS + group) * STATE_DIM..][..STATE_DIM];
                for i in head * HEAD_DIM..(head + 1) * HEAD_DIM {
                    let held = &mut state[i * STATE_DIM..][..STATE_DIM];
                    for (held, b) in held.iter_mut().zip(b) {
                        *held = decay * *held + step * mixed[i] * b;
                    }
                    let read: f64 = held.iter().zip(c).map(|(held, c)| held * c).sum();
                    out.push(read + f64::from(d[head]) * mixed[i]);
                }
            }
        }
        out
    }
}

#[test]
fn a_scan_is_the_plain_one_whole_and_in_parts() {
    let (rows, l) = (3, 11);
    let forms = [[0.0, f32::INFINITY], [0.5, 0.9]];
    for (&level, limits) in
        Level::available().iter().flat_map(|level| forms.map(|limits| (level, limits)))
    {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let inputs = Inputs::new(dtype, rows, l, limits);
            let before = values(Dtype::F32, rows * STATE, 6);
            let mut state = before.clone();
            let whole = inputs.run(level, (0, l), &[], &mut state);
            let size = INNER * dtype.size();
            for row in 0..rows {
                let what = format!("{level:?} {dtype:?} {limits:?} row {row}");
                let mut plain = all(Dtype::F32, &before)[row * STATE..][..STATE].to_vec();
                let expected = inputs.plain(row, &mut plain);
                assert_near(dtype, &whole[row * l * size..][..l * size], &expected, &what);
                assert_near(Dtype::F32, &state[row * STATE * 4..][..STATE * 4], &plain, &what);
            }
            // In parts the same bits.
            let mut parts = before.clone();
            let mut rest: Vec<Vec<u8>> = Vec::new();
            for part in [(0, 1), (1, 7), (7, l)] {
                rest.push(inputs.run(level, part, &[], &mut parts));
            }
            assert!(parts == state, "{level:?} {dtype:?}");
            assert_eq!(rest[0][..size], whole[..size]);
            assert_eq!(rest[1][..6 * size], whole[size..7 * size]);
            // Rows that end earlier keep the state that they had there.
            let lengths = [l as i32, 5, 0];
            let mut ended = before.clone();
            let found = inputs.run(level, (0, l), &lengths, &mut ended);
            for (row, length) in lengths.into_iter().enumerate() {
                let mut alone = before.clone();
                inputs.run(level, (0, length as usize), &[], &mut alone);
                let of_row = row * STATE * 4..(row + 1) * STATE * 4;
                assert!(ended[of_row.clone()] == alone[of_row], "{level:?} {dtype:?} row {row}");
                let counts = row * l * size..(row * l + length as usize) * size;
                assert!(found[counts.clone()] == whole[counts], "{level:?} {dtype:?} row {row}");
                let padding = &found[(row * l + length as usize) * size..(row + 1) * l * size];
                assert!(padding.iter().all(|byte| *byte == 0), "{level:?} {dtype:?} row {row}");
            }
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused_and_nothing_is_written() {
    let inputs = Inputs::new(Dtype::F32, 1, 2, [0.0, 1.0]);
    let mut state = vec![7; STATE * 4];
    let mut try_with = |groups: usize, mixed: &[u8], d: &[f32], lengths: &[i32], limits| {
        let mut out = vec![7; 2 * INNER * 4];
        let [a_log, dt_bias, _] = &inputs.each;
        let refused = scan_at(
            Level::Portable,
            Scan {
                dtype: Dtype::F32,
                sizes: [1, 2],
                heads: HEADS,
                groups,
                head_dim: HEAD_DIM,
                state_dim: STATE_DIM,
                mixed: Heads { data: mixed, strides: [2 * COLUMNS, 0, COLUMNS] },
                dt: Heads { data: &inputs.dt, strides: [2 * HEADS, 0, HEADS] },
                a_log,
                dt_bias,
                d,
                limits,
                lengths,
                state: &mut state,
                out: &mut out,
            },
        );
        assert!(out.iter().all(|byte| *byte == 7) && state.iter().all(|byte| *byte == 7));
        refused.expect_err("they do not fit").to_string()
    };
    let (mixed, d, any) = (&inputs.mixed[..], &inputs.each[2][..], [0.0, 1.0]);
    assert!(try_with(GROUPS, &mixed[8..], d, &[], any).contains("mixed"));
    assert!(try_with(4, mixed, d, &[], any).contains("6 heads in 4 groups"));
    assert!(try_with(GROUPS, mixed, &d[1..], &[], any).contains("d has 5 of 6"));
    assert!(try_with(GROUPS, mixed, d, &[1, 1], any).contains("2 lengths of 1 rows"));
    assert!(try_with(GROUPS, mixed, d, &[], [2.0, 1.0]).contains("from 2 to 1"));
}
