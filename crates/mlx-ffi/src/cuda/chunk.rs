//! Attention for several new positions of each row.

use std::ffi::CStr;

use super::attention::{
    Attended, are_aligned, attends_packed, made_with, making, scoring, sinks_fit,
};
use super::buffers::buffers;
use super::constants::{ATTENDING, LANES, QUERIES, THREADS, WARPS};
use super::kernel::{Constant, Launch, Source};
use super::launch::{ON_DEVICE, first, launch};
use crate::step::{Packing, Step};
use crate::{Array, Dtype, Error, Quantization, Result};

/// Positions by which buffers of unpacked keys grow.
const POSITIONS: i32 = 256;

const HEADS: Source = Source {
    name: c"heads",
    inputs: &[
        c"q", c"k", c"v", c"keys", c"values", c"at", c"rows", c"radians", c"q_norm", c"k_norm",
    ],
    outputs: &[c"queries"],
    body: include_str!("heads.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("head.cu")),
    takes_strides: true,
    written: &[3, 4],
};
const ATTENTION: Source = Source {
    name: c"chunk_attention",
    inputs: &[c"queries", c"keys", c"values", c"at", c"rows", c"sinks"],
    outputs: &[c"out"],
    body: include_str!("chunk_attention.cu"),
    header: concat!(
        include_str!("chained.cu"),
        include_str!("common.cu"),
        include_str!("tensor.cu"),
        include_str!("warpgroup.cu"),
        include_str!("softmax.cu"),
        include_str!("chunk_tiles.cu")
    ),
    takes_strides: true,
    written: &[],
};

const PACK: Source = Source {
    name: c"pack_positions",
    inputs: &[c"from", c"codes", c"scales", c"biases", c"at"],
    outputs: &[c"done"],
    body: include_str!("pack_positions.cu"),
    header: concat!(
        include_str!("chained.cu"),
        include_str!("common.cu"),
        include_str!("head.cu"),
        include_str!("step_packed.cu")
    ),
    takes_strides: true,
    written: &[0, 1, 2, 3],
};
const UNPACK: Source = Source {
    name: c"unpack_positions",
    inputs: &[c"codes", c"scales", c"biases", c"into", c"at"],
    outputs: &[c"done"],
    body: include_str!("unpack_positions.cu"),
    header: include_str!("chained.cu"),
    takes_strides: true,
    written: &[3],
};

/// Returns true when [`chunk_attention`] has a kernel for heads of so many values, of this type.
pub fn attends_chunks(head_dim: i32, dtype: Dtype) -> bool {
    matches!(head_dim, 32 | 64 | 128 | 256) && dtype.is_half()
}

/// Norms and rotates, writes `l` keys and values from `at` on, and lets each position attend to all
/// from its row's first one to itself. Its buffers are those of `step`, of which nothing may read
/// those positions before. Where they are packed, the first chunk of a row sees itself as it is.
/// All later ones see what is held, of themselves too.
///
/// # Errors
/// Shapes or types that do not fit; a device without CUDA.
pub fn chunk_attention(step: &Step<'_>) -> Result<Attended> {
    let &[_, l, _] = step.q.array.shape() else { return Err(step.misfit()) };
    let sizes @ [_, _, _, d] = step.sizes(l)?;
    let dtype = step.dtype();
    let packs = step.packing.is_none_or(|packing| attends_packed(d, packing.quantization));
    let is_known = attends_chunks(d, dtype) && !step.norms_values() && packs;
    if !(is_known && are_aligned(step) && sinks_fit(step)) {
        return Err(step.misfit());
    }
    match &step.packing {
        None => {
            let [queries, keys, values] = made_heads(step, l, d)?;
            let out = attended(step, &queries, [&keys, &values])?;
            Ok(Attended { out, buffers: vec![keys, values] })
        }
        Some(packing) => packed(step, packing, l, sizes),
    }
}

/// [`chunk_attention`] by way of keys and values as they are: of the chunk, or where there are
/// earlier ones, of all positions up to its end.
fn packed(step: &Step<'_>, packing: &Packing<'_>, l: i32, sizes: [i32; 4]) -> Result<Attended> {
    let [b, n_kv_heads, capacity, d] = sizes;
    let is_first = step.at == 0;
    // Few lengths, as buffers of other ones are not used again.
    let until = (step.at + l + POSITIONS - 1) / POSITIONS * POSITIONS;
    let positions = if is_first { l } else { until.min(capacity) };
    let [mut keys, mut values] = buffers(&[b, n_kv_heads, positions, d], step.dtype())?;
    let sizes = [b, n_kv_heads, positions, d];
    let held = Held { at: step.on_device, by: packing.quantization, sizes };
    let ([of_keys, more_of_keys], [of_values, more_of_values]) = (packing.keys, packing.values);
    let [of_keys, of_values] =
        [[step.keys, of_keys, more_of_keys], [step.values, of_values, more_of_values]];
    if !is_first {
        keys = held.unpacked(of_keys, &keys)?;
        values = held.unpacked(of_values, &values)?;
    }
    let plain = |keys, values| Step { keys, values, packing: None, ..*step };
    let [queries, keys, values] = made_heads(&plain(&keys, &values), l, d)?;
    // What is packed comes before attention, also where that does not read it: all of a layer leads
    // to what it makes.
    let (mut codes, keys) = held.packed(&keys, of_keys, l, !is_first)?;
    let (codes_of_values, values) = held.packed(&values, of_values, l, !is_first)?;
    codes.extend(codes_of_values);
    let out = attended(&plain(&keys, &values), &queries, [&keys, &values])?;
    Ok(Attended { out, buffers: codes })
}

/// Packed keys or values of some rows.
struct Held<'a> {
    /// The index of the first new position, on the device.
    at: &'a Array,
    by: Quantization,
    /// Rows, heads, positions that are unpacked, and values of a head.
    sizes: [i32; 4],
}

