//! Latent attention for one new position of each row: its queries enter the space of latents, the
//! position is cached, queries attend there, and the outputs leave that space.

use std::ffi::CStr;

use super::constants::{LANES, MOST_SPLITS, PRODUCT_WARPS};
use super::expert_matrices::{ExpertMatrices, Form};
use super::kernel::{Constant, Launch, Source};
use super::launch::{first, launch};
use super::product::Weights;
use crate::step::Turn;
use crate::{Array, Dtype, Error, Result};

/// Multiprocessors of a large device, each of which runs one block.
const BLOCKS: i32 = 132;
/// Positions of a buffer that are worth a block of their own.
const WORTH_A_BLOCK: i32 = 64;
/// Values of a latent for each warp that attends.
const COLUMNS: i32 = 64;
/// The most values of a latent.
const MOST_RANK: i32 = 512;
/// The most values of a head's query that do not see positions: a block holds those of many rows.
const MOST_NOPE: i32 = 704;
/// The most values of the key that all heads share.
const MOST_ROPE: i32 = 128;
/// The most rows.
const MOST_ROWS: i32 = 1 << 15;
/// Threads of the blocks that multiply, and of those that bring parts together.
const THREADS: i32 = PRODUCT_WARPS * LANES;
/// Rows of a matrix that a block multiplies.
const MATRIX_ROWS: i32 = 16 * PRODUCT_WARPS;

const QUERIES: Source = Source {
    name: c"latent_queries",
    inputs: &[
        c"q", c"w", c"scales", c"minima", c"latents", c"norm", c"held", c"at", c"rows", c"radians",
    ],
    outputs: &[c"queries"],
    body: include_str!("latent_queries.cu"),
    header: concat!(
        include_str!("chained.cu"),
        include_str!("common.cu"),
        include_str!("expert_common.cu"),
        include_str!("tensor.cu"),
        include_str!("head_product.cu")
    ),
    takes_strides: true,
    written: &[6],
};
const PRODUCTS: Source = Source {
    name: c"head_products",
    inputs: &[c"x", c"w", c"scales", c"minima"],
    outputs: &[c"out"],
    body: include_str!("head_products.cu"),
    header: QUERIES.header,
    takes_strides: false,
    written: &[],
};
const ATTENTION: Source = Source {
    name: c"latent_attention",
    inputs: &[c"queries", c"held", c"at", c"rows"],
    outputs: &[c"out", c"partial", c"parts"],
    body: include_str!("latent_attention.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("tensor.cu")),
    takes_strides: true,
    written: &[],
};
const PARTS: Source = Source {
    name: c"latent_parts",
    inputs: &[c"partial", c"parts"],
    outputs: &[c"out"],
    body: include_str!("latent_parts.cu"),
    header: ATTENTION.header,
    takes_strides: false,
    written: &[],
};

/// One new position of each row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct LatentStep<'a> {
    /// Queries, `[b, 1, heads · (nope + rope)]`, before the last `rope` values of each are rotated.
    pub q: &'a Array,
    /// Latents, and the values of the key that all heads share, `[b, 1, rank + rope]`, before the
    /// ones are normed and the others rotated.
    pub latents: &'a Array,
    /// The norm of latents: its weight, `[rank]`, and its epsilon.
    pub norm: (&'a Array, f32),
    /// Queries into the latents' space, `[heads, rank, nope]`.
    pub embed_q: Weights<'a>,
    /// The projection of outputs out of the latents' space, `[heads, value, rank]`.
    pub unembed_out: Weights<'a>,
    /// The cache, `[b, 1, capacity, rank + rope]`, with room for one more position.
    pub held: &'a Array,
    /// The index of the new position in `held`.
    pub at: i32,
    /// I32, its first value: where the kernel writes. It equals `at`, which is only checked.
    pub on_device: &'a Array,
    /// I32, `[at least 2 · b]`: for each row its first position, and what its positions are more
    /// than their index.
    pub rows: &'a Array,
    /// How pairs of `rope` values are turned.
    pub turn: Option<Turn<'a>>,
    /// Pairs are neighbours; otherwise they are of both halves.
    pub turns_neighbours: bool,
    /// Factor of the scores.
    pub scale: f32,
}

/// Sizes that the arrays of a step agree on.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    b: i32,
    capacity: i32,
    rope: i32,
    /// Of heads, rank and nope.
    into: Form,
    /// Of heads, value and rank.
    out: Form,
    dtype: Dtype,
}

