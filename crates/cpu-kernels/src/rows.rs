//! Operations between products, row by row: norms, rotations, gates and sums.
//!
//! A row of the result depends on its own operands alone, to the bit (at one [`Level`]).

use std::cell::RefCell;

use crate::activation::Activation;
use crate::functions::{add_product, sum_of_lanes};
use crate::level::{Kernel, run_at};
use crate::output::Output;
use crate::problem::buffer;
use crate::values::{narrow, rounded, widen};
use crate::{Dtype, Error, Heads, Level, pool};

/// Lanes of a sum of squares.
const LANES: usize = 16;
/// Values that a thread takes at once; fewer are not worth a second thread.
const UNIT: usize = 1 << 14;
/// Values that pass a gate at a time.
const SOME: usize = 64;

/// Rows of `d` values each, which are normed, then rotated.
#[derive(Debug)]
pub struct Rows<'a> {
    /// Of x, of the norm's weights and of the result.
    pub dtype: Dtype,
    /// The numbers of rows: batch, positions, heads.
    pub sizes: [usize; 3],
    /// Values of a row.
    pub d: usize,
    /// `[batch, positions, heads, d]`.
    pub x: Heads<'a>,
    /// The norm of each row.
    pub norm: Option<Norm<'a>>,
    /// The rotation of each row.
    pub rotation: Option<Rotation<'a>>,
    /// `[batch, positions, heads, d]`.
    pub out: &'a mut [u8],
}

/// `x / √(mean(x²) + eps) · weight`, rounded before the weight as by MLX.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// `[d]`, or `[heads, d]`, of the type of x.
    pub weight: &'a [u8],
    /// Added to the mean of the squares, which keeps the root from 0.
    pub eps: f32,
    /// Set for a layer norm: distances from the mean replace x. The result is rounded once.
    pub is_centred: bool,
    /// Added in the end, of the shape and type of `weight`; or none.
    pub bias: Option<&'a [u8]>,
}

impl<'a> Norm<'a> {
    /// The root-mean-square norm by `weight`.
    pub fn root_mean_square(weight: &'a [u8], eps: f32) -> Norm<'a> {
        Norm { weight, eps, is_centred: false, bias: None }
    }
}

/// A rotation of the first `dims` values of each row in pairs (`i`, `i + dims / 2`).
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'a> {
    /// An even number of values.
    pub dims: usize,
    /// `[batch or 1, positions, dims]` f32: for each position, the cosines of the pairs' angles,
    /// then their sines.
    pub turns: &'a [u8],
}

/// `out = activation(gate) · up`, computed in f32 and rounded once.
#[derive(Debug)]
pub struct Gated<'a> {
    /// Of all three.
    pub dtype: Dtype,
    /// The numbers of rows.
    pub sizes: [usize; 3],
    /// Values of a row.
    pub d: usize,
    /// `[sizes, d]`.
    pub gate: Heads<'a>,
    /// `[sizes, d]`.
    pub up: Heads<'a>,
    /// The activation of the gate.
    pub activation: Activation,
    /// `[sizes, d]`.
    pub out: &'a mut [u8],
}

/// `out = x + y`, computed in f32 and rounded once.
#[derive(Debug)]
pub struct Sum<'a> {
    /// Of all three.
    pub dtype: Dtype,
    /// The numbers of rows.
    pub sizes: [usize; 3],
    /// Values of a row.
    pub d: usize,
    /// `[sizes, d]`; a row that stays the same has strides of 0.
    pub operands: [Heads<'a>; 2],
    /// `[sizes, d]`.
    pub out: &'a mut [u8],
}

/// Computes `task.out`.
///
/// # Errors
/// Buffers whose sizes do not fit; nothing is written then.
pub fn rows(task: Rows<'_>) -> Result<(), Error> {
    rows_at(Level::current(), task)
}

/// Computes `task.out` with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// As [`rows`], and a level that this processor does not have.
pub fn rows_at(level: Level, task: Rows<'_>) -> Result<(), Error> {
    level.check()?;
    task.check()?;
    let Rows { dtype, sizes, d, out, .. } = task;
    let count = sizes.iter().product();
    let out = Output::new(out, (count, d), dtype);
    let task = &Rows { out: &mut [], ..task };
    each(count, d, |first, end| {
        // SAFETY: the level was checked.
        unsafe { run_at(level, RowsKernel { task, first, end, out: &out }) }
    });
    Ok(())
}

/// Computes `task.out`.
///
/// # Errors
/// Buffers whose sizes do not fit; nothing is written then.
pub fn gated(task: Gated<'_>) -> Result<(), Error> {
    gated_at(Level::current(), task)
}

/// Computes `task.out` with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// As [`gated`], and a level that this processor does not have.
pub fn gated_at(level: Level, task: Gated<'_>) -> Result<(), Error> {
    let Gated { dtype, sizes, d, gate, up, activation, out } = task;
    let combine = Combine::Gate(activation);
    pairs(level, Pairs { dtype, sizes, d, operands: [gate, up], combine }, ["gate", "up"], out)
}