impl Held<'_> {
    fn constants(&self, dtype: Dtype) -> Vec<(&'static CStr, Constant)> {
        let [_, _, _, d] = self.sizes;
        vec![
            (c"T", Constant::Type(dtype)),
            (c"D", Constant::Int(d)),
            (c"BITS", Constant::Int(self.by.bits)),
            (c"SIZE", Constant::Int(self.by.group_size)),
        ]
    }

    /// `into`, `[b, n_kv_heads, positions, d]`, with the positions before `at` of codes, scales and
    /// biases.
    fn unpacked(&self, [codes, scales, biases]: [&Array; 3], into: &Array) -> Result<Array> {
        let [b, heads, positions, _] = self.sizes;
        let constants = self.constants(into.dtype());
        let outputs: [(&[i32], Dtype); 1] = [(&[ON_DEVICE as i32], Dtype::I32)];
        let grid = [THREADS * ((positions + WARPS - 1) / WARPS), heads, b];
        let all = Launch { grid, block: [THREADS, 1, 1], constants: &constants, outputs: &outputs };
        let found = launch(&UNPACK, &[codes, scales, biases, into, self.at], &all)?;
        found.into_iter().nth(1).ok_or_else(|| Error::new("unpacked positions were lost"))
    }

    /// Codes, scales and biases with the `l` new positions of `from`, and `from`, with these as
    /// they are held if `back`.
    fn packed(
        &self,
        from: &Array,
        [codes, scales, biases]: [&Array; 3],
        l: i32,
        back: bool,
    ) -> Result<(Vec<Array>, Array)> {
        let [b, heads, _, _] = self.sizes;
        let mut constants = self.constants(from.dtype());
        constants.push((c"BACK", Constant::Bool(back)));
        let outputs: [(&[i32], Dtype); 1] = [(&[ON_DEVICE as i32], Dtype::I32)];
        let grid = [LANES * l, heads, b];
        let all = Launch { grid, block: [LANES, 1, 1], constants: &constants, outputs: &outputs };
        let mut found = launch(&PACK, &[from, codes, scales, biases, self.at], &all)?.into_iter();
        match (found.next(), found.next()) {
            (Some(_), Some(from)) => Ok((found.collect(), from)),
            _ => Err(Error::new("packed positions were lost")),
        }
    }
}

/// Queries, `[b, l, n_heads, d]`, and keys and values with the new positions.
fn made_heads(step: &Step<'_>, l: i32, d: i32) -> Result<[Array; 3]> {
    let Step { q, k, v, n_heads, keys, values, on_device, rows, .. } = *step;
    let [b, n_kv_heads, _, _] = keys.dims()?;
    let dtype = keys.dtype();
    let [radians, q_norm, k_norm] = made_with(step);
    let inputs =
        [q.array, k.array, v.array, keys, values, on_device, rows, radians, q_norm, k_norm];
    let constants = [&making(step, d)[..], &[shared_by(n_heads, n_kv_heads)]].concat();
    let outputs: [(&[i32], Dtype); 1] = [(&[b, l, n_heads, d], dtype)];
    let (grid, block) = ([THREADS * l, b, 1], [THREADS, 1, 1]);
    let made = Launch { grid, block, constants: &constants, outputs: &outputs };
    let found = launch(&HEADS, &inputs, &made)?;
    <[Array; 3]>::try_from(found)
        .map_err(|found| Error::new(format!("{} results of the heads", found.len())))
}

/// `[b, l, n_heads · d]`, what `queries` see of the keys and values of `step`.
fn attended(step: &Step<'_>, queries: &Array, [keys, values]: [&Array; 2]) -> Result<Array> {
    let ([b, l, n_heads, d], [_, n_kv_heads, _, _]) = (queries.dims()?, keys.dims()?);
    let dtype = keys.dtype();
    let of_heads =
        [(c"T", Constant::Type(dtype)), (c"D", Constant::Int(d)), shared_by(n_heads, n_kv_heads)];
    let constants = [&of_heads[..], &scoring(step)].concat();
    let outputs: [(&[i32], Dtype); 1] = [(&[b, l, n_heads * d], dtype)];
    let blocks = (l + QUERIES - 1) / QUERIES;
    let (grid, block) = ([ATTENDING * blocks, n_heads, b], [ATTENDING, 1, 1]);
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    let inputs = [queries, keys, values, step.on_device, step.rows, step.sinks.unwrap_or(queries)];
    first(launch(&ATTENTION, &inputs, &all)?)
}

fn shared_by(n_heads: i32, n_kv_heads: i32) -> (&'static CStr, Constant) {
    (c"SHARED_BY", Constant::Int(n_heads / n_kv_heads))
}