impl LatentStep<'_> {
    fn sizes(&self) -> Result<Sizes> {
        let LatentStep { q, latents, norm, held, at, on_device, rows, .. } = *self;
        let (dtype, [b, shared, capacity, width]) = (held.dtype(), held.dims()?);
        let of = |weights| ExpertMatrices { weights, bias: None }.form(dtype);
        let known = of(self.embed_q).zip(of(self.unembed_out));
        let Some((into, out)) = known else { return Err(self.misfit()) };
        let Form { experts: heads, rows: rank, columns: nope, .. } = into;
        let rope = width.saturating_sub(rank);
        let sizes_fit = takes_latent_step(dtype, rope, [self.embed_q, self.unembed_out]);
        let is_of = |array: &Array, shape: &[i32]| array.shape() == shape && array.dtype() == dtype;
        let inputs_fit = sizes_fit
            && is_of(q, &[b, 1, heads * (nope + rope)])
            && is_of(latents, &[b, 1, width])
            && is_of(norm.0, &[rank]);
        let is_list = |array: &Array, dtype| array.dtype() == dtype && array.shape().len() == 1;
        let are_indices = [on_device, rows].iter().all(|array| is_list(array, Dtype::I32));
        let rows_fit = rows.size() / 2 >= b as usize && on_device.size() > 0;
        let turns_fit = self.turn.is_none_or(|turn| {
            is_list(turn.radians, Dtype::F32) && turn.radians.size() == rope as usize / 2
        });
        let places_fit = (0..capacity).contains(&at) && are_indices && rows_fit;
        let held_fits = shared == 1 && (1..=MOST_ROWS).contains(&b);
        if inputs_fit && places_fit && turns_fit && held_fits {
            return Ok(Sizes { b, capacity, rope, into, out, dtype });
        }
        Err(self.misfit())
    }

    fn misfit(&self) -> Error {
        Error::new(format!("a step of latent attention does not fit: {self:?}"))
    }
}