/// Computes `task.out`.
///
/// # Errors
/// Buffers whose sizes do not fit; nothing is written then.
pub fn sum(task: Sum<'_>) -> Result<(), Error> {
    sum_at(Level::current(), task)
}

/// Computes `task.out` with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// As [`sum`], and a level that this processor does not have.
pub fn sum_at(level: Level, task: Sum<'_>) -> Result<(), Error> {
    let Sum { dtype, sizes, d, operands, out } = task;
    pairs(level, Pairs { dtype, sizes, d, operands, combine: Combine::Sum }, ["x", "y"], out)
}

/// An operation on two values.
#[derive(Clone, Copy)]
enum Combine {
    Gate(Activation),
    Sum,
}

/// Rows of two operands.
#[derive(Clone, Copy)]
struct Pairs<'a> {
    dtype: Dtype,
    sizes: [usize; 3],
    d: usize,
    operands: [Heads<'a>; 2],
    combine: Combine,
}

fn pairs(level: Level, of: Pairs<'_>, names: [&str; 2], out: &mut [u8]) -> Result<(), Error> {
    level.check()?;
    let Pairs { dtype, sizes: [a, b, c], d, operands, .. } = of;
    for (name, operand) in names.into_iter().zip(operands) {
        operand.check(name, [a, b, c, d], dtype)?;
    }
    buffer("out", out, &[a, b, c, d, dtype.size()])?;
    let count = of.sizes.iter().product();
    let out = Output::new(out, (count, d), dtype);
    each(count, d, |first, end| {
        // SAFETY: the level was checked.
        unsafe { run_at(level, PairsKernel { of, first, end, out: &out }) }
    });
    Ok(())
}

impl Rows<'_> {
    /// Checks every buffer against the sizes: what the kernel relies on.
    fn check(&self) -> Result<(), Error> {
        let Rows { dtype, sizes: [b, l, n], d, .. } = *self;
        self.x.check("x", [b, l, n, d], dtype)?;
        if let Some(norm) = self.norm {
            buffer("the norm's weight", norm.weight, &[d, dtype.size()])
                .or_else(|_| buffer("the norm's weight", norm.weight, &[n, d, dtype.size()]))?;
            if let Some(bias) = norm.bias.filter(|bias| bias.len() != norm.weight.len()) {
                let (found, expected) = (bias.len(), norm.weight.len());
                return Err(Error(format!("the norm's bias has {found} bytes, not {expected}")));
            }
        }
        if let Some(Rotation { dims, turns }) = self.rotation {
            if dims > d || dims % 2 == 1 {
                return Err(Error(format!("no rotation of {dims} of {d} values")));
            }
            buffer("turns", turns, &[1, l, dims, 4])
                .or_else(|_| buffer("turns", turns, &[b, l, dims, 4]))?;
        }
        buffer("out", self.out, &[b, l, n, d, dtype.size()])
    }
}

/// Calls `work` with ranges of `count` rows of `d` values, on all threads where that pays.
pub(crate) fn each(count: usize, d: usize, work: impl Fn(usize, usize) + Sync) {
    let rows = (UNIT / d.max(1)).max(1);
    if count <= rows {
        return work(0, count);
    }
    pool::run(count.div_ceil(rows), &|unit| work(unit * rows, count.min((unit + 1) * rows)));
}

/// Batch, position and head of row `row`.
fn place(row: usize, [_, l, n]: [usize; 3]) -> [usize; 3] {
    [row / n / l, row / n % l, row % n]
}

thread_local! {
    /// A row, the weights and the biases of its norm, and the turns of its rotation.
    static SCRATCH: RefCell<[Vec<f32>; 4]> = const { RefCell::new([const { Vec::new() }; 4]) };
}

struct RowsKernel<'a> {
    task: &'a Rows<'a>,
    first: usize,
    end: usize,
    out: &'a Output<'a>,
}

