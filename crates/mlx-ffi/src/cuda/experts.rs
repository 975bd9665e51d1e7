//! The experts that each row has chosen: of a few rows one after the other, of many with the rows
//! of an expert together.

use std::ffi::CStr;

use super::constants::{AFFINE, MOST_CHOICES, SAME, SEPARATE, SORTING, THREADS, WARPS};
use super::expert_matrices::{ExpertMatrices, ExpertNetwork, Form};
use super::expert_stream::{EXPERT_STREAM, Stream, streamed_rows};
use super::kernel::{Constant, Launch, Source};
use super::launch::{Sizes, first, launch, launch_with, nothing, numbers, scalar};
use super::routing::{Router, choosing, route, takes_route};
use crate::{Array, Dtype, Error, Indices, Result};

/// Up to so many rows each reads the matrices of its experts by itself where tiles are streamed: 8
/// rows of 8 of 128 experts made 7,345 tokens/s so, and 8,877 streamed (H200, 8 layers, 4 bits).
const FEW_BESIDE_STREAMS: i32 = 4;
/// Up to so many elsewhere: 0.20 ms against 0.23 for 8 rows of 8 of 128 experts in bf16, 0.37
/// against 0.37 for 16; 0.17 against 0.25 in 4 bits (H100, 2048 to 768 and back).
const FEW: i32 = 8;
/// Up to so many with affine codes.
const FEW_AFFINE: i32 = 16;
/// The most values of a row, or of what a row's experts made of it, that a block can hold.
const MOST_HELD: i64 = 20 << 10;
/// Blocks that a large device runs at once of the kernel for projections in, and of the one for
/// those out.
const BLOCKS: [i32; 2] = [396, 528];
/// Up to so many experts each block of the kernel for projections in chooses by itself; more would
/// take its registers.
const MOST_ROUTED: i32 = 256;
/// The most choices of all rows.
const MOST_CHOSEN: i64 = 1 << 20;
/// Rows of a matrix that a block multiplies with those that chose it.
const MATRIX_ROWS: i32 = 128;

