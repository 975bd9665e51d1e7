//! A step's attention by our own kernels for CPUs.

use std::cell::RefCell;

use cpu_kernels::{Norm, Rotation};

use super::operation::{Inputs, Outcome, floats, in_place};
use super::{failed, kernel_dtype};
use crate::step::{Heads, Step};
use crate::{Array, Dtype, Error, Result, ops};

/// Norms and rotates, writes key and value at `at` and attends to all from each row's first
/// position to the new one: `[b, 1, n_heads · d]`, then keys and values with the new position.
/// These share the buffers of `step.keys` and `step.values`, of which nothing may read that
/// position before.
///
/// All it gives is what [`heads`](super::heads) and [`attention`](super::attention) would, to the
/// bit.
///
/// # Errors
/// Shapes or types that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn step_attention(step: &Step<'_>) -> Result<[Array; 3]> {
    let [b, n_kv_heads, capacity, d] = step.sizes(1)?;
    if step.norms_values() || step.packing.is_some() {
        return Err(step.misfit());
    }
    let Step { q, k, v, n_heads, scale, softcap, turn, norms, .. } = *step;
    let dtype = kernel_dtype(step.keys.dtype())?;
    let window = step.window.map(|window| window.max(0) as usize);
    let sinks = step.sinks.map(|sinks| ops::astype(sinks, Dtype::F32)).transpose()?;
    let shape = [b, 1, n_heads * d];
    let outcome = Outcome::row_major(step.keys.dtype(), &shape);
    let [b, n_kv_heads, capacity, d] = [b, n_kv_heads, capacity, d].map(|size| size as usize);
    let n_heads = n_heads as usize;
    let columns = [q, k, v].map(|heads| heads.at as usize);
    let eps = norms.map(|norms| norms.eps);
    let turned = turn.map(|turn| (2 * turn.radians.size(), turn.scale, turn.magnitude));
    let has_sinks = sinks.is_some();
    let optional =
        [norms.map(|norms| norms.q), norms.map(|norms| norms.k), turn.map(|turn| turn.radians)];
    let inputs: Vec<&Array> = [step.keys, step.values, step.on_device, step.rows]
        .into_iter()
        .chain([q, k, v].map(|Heads { array, .. }| array))
        .chain(optional.into_iter().flatten())
        .chain(&sinks)
        .collect();
    in_place(&inputs, Inputs::Strided, &[0, 1], outcome, move |inputs, outputs| {
        let ([at, rows, q, k, v, rest @ ..], [out, keys, values]) = (inputs, outputs) else {
            return Err(Error::new("a step of attention without operands"));
        };
        let mut rest = rest.iter().map(|view| view.bytes);
        let mut next = |is_there: bool| if is_there { rest.next() } else { None };
        let weights = [next(eps.is_some()), next(eps.is_some())];
        let norms = match (eps, weights) {
            (Some(eps), [Some(q), Some(k)]) => {
                Some([q, k].map(|weight| Norm::root_mean_square(weight, eps)))
            }
            _ => None,
        };
        let radians = next(turned.is_some());
        let sinks: Vec<f32> = next(has_sinks).map(floats).into_iter().flatten().collect();
        let at = integers(at.bytes).next().unwrap_or(-1);
        if !(0..capacity as i64).contains(&i64::from(at)) {
            return Err(Error::new(format!("no room for position {at} among {capacity}")));
        }
        let (starts, beyond): (Vec<i32>, Vec<i32>) = {
            let rows: Vec<i32> = integers(rows.bytes).take(2 * b).collect();
            rows.as_chunks::<2>().0.iter().map(|&[start, beyond]| (start, beyond)).unzip()
        };
        let [q, k, v] = [(q, columns[0]), (k, columns[1]), (v, columns[2])].map(|(view, first)| {
            let [row_step] = view.strides();
            cpu_kernels::Heads { data: view.from(first, dtype), strides: [row_step, 0, d] }
        });
        let (key_strides, value_strides) = (keys.strides(), values.strides());
        let mut turns = TURNS.replace(Turns::NONE);
        let rotation = match (turned, radians) {
            (Some((dims, speed, magnitude)), Some(radians)) => {
                let positions = beyond.iter().map(|beyond| at.wrapping_add(*beyond)).collect();
                let turns = turns.of(radians, [speed, magnitude], positions);
                Some(Rotation { dims, turns })
            }
            _ => None,
        };
        let done = cpu_kernels::step(cpu_kernels::Step {
            dtype,
            b,
            n_heads,
            n_kv_heads,
            d,
            q,
            k,
            v,
            norms,
            rotation,
            at: at as usize,
            keys: keys.bytes,
            key_strides,
            values: values.bytes,
            value_strides,
            starts: &starts,
            window,
            scale,
            softcap,
            sinks: &sinks,
            out: out.bytes,
        });
        TURNS.set(turns);
        done.map_err(failed)
    })
}

thread_local! {
    static TURNS: RefCell<Turns> = const { RefCell::new(Turns::NONE) };
}

/// Rotations of the positions of a step, which most of its layers share.
struct Turns {
    radians: Vec<u8>,
    /// Factors of the positions, and of the values.
    factors: [f32; 2],
    positions: Vec<i32>,
    /// For each position, the cosines of all pairs' angles, then their sines.
    values: Vec<u8>,
}

impl Turns {
    const NONE: Turns =
        Turns { radians: Vec::new(), factors: [0.0; 2], positions: Vec::new(), values: Vec::new() };

    fn of(&mut self, radians: &[u8], factors: [f32; 2], positions: Vec<i32>) -> &[u8] {
        let is_known =
            self.radians == radians && self.factors == factors && self.positions == positions;
        if !is_known {
            self.values.clear();
            let [speed, magnitude] = factors;
            for &position in &positions {
                let turns = turns(floats(radians), position, speed, magnitude);
                self.values.extend(turns.flat_map(f32::to_ne_bytes));
            }
            *self = Turns {
                radians: radians.to_vec(),
                factors,
                positions,
                values: std::mem::take(&mut self.values),
            };
        }
        &self.values
    }
}

/// The rotation of a head at a position: the cosines of its pairs' angles, then their sines, each
/// times `magnitude`. Angles are `radians`, one for each pair, times the position times `speed`.
pub fn turns(
    radians: impl Iterator<Item = f32> + Clone,
    position: i32,
    speed: f32,
    magnitude: f32,
) -> impl Iterator<Item = f32> {
    let position = position as f32 * speed;
    let angles = radians.map(move |radians| position * radians);
    angles.clone().map(f32::cos).chain(angles.map(f32::sin)).map(move |turn| turn * magnitude)
}

fn integers(bytes: &[u8]) -> impl Iterator<Item = i32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_ne_bytes(*bytes))
}
