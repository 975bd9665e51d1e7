//! Operations on each row by itself.

use super::kernel::launch;
use super::recurrent::is_float;
use super::text::{LANES, SIMD_GROUPS, Source, code};
use crate::cpu::fits_columns;
use crate::cuda::NormAndGate;
use crate::custom_kernel::{Constant, Launch, first};
use crate::step::Heads as Columns;
use crate::{Activation, Array, Result};

/// Columns of a group that one SIMD group norms by itself.
const FEW_COLUMNS: i32 = 256;

const GATE: Source = Source {
    name: c"ml_gate",
    inputs: &[c"gate", c"up"],
    outputs: &[c"out"],
    body: include_str!("gate.metal"),
};
const NORM_GATE: Source = Source {
    name: c"ml_norm_gate",
    inputs: &[c"x", c"weight", c"gate"],
    outputs: &[c"out"],
    body: include_str!("norm_gate.metal"),
};

/// `activation(gate) · up`, of `count` columns of `up` and of `count / each` of the gate, arrays of
/// `[b, l, …]`: `[b, l, count]`. Without `up`, the activation alone.
///
/// # Errors
/// Those of MLX.
pub fn gated(
    activation: Activation,
    gate: Columns<'_>,
    up: Option<Columns<'_>>,
    [count, each]: [i32; 2],
) -> Result<Option<Array>> {
    let (Some(code), [.., columns], dtype) =
        (code(activation), gate.array.shape(), gate.array.dtype())
    else {
        return Ok(None);
    };
    let lead = &gate.array.shape()[..gate.array.shape().len() - 1];
    let rows = lead.iter().map(|size| i64::from(*size)).product::<i64>();
    let inside = |of: Columns<'_>, count: i32| {
        let shape = of.array.shape();
        let last = shape.last().copied().unwrap_or(0);
        shape.len() == lead.len() + 1 && &shape[..lead.len()] == lead && of.at + count <= last
    };
    let fits = is_float(dtype)
        && count > 0
        && each > 0
        && count % each == 0
        && (1..=i64::from(i32::MAX)).contains(&rows)
        && inside(gate, count / each)
        && up.is_none_or(|up| up.array.dtype() == dtype && inside(up, count));
    if !fits {
        return Ok(None);
    }
    let other = up.unwrap_or(gate);
    let constants = [
        (c"T", Constant::Type(dtype)),
        (c"ACTIVATION", Constant::Int(code)),
        (c"COUNT", Constant::Int(count)),
        (c"EACH", Constant::Int(each)),
        (c"GATE_AT", Constant::Int(gate.at)),
        (c"GATE_COLUMNS", Constant::Int(*columns)),
        (c"HAS_UP", Constant::Bool(up.is_some())),
        (c"UP_AT", Constant::Int(other.at)),
        (c"UP_COLUMNS", Constant::Int(other.array.shape().last().copied().unwrap_or(0))),
    ];
    let whole = [lead, &[count]].concat();
    let outputs = [(&whole[..], dtype)];
    let grid = [count, rows as i32, 1];
    let block = [count.min(LANES * SIMD_GROUPS), 1, 1];
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    first(launch(&GATE, &[gate.array, other.array], &all)?).map(Some)
}

/// Each group of columns of `x`, `[b, l, groups · size]`, with its norm and its gate: as `x`.
///
/// # Errors
/// Those of MLX.
pub fn norm_and_gate(x: &Array, by: &NormAndGate<'_>) -> Result<Option<Array>> {
    let NormAndGate { weight, eps, gate, activation, gate_is_first } = *by;
    let (Ok([b, l, columns]), Some(code)) = (x.dims(), code(activation)) else {
        return Ok(None);
    };
    let (shape, dtype) = (weight.shape(), x.dtype());
    let size = shape.last().copied().unwrap_or(0);
    let fits = is_float(dtype)
        && [weight, gate.array].iter().all(|of| of.dtype() == dtype)
        && size > 0
        && columns % size == 0
        && (shape == [size] || shape == [columns / size, size])
        && fits_columns(gate, [b, l, columns])
        && b > 0
        && l > 0
        && b.checked_mul(l).is_some();
    if !fits {
        return Ok(None);
    }
    let simd_groups = if size <= FEW_COLUMNS { 1 } else { SIMD_GROUPS };
    let groups = columns / size;
    let constants = [
        (c"T", Constant::Type(dtype)),
        (c"ACTIVATION", Constant::Int(code)),
        (c"SIMD_GROUPS", Constant::Int(simd_groups)),
        (c"SIZE", Constant::Int(size)),
        (c"GROUPS", Constant::Int(groups)),
        (c"GATE_AT", Constant::Int(gate.at)),
        (c"GATE_COLUMNS", Constant::Int(gate.array.shape()[2])),
        (c"GATE_IS_FIRST", Constant::Bool(gate_is_first)),
        (c"HAS_WEIGHT_OF_GROUPS", Constant::Bool(shape.len() > 1)),
        (c"EPSILON", Constant::Float(eps)),
    ];
    let outputs = [(x.shape(), dtype)];
    let threads = simd_groups * LANES;
    let (grid, block) = ([threads, groups, b * l], [threads, 1, 1]);
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    first(launch(&NORM_GATE, &[x, weight, gate.array], &all)?).map(Some)
}
