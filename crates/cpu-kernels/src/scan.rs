//! The selective scan of Mamba 2: a state that each position lets decay and adds to.

use crate::functions::{add_product, softplus, sum_of_lanes};
use crate::level::{Kernel, run_at};
use crate::output::Output;
use crate::problem::buffer;
use crate::values::widen;
use crate::{Dtype, Error, Heads, Level, pool};

/// Rows of a head's state that one unit of work computes.
const BLOCK: usize = 16;
/// Lanes of a sum.
const LANES: usize = 16;

/// For each position and head: `step = clip(softplus(dt + dt_bias), limits)`, `S ← exp(-exp(a_log)
/// · step) · S + (step · x) bᵀ`, `out = S c + d · x`. Neighbouring heads share `b` and `c`, which
/// are those of their group. All in f32.
#[derive(Debug)]
pub struct Scan<'a> {
    /// Of `mixed`, `dt` and the result.
    pub dtype: Dtype,
    /// Rows of the batch, and positions of each.
    pub sizes: [usize; 2],
    /// Heads of x, a multiple of `groups`.
    pub heads: usize,
    /// Groups of heads.
    pub groups: usize,
    /// Values of x of a head: rows of its state.
    pub head_dim: usize,
    /// Values of `b` and of `c` of a group: columns of a state.
    pub state_dim: usize,
    /// `[rows, 1, positions, heads · head_dim + 2 · groups · state_dim]`: x of all heads, then `b`
    /// of all groups, then their `c`.
    pub mixed: Heads<'a>,
    /// `[rows, 1, positions, heads]`: what steps are made of.
    pub dt: Heads<'a>,
    /// `[heads]`.
    pub a_log: &'a [f32],
    /// `[heads]`.
    pub dt_bias: &'a [f32],
    /// `[heads]`: what of x passes the state by.
    pub d: &'a [f32],
    /// The least step and the largest.
    pub limits: [f32; 2],
    /// Positions of each row that count, from its first one; empty: all. Others leave the state as
    /// it is, and their results are 0.
    pub lengths: &'a [i32],
    /// `[rows, heads, head_dim, state_dim]` f32: before the first position, and afterwards after
    /// the last.
    pub state: &'a mut [u8],
    /// `[rows, positions, heads, head_dim]`.
    pub out: &'a mut [u8],
}

/// Computes `task.out`, and moves `task.state` on.
///
/// # Errors
/// Buffers whose sizes do not fit; nothing is written then.
pub fn scan(task: Scan<'_>) -> Result<(), Error> {
    scan_at(Level::current(), task)
}

/// Computes `task.out` with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// Those of [`scan`], and a level that this processor does not have.
pub fn scan_at(level: Level, task: Scan<'_>) -> Result<(), Error> {
    level.check()?;
    task.check()?;
    let Scan { dtype, sizes: [rows, l], heads, head_dim, state_dim, state, out, .. } = task;
    let task = &Scan { state: &mut [], out: &mut [], ..task };
    // Steps and decays of all positions; every row of a head's state uses them.
    let mut steps = vec![0; rows * l * 2 * heads * 4];
    {
        let steps = Output::new(&mut steps, (rows * l, 2 * heads), Dtype::F32);
        // SAFETY: the level was checked.
        let work = |row| unsafe { run_at(level, StepKernel { task, row, out: &steps }) };
        if rows * l == 1 {
            work(0);
        } else {
            pool::run(rows * l, &work);
        }
    }
    let state = Output::new(state, (rows * heads * head_dim, state_dim), Dtype::F32);
    let out = Output::new(out, (rows * l, heads * head_dim), dtype);
    let blocks = head_dim.div_ceil(BLOCK);
    pool::run(rows * heads * blocks, &|unit| {
        let (head, block) = (unit / blocks, unit % blocks);
        let place = (head / heads, head % heads, block * BLOCK);
        // SAFETY: the level was checked.
        unsafe {
            run_at(level, ScanKernel { task, steps: &steps, place, state: &state, out: &out })
        }
    });
    Ok(())
}

impl Scan<'_> {
    /// Checks every buffer against the sizes: what the kernels rely on.
    fn check(&self) -> Result<(), Error> {
        let Scan { dtype, sizes: [rows, l], heads, groups, head_dim, state_dim, .. } = *self;
        let groups_fit = groups > 0 && heads.is_multiple_of(groups);
        if !groups_fit || head_dim == 0 || state_dim == 0 {
            return Err(Error(format!(
                "no scan of {heads} heads in {groups} groups with states of {head_dim} by {state_dim}"
            )));
        }
        let [least, largest] = self.limits;
        if least.is_nan() || largest.is_nan() || least > largest {
            return Err(Error(format!("no steps are from {least} to {largest}")));
        }
        let columns = heads
            .checked_mul(head_dim)
            .zip(groups.checked_mul(state_dim).and_then(|values| values.checked_mul(2)))
            .and_then(|(x, shared)| x.checked_add(shared))
            .ok_or_else(|| Error("the heads of a scan are too many".to_owned()))?;
        self.mixed.check("mixed", [rows, 1, l, columns], dtype)?;
        self.dt.check("dt", [rows, 1, l, heads], dtype)?;
        let each = [("a_log", self.a_log), ("dt_bias", self.dt_bias), ("d", self.d)];
        for (name, values) in each {
            if values.len() != heads {
                return Err(Error(format!("{name} has {} of {heads} values", values.len())));
            }
        }
        if !self.lengths.is_empty() && self.lengths.len() != rows {
            return Err(Error(format!("{} lengths of {rows} rows", self.lengths.len())));
        }
        buffer("the state", self.state, &[rows, heads, head_dim, state_dim, 4])?;
        buffer("out", self.out, &[rows, l, heads, head_dim, dtype.size()])
    }

    /// Positions of a row that count.
    fn length(&self, row: usize) -> usize {
        let l = self.sizes[1];
        self.lengths.get(row).map_or(l, |length| l.min((*length).max(0) as usize))
    }
}

