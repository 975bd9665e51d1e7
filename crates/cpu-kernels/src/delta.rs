//! The gated delta rule: linear attention whose state is corrected by what it predicts wrongly.

use crate::functions::{add_product, softplus, sum_of_lanes};
use crate::level::{Kernel, run_at};
use crate::output::Output;
use crate::problem::buffer;
use crate::values::widen;
use crate::{Dtype, Error, Heads, Level, pool};

/// Rows of a head's state that one unit of work computes.
const BLOCK: usize = 8;
/// Lanes of a sum.
const LANES: usize = 16;
/// Decays from which on computing them is worth more threads than one.
const WORTH_THREADS: usize = 512;
/// The most values of a key.
const MOST_KEY_VALUES: usize = 256;
/// Keeps the length of a query or a key from 0.
const EPS: f32 = 1e-6;

/// For each position: queries and keys become unit vectors, queries over `√dk`; `decay =
/// exp(-exp(a_log) · softplus(a + dt_bias))`, `beta = sigmoid(b)`; then for each value head, whose
/// key head is the one that it shares with its neighbours, `S ← decay · S`, `S ← S + beta · (v - S
/// k) kᵀ`, `out = S q`. All in f32. A head has one decay, or one for each value of a key, that is
/// for each column of S.
#[derive(Debug)]
pub struct Delta<'a> {
    /// Of `mixed`, `a`, `b` and the result.
    pub dtype: Dtype,
    /// Rows of the batch, and positions of each.
    pub sizes: [usize; 2],
    /// Heads of queries and keys.
    pub k_heads: usize,
    /// Heads of values, a multiple of `k_heads`.
    pub v_heads: usize,
    /// Values of a query and a key; a multiple of 4, at most 256.
    pub dk: usize,
    /// Values of a value.
    pub dv: usize,
    /// `[rows, 1, positions, 2 · k_heads · dk + v_heads · dv]`: queries, keys and values of all
    /// heads.
    pub mixed: Heads<'a>,
    /// Decays of a value head: 1 or `dk`.
    pub decays: usize,
    /// `[rows, 1, positions, v_heads · decays]`: what decay is made of.
    pub a: Heads<'a>,
    /// `[rows, 1, positions, v_heads]`: what beta is made of.
    pub b: Heads<'a>,
    /// `[v_heads]`.
    pub a_log: &'a [f32],
    /// `[v_heads · decays]`.
    pub dt_bias: &'a [f32],
    /// Positions of each row that count, from its first one; empty: all. Others leave the state as
    /// it is.
    pub lengths: &'a [i32],
    /// `[rows, v_heads, dv, dk]` f32: before the first position, and afterwards after the last.
    pub state: &'a mut [u8],
    /// `[rows, positions, v_heads, dv]`.
    pub out: &'a mut [u8],
}

/// Computes `task.out`, and moves `task.state` on.
///
/// # Errors
/// Buffers whose sizes do not fit; nothing is written then.
pub fn delta(task: Delta<'_>) -> Result<(), Error> {
    delta_at(Level::current(), task)
}

/// Computes `task.out` with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// Those of [`delta`], and a level that this processor does not have.
pub fn delta_at(level: Level, task: Delta<'_>) -> Result<(), Error> {
    level.check()?;
    task.check()?;
    let Delta { dtype, sizes: [rows, l], k_heads, v_heads, dk, dv, decays, state, out, .. } = task;
    let task = &Delta { state: &mut [], out: &mut [], ..task };
    // Queries and keys of all positions as unit vectors; every value head of a key head uses them.
    let mut unit = vec![0; rows * l * 2 * k_heads * dk * 4];
    {
        let unit = Output::new(&mut unit, (rows * l, 2 * k_heads * dk), Dtype::F32);
        // SAFETY: the level was checked.
        let work = |row| unsafe { run_at(level, UnitKernel { task, row, out: &unit }) };
        if rows * l == 1 {
            work(0);
        } else {
            pool::run(rows * l, &work);
        }
    }
    let mut decay = vec![0; rows * l * v_heads * decays * 4];
    {
        let decay = Output::new(&mut decay, (rows * l, v_heads * decays), Dtype::F32);
        let work = |unit_of_work: usize| {
            let (row, head) = (unit_of_work / v_heads, unit_of_work % v_heads);
            // SAFETY: the level was checked.
            unsafe { run_at(level, DecayKernel { task, row, head, out: &decay }) }
        };
        if rows * l * v_heads * decays < WORTH_THREADS {
            (0..rows * l * v_heads).for_each(work);
        } else {
            pool::run(rows * l * v_heads, &work);
        }
    }
    let known = Known { unit: &unit, decay: &decay };
    let state = Output::new(state, (rows * v_heads * dv, dk), Dtype::F32);
    let out = Output::new(out, (rows * l, v_heads * dv), dtype);
    let blocks = dv.div_ceil(BLOCK);
    pool::run(rows * v_heads * blocks, &|unit_of_work| {
        let (head, block) = (unit_of_work / blocks, unit_of_work % blocks);
        let place = (head / v_heads, head % v_heads, block * BLOCK);
        // SAFETY: the level was checked.
        unsafe { run_at(level, DeltaKernel { task, known, place, state: &state, out: &out }) }
    });
    Ok(())
}