/// Returns true when [`latent_step`] supports `dtype`, `rope` values that see positions, and these
/// projections. One leads into the latents' space, `[heads, rank, nope]`, the other out of it,
/// `[heads, value, rank]`.
pub fn takes_latent_step(dtype: Dtype, rope: i32, projections: [Weights<'_>; 2]) -> bool {
    let forms = projections.map(|weights| ExpertMatrices { weights, bias: None }.form(dtype));
    let [Some(into), Some(out)] = forms else { return false };
    let Form { experts: heads, rows: rank, columns: nope, .. } = into;
    (out.experts, out.columns) == (heads, rank)
        && rank % COLUMNS == 0
        && rank <= MOST_RANK
        && nope % 64 == 0
        && nope <= MOST_NOPE
        && rope % 32 == 0
        && (32..=MOST_ROPE).contains(&rope)
}

/// Norms and rotates, remembers the position at `at`, and attends to all from each row's first
/// position to the new one: `[b, 1, heads · value]`, then what is held with the new position. That
/// shares the buffer of `step.held`, of which nothing may read the position before.
///
/// # Errors
/// Shapes or types that do not fit; a device without CUDA.
pub fn latent_step(step: &LatentStep<'_>) -> Result<[Array; 2]> {
    let sizes = step.sizes()?;
    let [queries, held] = entered(step, sizes)?;
    let seen = attended(step, sizes, &queries, &held)?;
    Ok([left(step, sizes, &seen)?, held])
}

/// Queries in the latents' space, `[b, heads, rank + rope]`, and what is held with the new
/// position.
fn entered(step: &LatentStep<'_>, sizes: Sizes) -> Result<[Array; 2]> {
    let Sizes { b, rope, into, dtype, .. } = sizes;
    let Form { experts: heads, rows: rank, columns: nope, .. } = into;
    let (norm, eps) = step.norm;
    let own = [
        (c"NOPE", Constant::Int(nope)),
        (c"RANK", Constant::Int(rank)),
        (c"ROPE", Constant::Int(rope)),
        (c"HEADS", Constant::Int(heads)),
        (c"EPS", Constant::Float(eps)),
        (c"TURNS", Constant::Bool(step.turn.is_some())),
        (c"NEIGHBOURS", Constant::Bool(step.turns_neighbours)),
        (c"SPEED", Constant::Float(step.turn.map_or(0.0, |turn| turn.scale))),
        (c"MAGNITUDE", Constant::Float(step.turn.map_or(0.0, |turn| turn.magnitude))),
    ];
    let constants = [&own[..], &multiplying(into, b, dtype)].concat();
    let shape = [b, heads, rank + rope];
    let outputs: [(&[i32], Dtype); 1] = [(&shape, dtype)];
    let grid = [THREADS * (blocks_of(rank) + 1), heads + 1, blocks_of_rows(b)];
    let all = Launch { grid, block: [THREADS, 1, 1], constants: &constants, outputs: &outputs };
    let matrices = ExpertMatrices { weights: step.embed_q, bias: None };
    // What is not there is not looked at.
    let [w, scales, minima, _] = matrices.arrays(step.q);
    let radians = step.turn.map_or(step.rows, |turn| turn.radians);
    let LatentStep { q, latents, held, on_device, rows, .. } = *step;
    let inputs = [q, w, scales, minima, latents, norm, held, on_device, rows, radians];
    let found = launch(&QUERIES, &inputs, &all)?;
    <[Array; 2]>::try_from(found)
        .map_err(|found| Error::new(format!("{} results of latent queries", found.len())))
}

/// Attends with `queries` to the cache: `[b, heads, rank]`.
fn attended(step: &LatentStep<'_>, sizes: Sizes, queries: &Array, held: &Array) -> Result<Array> {
    let Sizes { b, capacity, rope, into, dtype, .. } = sizes;
    let Form { experts: heads, rows: rank, .. } = into;
    let tiles = if heads > 16 { 2 } else { 1 };
    let groups = (heads + 16 * tiles - 1) / (16 * tiles);
    // By what the buffer holds, so that the steps that it has room for are launched alike.
    let splits = (BLOCKS / (b * groups)).min(capacity / WORTH_A_BLOCK).clamp(1, MOST_SPLITS);
    let warps = rank / COLUMNS;
    let constants = [
        (c"T", Constant::Type(dtype)),
        (c"RANK", Constant::Int(rank)),
        (c"ROPE", Constant::Int(rope)),
        (c"HEADS", Constant::Int(heads)),
        (c"TILES", Constant::Int(tiles)),
        (c"BLOCK_WARPS", Constant::Int(warps)),
        (c"SCALE", Constant::Float(step.scale)),
    ];
    let whole = [b, heads, rank];
    let (own, sums, parts) = match splits > 1 {
        true => ([1; 3], [b, heads, splits, rank], [b, heads, splits, 2]),
        false => (whole, [1; 4], [1; 4]),
    };
    let outputs: [(&[i32], Dtype); 3] = [(&own, dtype), (&sums, Dtype::F32), (&parts, Dtype::F32)];
    let threads = warps * LANES;
    let (grid, block) = ([threads * splits, groups, b], [threads, 1, 1]);
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    let found = launch(&ATTENTION, &[queries, held, step.on_device, step.rows], &all)?;
    let [out, sums, parts] = <[Array; 3]>::try_from(found)
        .map_err(|found| Error::new(format!("{} results of latent attention", found.len())))?;
    if splits == 1 {
        return Ok(out);
    }
    let constants = [(c"T", Constant::Type(dtype)), (c"RANK", Constant::Int(rank))];
    let outputs: [(&[i32], Dtype); 1] = [(&whole, dtype)];
    let (grid, block) = ([THREADS * heads, b, 1], [THREADS, 1, 1]);
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    first(launch(&PARTS, &[&sums, &parts], &all)?)
}

/// Projects `seen`, `[b, heads, rank]`, out of the latents' space: `[b, 1, heads · value]`.
fn left(step: &LatentStep<'_>, sizes: Sizes, seen: &Array) -> Result<Array> {
    let Sizes { b, out, dtype, .. } = sizes;
    let Form { experts: heads, rows: value, columns: rank, .. } = out;
    let constants = [&[(c"IN", Constant::Int(rank))], &multiplying(out, b, dtype)[..]].concat();
    let shape = [b, 1, heads * value];
    let outputs: [(&[i32], Dtype); 1] = [(&shape, dtype)];
    let grid = [THREADS * blocks_of(value), heads, blocks_of_rows(b)];
    let all = Launch { grid, block: [THREADS, 1, 1], constants: &constants, outputs: &outputs };
    let matrices = ExpertMatrices { weights: step.unembed_out, bias: None };
    let [w, scales, minima, _] = matrices.arrays(seen);
    first(launch(&PRODUCTS, &[seen, w, scales, minima], &all)?)
}

/// Constants of kernels that multiply `b` rows with matrices of heads.
fn multiplying(form: Form, b: i32, dtype: Dtype) -> [(&'static CStr, Constant); 5] {
    [
        (c"T", Constant::Type(dtype)),
        (c"TILES", Constant::Int(tiles_of(b))),
        (c"KIND", Constant::Int(form.kind)),
        (c"BITS", Constant::Int(form.bits)),
        (c"GROUP_SIZE", Constant::Int(form.group_size)),
    ]
}

/// Blocks that share the rows of a matrix.
fn blocks_of(rows: i32) -> i32 {
    (rows + MATRIX_ROWS - 1) / MATRIX_ROWS
}

/// Eights of rows that a block multiplies.
fn tiles_of(b: i32) -> i32 {
    [1, 2, 4].into_iter().find(|tiles| b <= tiles * 8).unwrap_or(4)
}

/// Blocks that share the rows of x.
fn blocks_of_rows(b: i32) -> i32 {
    let together = 8 * tiles_of(b);
    (b + together - 1) / together
}
