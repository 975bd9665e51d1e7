//! Rotary position encoding.

use std::cell::RefCell;
use std::ops::Range;

use crate::attention::Heads;
use crate::output::Output;
use crate::problem::buffer;
use crate::rowwise::{self, Rows};
use crate::values::{narrow, rounded, widen};
use crate::{Dtype, Error, Level};

/// Tables of angles that a thread keeps: layers of one model use one or two.
const TABLES: usize = 2;

/// Rotates pairs (`i`, `i + half`) of each position's first values by the position times
/// frequency `i`; copies the rest. Cosines, sines and products are rounded to the type, as the
/// reference implementations do on a CPU.
#[derive(Debug)]
pub struct Rope<'a> {
    /// Of x and the result.
    pub dtype: Dtype,
    /// Rows of the batch, heads, positions and values of a head.
    pub shape: [usize; 4],
    /// `shape`.
    pub x: Heads<'a>,
    /// Radians by which one position turns each pair: half as many as rotated values.
    pub frequencies: &'a [f32],
    /// The first position of each row of the batch, or one for all.
    pub offsets: &'a [i32],
    /// `shape`, row-major.
    pub out: &'a mut [u8],
}

/// Computes `rope.out`. A position's result does not depend on the others.
///
/// # Errors
/// Buffers whose sizes do not fit; nothing is written then.
pub fn rope(rope: Rope<'_>) -> Result<(), Error> {
    rope_at(Level::best(), rope)
}

/// Computes `rope.out` with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// As [`rope`], and a level that this processor does not have.
pub fn rope_at(level: Level, rope: Rope<'_>) -> Result<(), Error> {
    level.check()?;
    let Rope { dtype, shape, x, frequencies, offsets, out } = rope;
    let [b, n, l, d] = shape;
    x.check("x", shape, dtype)?;
    buffer("out", out, &[b, n, l, d, dtype.size()])?;
    if 2 * frequencies.len() > d || !(offsets.len() == 1 || offsets.len() == b) {
        return Err(Error(format!(
            "{} frequencies and {} offsets for {shape:?}",
            frequencies.len(),
            offsets.len()
        )));
    }
    if out.is_empty() {
        return Ok(());
    }
    TURNS.with_borrow_mut(|turns| {
        let key = Key { dtype, frequencies: frequencies.to_vec(), offsets: offsets.to_vec(), l };
        let known = turns.iter().position(|(known, _)| *known == key);
        let turn = known.map_or_else(|| (key.clone(), key.table()), |at| turns.remove(at));
        turns.insert(0, turn);
        turns.truncate(TABLES);
        let table = &turns[0].1;
        let out = Output::new(out, (b * n * l, d), dtype);
        let rotated = frequencies.len();
        let rows = Turned { dtype, shape, x, rotated, table, offsets: offsets.len(), out };
        rowwise::run(level, b * n * l, d, &rows);
    });
    Ok(())
}

thread_local! {
    static TURNS: RefCell<Vec<(Key, Vec<f32>)>> = const { RefCell::new(Vec::new()) };
}

/// What a table depends on.
#[derive(Clone, PartialEq)]
struct Key {
    dtype: Dtype,
    frequencies: Vec<f32>,
    offsets: Vec<i32>,
    l: usize,
}

impl Key {
    /// Cosines, then sines, for each offset and position.
    fn table(&self) -> Vec<f32> {
        let half = self.frequencies.len();
        let mut table = Vec::with_capacity(self.offsets.len() * self.l * 2 * half);
        for &offset in &self.offsets {
            for place in 0..self.l {
                let position = (i64::from(offset) + place as i64) as f32;
                let angles = self.frequencies.iter().map(|frequency| position * frequency);
                table.extend(angles.clone().map(|angle| rounded(self.dtype, angle.cos())));
                table.extend(angles.map(|angle| rounded(self.dtype, angle.sin())));
            }
        }
        table
    }
}

struct Turned<'a> {
    dtype: Dtype,
    shape: [usize; 4],
    x: Heads<'a>,
    /// Pairs.
    rotated: usize,
    table: &'a [f32],
    /// How many the table has.
    offsets: usize,
    out: Output<'a>,
}

impl Rows for Turned<'_> {
    #[inline(always)]
    fn compute<const FMA: bool>(&self, rows: Range<usize>) {
        let Turned { dtype, shape: [_, n, l, d], rotated: half, .. } = *self;
        let mut values = vec![0.0; d];
        for row in rows {
            let (batch, head, place) = (row / (n * l), row / l % n, row % l);
            let x = &self.x.from(dtype, batch, head, place)[..d * dtype.size()];
            widen(dtype, x, &mut values);
            let angles = (batch % self.offsets * l + place) * 2 * half;
            let (cos, sin) = self.table[angles..][..2 * half].split_at(half);
            let (first, rest) = values.split_at_mut(half);
            for i in 0..half {
                let (a, b) = (first[i], rest[i]);
                let product = |a: f32, b: f32| rounded(dtype, a * b);
                first[i] = product(a, cos[i]) - product(b, sin[i]);
                rest[i] = product(a, sin[i]) + product(b, cos[i]);
            }
            narrow(dtype, &values, |at, bytes| {
                // SAFETY: each row is computed by one thread.
                unsafe { self.out.store_bytes(row, at, bytes) }
            });
        }
    }
}