impl Delta<'_> {
    /// Checks every buffer against the sizes: what the kernels rely on.
    fn check(&self) -> Result<(), Error> {
        let Delta { dtype, sizes: [rows, l], k_heads, v_heads, dk, dv, decays, .. } = *self;
        let heads_fit = k_heads > 0 && v_heads.is_multiple_of(k_heads);
        if !heads_fit || dk == 0 || dk > MOST_KEY_VALUES || !dk.is_multiple_of(4) {
            return Err(Error(format!(
                "no delta rule of {v_heads} heads over {k_heads} with keys of {dk} values"
            )));
        }
        if decays != 1 && decays != dk {
            return Err(Error(format!("{decays} decays of heads with keys of {dk} values")));
        }
        let columns = k_heads
            .checked_mul(2 * dk)
            .zip(v_heads.checked_mul(dv))
            .and_then(|(keys, values)| keys.checked_add(values))
            .ok_or_else(|| Error("the heads of a delta rule are too many".to_owned()))?;
        self.mixed.check("mixed", [rows, 1, l, columns], dtype)?;
        let all_decays = v_heads
            .checked_mul(decays)
            .ok_or_else(|| Error("the decays of a delta rule are too many".to_owned()))?;
        self.a.check("a", [rows, 1, l, all_decays], dtype)?;
        self.b.check("b", [rows, 1, l, v_heads], dtype)?;
        let vectors = [("a_log", self.a_log, v_heads), ("dt_bias", self.dt_bias, all_decays)];
        for (name, values, count) in vectors {
            if values.len() != count {
                return Err(Error(format!("{name} has {} of {count} values", values.len())));
            }
        }
        if !self.lengths.is_empty() && self.lengths.len() != rows {
            return Err(Error(format!("{} lengths of {rows} rows", self.lengths.len())));
        }
        buffer("the state", self.state, &[rows, v_heads, dv, dk, 4])?;
        buffer("out", self.out, &[rows, l, v_heads, dv, dtype.size()])
    }

    /// Positions of a row that count.
    fn length(&self, row: usize) -> usize {
        let l = self.sizes[1];
        self.lengths.get(row).map_or(l, |length| l.min((*length).max(0) as usize))
    }
}

/// The queries and keys of one position as unit vectors.
struct UnitKernel<'a> {
    task: &'a Delta<'a>,
    row: usize,
    out: &'a Output<'a>,
}

impl Kernel for UnitKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let UnitKernel { task, row, out } = self;
        let &Delta { dtype, sizes: [_, l], k_heads, dk, .. } = task;
        let from = task.mixed.from(dtype, row / l, 0, row % l);
        let mut values = [0.0; MOST_KEY_VALUES];
        for head in 0..2 * k_heads {
            let first = head * dk * dtype.size();
            let values = &mut values[..dk];
            widen(dtype, &from[first..first + dk * dtype.size()], values);
            let length = (dot::<FMA>(values, values) + EPS).sqrt();
            let scale = if head < k_heads { (dk as f32).sqrt().recip() } else { 1.0 };
            for value in values.iter_mut() {
                *value = *value / length * scale;
            }
            // SAFETY: each position is one unit of work.
            unsafe { out.store(row, head * dk, values) };
        }
    }
}

/// The decays of one head at one position.
struct DecayKernel<'a> {
    task: &'a Delta<'a>,
    row: usize,
    head: usize,
    out: &'a Output<'a>,
}

impl Kernel for DecayKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let DecayKernel { task, row, head, out } = self;
        let &Delta { dtype, sizes: [_, l], decays, .. } = task;
        let from = task.a.from(dtype, row / l, 0, row % l);
        let first = head * decays;
        let mut values = [0.0; MOST_KEY_VALUES];
        let values = &mut values[..decays];
        widen(dtype, &from[first * dtype.size()..(first + decays) * dtype.size()], values);
        let rate = task.a_log[head].exp();
        for (value, bias) in values.iter_mut().zip(&task.dt_bias[first..first + decays]) {
            *value = (-rate * softplus(*value + bias)).exp();
        }
        // SAFETY: the decays of each head at each position are one unit of work.
        unsafe { out.store(row, first, values) };
    }
}

