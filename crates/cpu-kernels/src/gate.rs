//! Gated activations: `act(gate) · up`.

use std::ops::Range;

use crate::attention::exp;
use crate::output::Output;
use crate::problem::buffer;
use crate::rowwise::{self, Rows};
use crate::values::{narrow, rounded, widen};
use crate::{Dtype, Error, Level};

/// Elements of a row of work.
const BLOCK: usize = 64;

/// What becomes of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// The tanh form of the Gaussian error linear unit.
    GeluTanh,
}

/// `out = act(gate) · up`; the activation is computed in f32 and rounded to the type before it is
/// multiplied.
#[derive(Debug)]
pub struct Gate<'a> {
    /// Of both operands and of the result.
    pub dtype: Dtype,
    /// What becomes of the gate.
    pub activation: Activation,
    /// Any number of elements.
    pub gate: &'a [u8],
    /// As many.
    pub up: &'a [u8],
    /// As many.
    pub out: &'a mut [u8],
}

/// Computes `gate.out`. An element does not depend on its neighbours.
///
/// # Errors
/// Buffers of different sizes; nothing is written then.
pub fn gated(gate: Gate<'_>) -> Result<(), Error> {
    gated_at(Level::best(), gate)
}

/// Computes `gate.out` with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// As [`gated`], and a level that this processor does not have.
pub fn gated_at(level: Level, gate: Gate<'_>) -> Result<(), Error> {
    level.check()?;
    let Gate { dtype, activation, gate, up, out } = gate;
    let count = gate.len() / dtype.size();
    buffer("gate", gate, &[count, dtype.size()])?;
    buffer("up", up, &[count, dtype.size()])?;
    buffer("out", out, &[count, dtype.size()])?;
    let out = Output::new(out, (1, count), dtype);
    let gated = Gated { dtype, activation, gate, up, out };
    rowwise::run(level, count.div_ceil(BLOCK), BLOCK, &gated);
    Ok(())
}

struct Gated<'a> {
    dtype: Dtype,
    activation: Activation,
    gate: &'a [u8],
    up: &'a [u8],
    out: Output<'a>,
}

impl Rows for Gated<'_> {
    #[inline(always)]
    fn compute<const FMA: bool>(&self, rows: Range<usize>) {
        let size = self.dtype.size();
        for row in rows {
            let part = row * BLOCK * size..self.gate.len().min((row + 1) * BLOCK * size);
            let (mut gate, mut up) = ([0.0; BLOCK], [0.0; BLOCK]);
            widen(self.dtype, &self.gate[part.clone()], &mut gate);
            widen(self.dtype, &self.up[part.clone()], &mut up);
            match self.activation {
                Activation::Silu => gate.iter_mut().for_each(|x| *x /= 1.0 + exp::<FMA>(-*x)),
                Activation::GeluTanh => gate.iter_mut().for_each(|x| {
                    const FACTOR: f32 = 0.797_884_6;
                    let inner = FACTOR * (*x + 0.044_715 * *x * *x * *x);
                    // (1 + tanh y) / 2 is the sigmoid of 2 y.
                    *x /= 1.0 + exp::<FMA>(-2.0 * inner);
                }),
            }
            for (gate, up) in gate.iter_mut().zip(&up) {
                *gate = rounded(self.dtype, *gate) * up;
            }
            narrow(self.dtype, &gate[..part.len() / size], |at, bytes| {
                // SAFETY: each block is computed by one thread.
                unsafe { self.out.store_bytes(0, row * BLOCK + at, bytes) }
            });
        }
    }
}