const ROWS: Source = Source {
    name: c"expert_rows",
    inputs: &[
        c"x",
        c"w",
        c"w_up",
        c"scales",
        c"scales_up",
        c"minima",
        c"minima_up",
        c"bias",
        c"bias_up",
        c"indices",
        c"weights",
        c"norm",
        c"epsilon",
        c"limits",
        c"onto",
        c"logits",
        c"correction",
        c"scaling",
        c"own_scales",
    ],
    outputs: &[c"out", c"chosen", c"chosen_weights"],
    body: include_str!("expert_rows.cu"),
    header: concat!(
        include_str!("chained.cu"),
        include_str!("common.cu"),
        include_str!("choose.cu"),
        include_str!("expert_common.cu")
    ),
    takes_strides: false,
    written: &[],
};
const GROUPED: Source = Source {
    name: c"grouped",
    body: include_str!("grouped.cu"),
    header: concat!(
        include_str!("chained.cu"),
        include_str!("common.cu"),
        include_str!("expert_common.cu"),
        include_str!("tensor.cu")
    ),
    ..EXPERT_STREAM
};
const ARRANGE: Source = Source {
    name: c"arrange",
    inputs: &[c"indices"],
    outputs: &[c"order", c"tiles"],
    body: include_str!("arrange.cu"),
    header: include_str!("chained.cu"),
    takes_strides: false,
    written: &[],
};
const COMBINE: Source = Source {
    name: c"combine",
    inputs: &[c"y", c"weights", c"onto"],
    outputs: &[c"out"],
    body: include_str!("combine.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("common.cu")),
    takes_strides: false,
    written: &[],
};

/// Constants of a launch.
type Constants = [(&'static CStr, Constant)];

/// The experts that each row chooses.
#[derive(Clone, Copy, Debug)]
pub enum Chosen<'a> {
    /// They are known.
    These {
        /// `[t, e]`.
        indices: &'a Indices,
        /// Factors of the experts' outputs, `[t, e]`.
        weights: &'a Array,
    },
    /// They are chosen by logits, as [`route`] does: of a few rows by the first kernel that needs
    /// them.
    By {
        /// `[…, experts]`.
        logits: &'a Array,
        /// How.
        router: Router<'a>,
    },
}

impl Chosen<'_> {
    /// Rows, and how many experts each chooses.
    fn sizes(&self) -> Result<[i32; 2]> {
        match self {
            Chosen::These { indices, .. } => indices.dims(),
            Chosen::By { logits, router } => Ok([logits.rows(), router.choices]),
        }
    }

    /// Returns true when they are of so many `experts`, with weights in `dtype`.
    fn fit(&self, experts: i32, dtype: Dtype) -> Result<bool> {
        match self {
            Chosen::These { indices, weights } => {
                indices.check("experts", experts as usize)?;
                Ok(weights.shape() == indices.shape() && weights.dtype() == dtype)
            }
            Chosen::By { logits, router } => {
                let types_fit = logits.dtype() == dtype && takes_route(logits, router);
                Ok(types_fit && logits.shape().last() == Some(&experts))
            }
        }
    }

    /// Indices and weights.
    fn made(&self) -> Result<[Array; 2]> {
        match self {
            Chosen::These { indices, weights } => Ok([(***indices).share()?, weights.share()?]),
            Chosen::By { logits, router } => {
                let (indices, weights) = route(logits, router)?;
                Ok([(*indices).share()?, weights])
            }
        }
    }
}

/// Returns true when [`experts`] supports `x`, `[…, in]`, and `network`, with so many choices for
/// each row. `has_norm`: after a norm.
pub fn takes_experts(x: &Array, network: &ExpertNetwork<'_>, choices: i32, has_norm: bool) -> bool {
    let Some(forms @ [into, _]) = network.forms(x.dtype()) else { return false };
    let chosen = i64::from(x.rows()) * i64::from(choices);
    let sizes_fit = x.shape().last() == Some(&into.columns)
        && (1..=MOST_CHOICES.min(into.experts)).contains(&choices)
        && (1..=MOST_CHOSEN).contains(&chosen);
    sizes_fit && (!has_norm || are_few(x, network, forms, choices))
}

/// Returns true when rows are computed by themselves.
fn are_few(x: &Array, network: &ExpertNetwork<'_>, forms: [Form; 2], choices: i32) -> bool {
    let [into, down] = forms;
    let few = match streams(network, forms, 1) {
        Some(_) => FEW_BESIDE_STREAMS,
        None if into.kind == AFFINE => FEW_AFFINE,
        None => FEW,
    };
    x.rows() <= few && into.held(1) <= MOST_HELD && down.held(choices) <= MOST_HELD
}

/// The rows of tiles of so many choices, and how products in and out are cut, where tiles have few
/// rows.
fn streams(
    network: &ExpertNetwork<'_>,
    [into, down]: [Form; 2],
    count: i32,
) -> Option<(i32, [Stream; 2])> {
    let rows = streamed_rows(count, into.experts)?;
    let (pairs, sizes) = (network.layout() != SAME, Sizes::of_device());
    let stream_in = Stream::of(into, pairs, rows, sizes)?;
    Some((rows, [stream_in, Stream::of(down, false, rows, sizes)?]))
}

/// `Σ weight · down(gate(x) · up(x))` over the experts that each row of `x`, `[…, in]`, has chosen:
/// as `x`. `norm`: a root-mean-square norm of x before that, its weight, `[in]`, and its epsilon.
/// `onto`: what the result is added to, of its shape.
///
/// # Errors
/// Operands that [`takes_experts`] rejects; choices, a norm or a sum that do not fit; a device
/// without CUDA.
pub fn experts(
    x: &Array,
    network: &ExpertNetwork<'_>,
    chosen: Chosen<'_>,
    norm: Option<(&Array, f32)>,
    onto: Option<&Array>,
) -> Result<Array> {
    let [t, choices] = chosen.sizes()?;
    let dtype = x.dtype();
    let misfit = || Error::new(format!("no experts {network:?} for {x:?} and {chosen:?}"));
    let forms = network.forms(dtype).ok_or_else(misfit)?;
    let fits = |array: &Array, shape: &[i32]| array.shape() == shape && array.dtype() == dtype;
    let norm_fits = norm.is_none_or(|(weight, _)| fits(weight, &[forms[0].columns]));
    let rest_fits = norm_fits && onto.is_none_or(|onto| fits(onto, x.shape()));
    let is_known = takes_experts(x, network, choices, norm.is_some());
    if !(is_known && rest_fits && t == x.rows() && chosen.fit(forms[0].experts, dtype)?) {
        return Err(misfit());
    }
    let work = Work { x, network, forms, t, choices };
    if are_few(x, network, forms, choices) {
        let (inner, made) = work.rows_in(chosen, norm)?;
        return work.rows_out(&inner, &made, onto);
    }
    work.grouped(&chosen.made()?, onto)
}

/// Choices in the order of their experts.
struct Tiles {
    order: Array,
    /// Expert, first place and number of choices of each, `[most, 4]`.
    tiles: Array,
    /// The most choices of a tile.
    rows: i32,
    most: i32,
    /// How products in and out are cut, where tiles have few rows.
    streams: Option<[Stream; 2]>,
}

/// The operands and sizes of a call.
struct Work<'a> {
    x: &'a Array,
    network: &'a ExpertNetwork<'a>,
    forms: [Form; 2],
    t: i32,
    choices: i32,
}