/// The steps of all heads at one position, then their decays.
struct StepKernel<'a> {
    task: &'a Scan<'a>,
    row: usize,
    out: &'a Output<'a>,
}

impl Kernel for StepKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let StepKernel { task, row, out } = self;
        let &Scan { dtype, sizes: [_, l], heads, limits: [least, largest], .. } = task;
        let mut values = vec![0.0; 2 * heads];
        let (steps, decays) = values.split_at_mut(heads);
        widen(dtype, &task.dt.from(dtype, row / l, 0, row % l)[..heads * dtype.size()], steps);
        for (head, (step, decay)) in steps.iter_mut().zip(decays).enumerate() {
            *step = softplus(*step + task.dt_bias[head]).clamp(least, largest);
            *decay = (-task.a_log[head].exp() * *step).exp();
        }
        // SAFETY: each position is one unit of work.
        unsafe { out.store(row, 0, &values) };
    }
}

/// Some rows of one head's state, through all positions.
struct ScanKernel<'a> {
    task: &'a Scan<'a>,
    /// `[rows · positions, 2 · heads]` f32: steps, then decays.
    steps: &'a [u8],
    /// Row, head, and the first row of its state.
    place: (usize, usize, usize),
    state: &'a Output<'a>,
    out: &'a Output<'a>,
}

impl Kernel for ScanKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let ScanKernel { task, steps, place: (row, head, first), state, out } = self;
        let &Scan { dtype, sizes: [_, l], heads, groups, head_dim, state_dim: n, .. } = task;
        let (count, size) = (BLOCK.min(head_dim - first), dtype.size());
        let first_state = (row * heads + head) * head_dim + first;
        let mut held = vec![0.0; count * n];
        for (at, held) in held.chunks_exact_mut(n).enumerate() {
            // SAFETY: each row of the state is part of one unit of work.
            unsafe { state.load(first_state + at, 0, held) };
        }
        // Where the values of this head's group begin.
        let b_column = heads * head_dim + head / (heads / groups) * n;
        let c_column = b_column + groups * n;
        let (mut b, mut c) = (vec![0.0; n], vec![0.0; n]);
        let (mut step, mut decay) = ([0.0; 1], [0.0; 1]);
        let (mut x, mut y) = ([0.0; BLOCK], [0.0; BLOCK]);
        let length = task.length(row);
        for t in 0..length {
            let mixed = task.mixed.from(dtype, row, 0, t);
            widen(dtype, &mixed[b_column * size..(b_column + n) * size], &mut b);
            widen(dtype, &mixed[c_column * size..(c_column + n) * size], &mut c);
            let at = (head * head_dim + first) * size;
            widen(dtype, &mixed[at..at + count * size], &mut x[..count]);
            let at = (row * l + t) * 2 * heads + head;
            widen(Dtype::F32, &steps[at * 4..at * 4 + 4], &mut step);
            let at = at + heads;
            widen(Dtype::F32, &steps[at * 4..at * 4 + 4], &mut decay);
            for (r, held) in held.chunks_exact_mut(n).enumerate() {
                let read = passed::<FMA>(held, decay[0], step[0] * x[r], &b, &c);
                y[r] = add_product::<FMA>(task.d[head], x[r], read);
            }
            // SAFETY: these columns of the result are part of one unit of work.
            unsafe { out.store(row * l + t, head * head_dim + first, &y[..count]) };
        }
        for t in length..l {
            // SAFETY: these columns of the result are part of one unit of work.
            unsafe { out.store(row * l + t, head * head_dim + first, &[0.0; BLOCK][..count]) };
        }
        for (at, held) in held.chunks_exact(n).enumerate() {
            // SAFETY: each row of the state is part of one unit of work.
            unsafe { state.store(first_state + at, 0, held) };
        }
    }
}

/// Decays a row of a state, adds `input · b`, and returns the row's product with `c`.
#[inline(always)]
fn passed<const FMA: bool>(held: &mut [f32], decay: f32, input: f32, b: &[f32], c: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (held, held_rest) = held.as_chunks_mut::<LANES>();
    let ((b, b_rest), (c, c_rest)) = (b.as_chunks::<LANES>(), c.as_chunks::<LANES>());
    for ((held, b), c) in held.iter_mut().zip(b).zip(c) {
        // Copies, which no store changes: else values would be taken one by one.
        let (mut lanes, b, c) = (*held, *b, *c);
        for i in 0..LANES {
            lanes[i] = add_product::<FMA>(input, b[i], lanes[i] * decay);
            sums[i] = add_product::<FMA>(lanes[i], c[i], sums[i]);
        }
        *held = lanes;
    }
    for (((sum, held), b), c) in sums.iter_mut().zip(held_rest).zip(b_rest).zip(c_rest) {
        *held = add_product::<FMA>(input, *b, *held * decay);
        *sum = add_product::<FMA>(*held, *c, *sum);
    }
    sum_of_lanes(sums)
}