impl Kernel for RowsKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let RowsKernel { task, first, end, out } = self;
        let Rows { dtype, sizes, d, .. } = *task;
        // Taken out, because a closure would not be compiled for the level.
        let [mut row, mut weight, mut bias, mut turns] = SCRATCH.take();
        row.resize(d, 0.0);
        bias.clear();
        if let Some(norm) = task.norm {
            weight.resize(norm.weight.len() / dtype.size(), 0.0);
            widen(dtype, norm.weight, &mut weight);
            if let Some(given) = norm.bias {
                bias.resize(given.len() / dtype.size(), 0.0);
                widen(dtype, given, &mut bias);
            }
        }
        let mut turned = None;
        for index in first..end {
            let [b, l, n] = place(index, sizes);
            widen(dtype, &task.x.from(dtype, b, l, n)[..d * dtype.size()], &mut row);
            if let Some(norm) = task.norm {
                // One for all heads, or one for each.
                let at = n * d % weight.len().max(1);
                let weight = &weight[at..at + d];
                match norm.is_centred {
                    false => normed::<FMA>(dtype, &mut row, weight, norm.eps),
                    true => centred::<FMA>(&mut row, weight, norm.eps),
                }
                for (value, bias) in row.iter_mut().zip(bias.get(at..at + d).unwrap_or_default()) {
                    *value += bias;
                }
            }
            if let Some(Rotation { dims, turns: all }) = task.rotation {
                let size = dims * 4;
                // One for all rows of the batch, or one for each.
                let at = (b * sizes[1] + l) * size % all.len().max(1);
                if turned.replace(at) != Some(at) {
                    turns.resize(dims, 0.0);
                    widen(Dtype::F32, &all[at..at + size], &mut turns);
                }
                rotated::<FMA>(&mut row[..dims], &turns);
            }
            // SAFETY: each unit has rows of its own.
            unsafe { out.store(index, 0, &row) }
        }
        SCRATCH.set([row, weight, bias, turns]);
    }
}

/// The sum of `value` of each of a row.
#[inline(always)]
fn sum_of(row: &[f32], add: impl Fn(f32, f32) -> f32) -> f32 {
    let mut sums = [0.0; LANES];
    let (blocks, rest) = row.as_chunks::<LANES>();
    for block in blocks {
        for (sum, &value) in sums.iter_mut().zip(block) {
            *sum = add(value, *sum);
        }
    }
    for (sum, &value) in sums.iter_mut().zip(rest) {
        *sum = add(value, *sum);
    }
    sum_of_lanes(sums)
}

/// The distances from the mean, over the root of the mean of their squares, times `weight`.
#[inline(always)]
fn centred<const FMA: bool>(row: &mut [f32], weight: &[f32], eps: f32) {
    let mean = sum_of(row, |value, sum| value + sum) / row.len() as f32;
    row.iter_mut().for_each(|value| *value -= mean);
    let squares = sum_of(row, |value, sum| add_product::<FMA>(value, value, sum));
    let scale = 1.0 / (squares / row.len() as f32 + eps).sqrt();
    for (value, &weight) in row.iter_mut().zip(weight) {
        *value = *value * scale * weight;
    }
}

#[inline(always)]
fn normed<const FMA: bool>(dtype: Dtype, row: &mut [f32], weight: &[f32], eps: f32) {
    let squares = sum_of(row, |value, sum| add_product::<FMA>(value, value, sum));
    let scale = 1.0 / (squares / row.len() as f32 + eps).sqrt();
    // A loop for each type: one that chooses within takes the values one by one.
    match dtype {
        Dtype::F32 => weighted(row, weight, scale, |value| value),
        Dtype::F16 => weighted(row, weight, scale, |value| rounded(Dtype::F16, value)),
        Dtype::Bf16 => weighted(row, weight, scale, |value| rounded(Dtype::Bf16, value)),
    }
}

#[inline(always)]
fn weighted(row: &mut [f32], weight: &[f32], scale: f32, rounded: impl Fn(f32) -> f32) {
    for (value, &weight) in row.iter_mut().zip(weight) {
        *value = rounded(rounded(*value * scale) * weight);
    }
}

#[inline(always)]
fn rotated<const FMA: bool>(row: &mut [f32], turns: &[f32]) {
    let half = row.len() / 2;
    let (left, right) = row.split_at_mut(half);
    let (cos, sin) = turns.split_at(half);
    for (((x, y), &cos), &sin) in left.iter_mut().zip(right).zip(cos).zip(sin) {
        (*x, *y) = (add_product::<FMA>(*x, cos, -*y * sin), add_product::<FMA>(*x, sin, *y * cos));
    }
}

struct PairsKernel<'a> {
    of: Pairs<'a>,
    first: usize,
    end: usize,
    out: &'a Output<'a>,
}

impl Kernel for PairsKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let PairsKernel { of: Pairs { dtype, sizes, d, operands, combine }, first, end, out } =
            self;
        let size = dtype.size();
        for index in first..end {
            let [a, b, c] = place(index, sizes);
            let [xs, ys] = operands.map(|operand| &operand.from(dtype, a, b, c)[..d * size]);
            let some = xs.chunks(SOME * size).zip(ys.chunks(SOME * size));
            for (i, (xs, ys)) in some.enumerate() {
                let (mut x, mut y) = ([0.0; SOME], [0.0; SOME]);
                widen(dtype, xs, &mut x);
                widen(dtype, ys, &mut y);
                match combine {
                    Combine::Gate(activation) => activation.open::<FMA>(&mut x, &y),
                    Combine::Sum => x.iter_mut().zip(&y).for_each(|(x, &y)| *x += y),
                }
                narrow(dtype, &x[..xs.len() / size], |at, bytes| {
                    // SAFETY: each unit has rows of its own.
                    unsafe { out.store_bytes(index, i * SOME + at, bytes) }
                });
            }
        }
    }
}