impl Work<'_> {
    /// The outputs of the gates, `[t, e, inner]`, with indices and weights of the chosen experts.
    fn rows_in(
        &self,
        chosen: Chosen<'_>,
        norm: Option<(&Array, f32)>,
    ) -> Result<(Array, [Array; 2])> {
        let Work { x, network, t, choices, forms: [into, _], .. } = *self;
        let shape = [t, choices, into.rows];
        let has = [(c"HAS_NORM", norm.is_some()), (c"HAS_ONTO", false)];
        let constants = self.matrix_constants(into, true);
        let epsilon = scalar(norm.map_or(0.0, |(_, eps)| eps))?;
        let limits = numbers(network.gate.limits())?;
        let norm = norm.map_or(x, |(weight, _)| weight);
        let before = inputs(x, network.pair());
        let rows = |[indices, weights]: [&Array; 2], by: Option<(&Array, &Router<'_>)>| {
            let after = [indices, weights, norm, &epsilon, &limits, x];
            let results = (&shape[..], into.rows * choices, BLOCKS[0]);
            self.rows(&[&before[..], &after].concat(), (&constants, has), by, results)
        };
        match chosen {
            Chosen::By { logits, router } if into.experts <= MOST_ROUTED => {
                let [inner, indices, weights] = rows([&nothing()?, x], Some((logits, &router)))?;
                Ok((inner, [indices, weights]))
            }
            _ => {
                let made = chosen.made()?;
                let [inner, _, _] = rows([&made[0], x], None)?;
                Ok((inner, made))
            }
        }
    }

    /// The weighted sums of what they make of `inner`.
    fn rows_out(
        &self,
        inner: &Array,
        [indices, weights]: &[Array; 2],
        onto: Option<&Array>,
    ) -> Result<Array> {
        let Work { x, network, forms: [_, down], .. } = *self;
        let has = [(c"HAS_NORM", false), (c"HAS_ONTO", onto.is_some())];
        let constants = self.matrix_constants(down, false);
        let zero = scalar(0.0)?;
        let after = [indices, weights, x, &zero, &zero, onto.unwrap_or(x)];
        let inputs = [&inputs(inner, [&network.down; 2])[..], &after].concat();
        let results = (x.shape(), down.rows, BLOCKS[1]);
        let [out, _, _] = self.rows(&inputs, (&constants, has), None, results)?;
        Ok(out)
    }

    /// A launch for so many results of each row, of `shape`, by so many blocks at most; and what
    /// rows chose, where it is chosen `by` logits.
    fn rows(
        &self,
        inputs: &[&Array],
        (constants, has): (&Constants, [(&'static CStr, bool); 2]),
        by: Option<(&Array, &Router<'_>)>,
        (shape, results, most_blocks): (&[i32], i32, i32),
    ) -> Result<[Array; 3]> {
        let Work { x, t, choices, .. } = *self;
        let at_once = WARPS * (most_blocks / t).max(1);
        // As many for each round as for the others.
        let rounds = (results + at_once - 1) / at_once;
        let blocks = ((results + rounds - 1) / rounds + WARPS - 1) / WARPS;
        let routes = (c"ROUTES", Constant::Bool(by.is_some()));
        let has = has.map(|(name, has)| (name, Constant::Bool(has)));
        let constants = [constants, &has, &[routes], &choosing(by)].concat();
        let scaling = by.map_or_else(|| scalar(0.0), |(_, router)| router.scaling())?;
        let nothing = [x, &scaling, &scaling, x];
        let routing = by.map_or(nothing, |(logits, router)| router.inputs(logits, &scaling));
        let chosen = if by.is_some() { [t, choices] } else { [1; 2] };
        let outputs: [(&[i32], Dtype); 3] =
            [(shape, x.dtype()), (&chosen, Dtype::U32), (&chosen, x.dtype())];
        let (grid, block) = ([THREADS * blocks, t, 1], [THREADS, 1, 1]);
        let all = Launch { grid, block, constants: &constants, outputs: &outputs };
        let found = launch(&ROWS, &[inputs, &routing].concat(), &all)?;
        <[Array; 3]>::try_from(found)
            .map_err(|found| Error::new(format!("{} results of experts", found.len())))
    }

    fn grouped(&self, [indices, weights]: &[Array; 2], onto: Option<&Array>) -> Result<Array> {
        let Work { x, network, .. } = *self;
        let tiles = self.tiles(indices)?;
        let inner = self.product(x, &tiles, network.pair(), true)?;
        let y = self.product(&inner, &tiles, [&network.down; 2], false)?;
        self.combined(&y, weights, onto)
    }

    /// The choices in the order of their experts, in tiles.
    fn tiles(&self, indices: &Array) -> Result<Tiles> {
        let Work { network, t, choices, forms, .. } = *self;
        let (experts, count) = (forms[0].experts, t * choices);
        let streams = streams(network, forms, count);
        // About twice an expert's share, so that most have one tile: 0.60 ms for 512 rows of 8 of
        // 128 experts in tiles of 64, 0.65 in those of 32 (H100, 2048 to 768 and back).
        let rows = match (streams, count / experts) {
            (Some((rows, _)), _) => rows,
            (None, 48..) => 128,
            (None, 16..) => 64,
            (None, 6..) => 32,
            (None, _) => 16,
        };
        let most = (count + rows - 1) / rows + count.min(experts);
        let constants = [(c"EXPERTS", Constant::Int(experts)), (c"TILE_ROWS", Constant::Int(rows))];
        let outputs: [(&[i32], Dtype); 2] = [(&[count], Dtype::I32), (&[most, 4], Dtype::I32)];
        let (grid, block) = ([SORTING, 1, 1], [SORTING, 1, 1]);
        let all = Launch { grid, block, constants: &constants, outputs: &outputs };
        let found = launch(&ARRANGE, &[indices], &all)?;
        let [order, tiles] = <[Array; 2]>::try_from(found)
            .map_err(|found| Error::new(format!("{} results of an order", found.len())))?;
        Ok(Tiles { order, tiles, rows, most, streams: streams.map(|(_, streams)| streams) })
    }

    /// Products of the rows of each of the `tiles` with a matrix of the `pair`, or with both.
    /// `is_in`: with those in, which take rows of `x` as they were chosen.
    fn product(
        &self,
        x: &Array,
        tiles: &Tiles,
        pair: [&ExpertMatrices<'_>; 2],
        is_in: bool,
    ) -> Result<Array> {
        let Work { network, t, choices, forms: [into, down], .. } = *self;
        let form = if is_in { into } else { down };
        let gathers = (c"GATHERS", Constant::Bool(is_in));
        let constants = [&self.matrix_constants(form, is_in)[..], &[gathers]].concat();
        let limits = numbers(network.gate.limits())?;
        let inputs = [&inputs(x, pair)[..], &[&tiles.order, &tiles.tiles, &limits]].concat();
        let shape = [t * choices, form.rows];
        let outputs: [(&[i32], Dtype); 1] = [(&shape, x.dtype())];
        if let Some([stream_in, stream_out]) = tiles.streams {
            let stream = if is_in { stream_in } else { stream_out };
            // Those in have waited for the tiles.
            let knows_tiles = (c"KNOWS_TILES", Constant::Bool(!is_in));
            let constants = [&constants[..], &stream.constants(), &[knows_tiles]].concat();
            let [grid, block] = stream.grid();
            let all = Launch { grid, block, constants: &constants, outputs: &outputs };
            return first(launch_with(&EXPERT_STREAM, stream.memory, &inputs, &all)?);
        }
        let constants = [&constants[..], &[(c"TILE_ROWS", Constant::Int(tiles.rows))]].concat();
        let has_pairs = is_in && network.layout() != SAME;
        let own_rows = if has_pairs { MATRIX_ROWS / 2 } else { MATRIX_ROWS };
        let blocks = (form.rows + own_rows - 1) / own_rows;
        let (grid, block) = ([THREADS * blocks, tiles.most, 1], [THREADS, 1, 1]);
        let all = Launch { grid, block, constants: &constants, outputs: &outputs };
        first(launch(&GROUPED, &inputs, &all)?)
    }

    /// The weighted sums of what experts made of each row, `y`.
    fn combined(&self, y: &Array, weights: &Array, onto: Option<&Array>) -> Result<Array> {
        let Work { x, choices, forms: [_, down], .. } = *self;
        let constants = [
            (c"T", Constant::Type(x.dtype())),
            (c"COLUMNS", Constant::Int(down.rows)),
            (c"CHOICES", Constant::Int(choices)),
            (c"HAS_ONTO", Constant::Bool(onto.is_some())),
        ];
        let threads = (x.size() / 8) as i32;
        let (grid, block) = ([(threads + THREADS - 1) / THREADS * THREADS, 1, 1], [THREADS, 1, 1]);
        let outputs = [(x.shape(), x.dtype())];
        let all = Launch { grid, block, constants: &constants, outputs: &outputs };
        first(launch(&COMBINE, &[y, weights, onto.unwrap_or(x)], &all)?)
    }

    /// Constants of kernels that multiply with matrices of `form`; `is_in`: the gate is theirs.
    fn matrix_constants(&self, form: Form, is_in: bool) -> [(&'static CStr, Constant); 10] {
        let (gate, layout) = match is_in {
            true => (self.network.gate.code(), self.network.layout()),
            false => (0, SEPARATE),
        };
        [
            (c"T", Constant::Type(self.x.dtype())),
            (c"KIND", Constant::Int(form.kind)),
            (c"BITS", Constant::Int(form.bits)),
            (c"GROUP_SIZE", Constant::Int(form.group_size)),
            (c"ROWS", Constant::Int(form.rows)),
            (c"COLUMNS", Constant::Int(form.columns)),
            (c"CHOICES", Constant::Int(self.choices)),
            (c"GATE", Constant::Int(gate)),
            (c"LAYOUT", Constant::Int(layout)),
            (c"HAS_BIAS", Constant::Bool(form.has_bias)),
        ]
    }
}

/// `x` and the parts of two matrices in turn, as kernels take them.
fn inputs<'a>(x: &'a Array, pair: [&'a ExpertMatrices<'a>; 2]) -> [&'a Array; 9] {
    let [[w, scales, minima, bias], [w_up, scales_up, minima_up, bias_up]] =
        pair.map(|matrices| matrices.arrays(x));
    [x, w, w_up, scales, scales_up, minima, minima_up, bias, bias_up]
}