/// Values of all positions, in f32, that are computed before the state goes through them.
#[derive(Clone, Copy)]
struct Known<'a> {
    /// `[rows · positions, 2 · k_heads · dk]`: queries, then keys, as unit vectors.
    unit: &'a [u8],
    /// `[rows · positions, v_heads · decays]`.
    decay: &'a [u8],
}

/// Some rows of one head's state, through all positions.
struct DeltaKernel<'a> {
    task: &'a Delta<'a>,
    known: Known<'a>,
    /// Row, head, and the first row of its state.
    place: (usize, usize, usize),
    state: &'a Output<'a>,
    out: &'a Output<'a>,
}

impl Kernel for DeltaKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let DeltaKernel { task, known, place: (row, head, first), state, out } = self;
        let Known { unit, decay } = known;
        let &Delta { dtype, sizes: [_, l], k_heads, v_heads, dk, dv, decays, .. } = task;
        let count = BLOCK.min(dv - first);
        let first_state = (row * v_heads + head) * dv + first;
        let mut held = [[0.0; MOST_KEY_VALUES]; BLOCK];
        for (at, held) in held[..count].iter_mut().enumerate() {
            // SAFETY: each row of the state is part of one unit of work.
            unsafe { state.load(first_state + at, 0, &mut held[..dk]) };
        }
        let k_head = head / (v_heads / k_heads);
        let (mut q, mut k) = ([0.0; MOST_KEY_VALUES], [0.0; MOST_KEY_VALUES]);
        let mut factors = [0.0; MOST_KEY_VALUES];
        let (mut v, mut y, mut gate) = ([0.0; BLOCK], [0.0; BLOCK], [0.0; 1]);
        let length = task.length(row);
        for t in 0..l {
            let at = ((row * l + t) * 2 * k_heads + k_head) * dk * 4;
            widen(Dtype::F32, &unit[at..at + dk * 4], &mut q[..dk]);
            if t < length {
                let at = at + k_heads * dk * 4;
                widen(Dtype::F32, &unit[at..at + dk * 4], &mut k[..dk]);
                let mixed = task.mixed.from(dtype, row, 0, t);
                let at = (2 * k_heads * dk + head * dv + first) * dtype.size();
                widen(dtype, &mixed[at..at + count * dtype.size()], &mut v[..count]);
                let at = ((row * l + t) * v_heads + head) * decays * 4;
                widen(Dtype::F32, &decay[at..at + decays * 4], &mut factors[..decays]);
                if decays == 1 {
                    let [one, ..] = factors;
                    factors[..dk].fill(one);
                }
                let column = head * dtype.size()..(head + 1) * dtype.size();
                widen(dtype, &task.b.from(dtype, row, 0, t)[column], &mut gate);
                let beta = 1.0 / (1.0 + (-gate[0]).exp());
                for (held, v) in held[..count].iter_mut().zip(&v) {
                    let held = &mut held[..dk];
                    for (value, factor) in held.iter_mut().zip(&factors) {
                        *value *= factor;
                    }
                    let wrong = (v - dot::<FMA>(held, &k[..dk])) * beta;
                    for (held, k) in held.iter_mut().zip(&k[..dk]) {
                        *held = add_product::<FMA>(wrong, *k, *held);
                    }
                }
            }
            for (y, held) in y.iter_mut().zip(&held[..count]) {
                *y = dot::<FMA>(&held[..dk], &q[..dk]);
            }
            // SAFETY: these columns of the result are part of one unit of work.
            unsafe { out.store(row * l + t, head * dv + first, &y[..count]) };
        }
        for (at, held) in held[..count].iter().enumerate() {
            // SAFETY: each row of the state is part of one unit of work.
            unsafe { state.store(first_state + at, 0, &held[..dk]) };
        }
    }
}

/// The sum of products, in the order of lanes.
#[inline(always)]
fn dot<const FMA: bool>(x: &[f32], y: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (x_lanes, x_rest) = x.as_chunks::<LANES>();
    let (y_lanes, y_rest) = y.as_chunks::<LANES>();
    for (x, y) in x_lanes.iter().zip(y_lanes) {
        for ((sum, x), y) in sums.iter_mut().zip(x).zip(y) {
            *sum = add_product::<FMA>(*x, *y, *sum);
        }
    }
    for ((sum, x), y) in sums.iter_mut().zip(x_rest).zip(y_rest) {
        *sum = add_product::<FMA>(*x, *y, *sum);
    }
    sum_of_lanes(sums)
}
