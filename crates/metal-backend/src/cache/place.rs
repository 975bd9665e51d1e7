//! Rows that take the slots of others which left, and copies of rows.

use mlx_ffi::cuda::{self, Place, Places};
use mlx_ffi::{Array, Error, Result, on_cpu, on_cuda, ops};

use super::arrange::{Arrangement, Group};
use super::buffer::{Parts, between};

/// The places of rows, which layers of one kind share on the device.
#[derive(Debug, Default)]
pub(super) struct Placing {
    known: Vec<(Vec<Place>, Places)>,
}

impl Placing {
    /// The buffer `into`, `[slots, n_kv_heads, capacity, …]`, with rows of `from` in slots of it.
    /// On a GPU it is written in place, by a kernel of CUDA.
    pub fn place(&mut self, from: &Array, into: &Array, places: &[Place]) -> Result<Array> {
        if on_cpu()? {
            return by_operations(from, into, places);
        }
        cuda::place(from, into, self.on_device(places)?)
    }

    fn on_device(&mut self, places: &[Place]) -> Result<&Places> {
        let at = match self.known.iter().position(|(known, _)| known == places) {
            Some(at) => at,
            None => {
                self.known.push((places.to_vec(), Places::new(places)?));
                self.known.len() - 1
            }
        };
        Ok(&self.known[at].1)
    }
}

/// A layer's entries of some positions of a row.
pub(super) struct Span<'a> {
    pub parts: &'a [Array],
    pub place: Place,
}

impl Span<'_> {
    /// That of a layer that remembers nothing of positions.
    pub const NOTHING: Span<'static> =
        Span { parts: &[], place: Place { row: 0, slot: 0, first: 0, at: 0, count: 0, before: 0 } };
}

/// Copies of what layers hold of as many positions of some rows. Views of them are made once they
/// are asked for: most never are, and making them takes the host longer than to have the copies
/// made.
pub(super) struct Copies {
    arrays: Vec<Array>,
    rows: usize,
    /// For each part of each layer, the array that has it, and where its first row is there. The
    /// others are behind that.
    layers: Vec<Vec<(usize, usize)>>,
}

impl Copies {
    /// Those of one row whose parts have an array each.
    pub fn apart(layers: Vec<Parts>) -> Copies {
        let mut next = 0..;
        let of_layer = |parts: &Parts| next.by_ref().take(parts.len()).map(|at| (at, 0)).collect();
        let places = layers.iter().map(of_layer).collect();
        Copies { arrays: layers.into_iter().flatten().collect(), rows: 1, layers: places }
    }

    /// The arrays to be evaluated.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// How many bytes they have.
    pub fn bytes(&self) -> u64 {
        self.arrays.iter().map(|array| array.nbytes() as u64).sum()
    }

    /// How many rows are copied.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Each layer's parts of so many of a row's positions.
    pub fn between(&self, row: usize, first: i32, end: i32) -> Result<Vec<Parts>> {
        let part = |(array, at): &(usize, usize)| {
            let at = (at + row) as i32;
            between(&ops::slice_axis(&self.arrays[*array], 0, at, at + 1)?, first, end)
        };
        self.layers.iter().map(|parts| parts.iter().map(part).collect()).collect()
    }
}

/// Returns true when [`copies`] copies several rows at once.
///
/// # Errors
/// Those of MLX.
pub(super) fn copies_together() -> Result<bool> {
    on_cuda()
}

/// Copies of what layers hold of some rows, of each of which every layer has a span of as many
/// positions. On CUDA, one kernel copies from many buffers into one: while the host makes arrays
/// and sends copies, it sends no step. Elsewhere there is one row.
///
/// # Errors
/// Those of MLX; layers or spans that are not alike.
pub(super) fn copies(rows: &[Vec<Span<'_>>]) -> Result<Copies> {
    let [first, ..] = rows else { return Err(Error::new("no rows are copied")) };
    if !on_cuda()? {
        let of_layer = |Span { parts, place: Place { row, first, count, .. } }: &Span<'_>| {
            let copy = Group::ending(*count, vec![*row as usize], parts, *first..*first + *count);
            Arrangement { groups: vec![copy], capacity: *count }.make()
        };
        return Ok(Copies::apart(first.iter().map(of_layer).collect::<Result<_>>()?));
    }
    let of_rows = |layer: usize| rows.iter().map(|spans| spans[layer].place).collect();
    let places: Vec<Vec<Place>> = (0..first.len()).map(of_rows).collect();
    let of_layers = first.iter().zip(&places);
    let all: Vec<(&Array, &[Place])> = of_layers
        .flat_map(|(span, places)| span.parts.iter().map(|part| (part, &places[..])))
        .collect();
    let kind = |at: usize| {
        let (part, places) = all[at];
        let sizes: Option<&[i32; 4]> = part.shape().try_into().ok();
        (part.dtype(), sizes.map(|[_, heads, _, width]| (*heads, *width)), places)
    };
    let mut left: Vec<usize> = (0..all.len()).collect();
    let (mut arrays, mut found) = (Vec::new(), vec![(0, 0); all.len()]);
    while let Some(&lead) = left.first() {
        let (alike, others): (Vec<usize>, Vec<usize>) =
            left.into_iter().partition(|at| kind(*at) == kind(lead));
        let parts: Vec<&Array> = alike.iter().map(|at| all[*at].0).collect();
        let copies = cuda::copied(&parts, &Places::new(all[lead].1)?)?;
        let mut alike = alike.into_iter();
        for copy in copies {
            let parts = copy.shape()[0] as usize / rows.len();
            for (part, at) in alike.by_ref().take(parts).enumerate() {
                found[at] = (arrays.len(), part * rows.len());
            }
            arrays.push(copy);
        }
        left = others;
    }
    let mut found = found.into_iter();
    let layers = first.iter().map(|span| found.by_ref().take(span.parts.len()).collect()).collect();
    Ok(Copies { arrays, rows: rows.len(), layers })
}

fn by_operations(from: &Array, into: &Array, places: &[Place]) -> Result<Array> {
    places.iter().try_fold(into.share()?, |into, place| {
        let Place { row, slot, first, at, count, before } = *place;
        let held =
            ops::slice_axis(&ops::slice_axis(from, 0, row, row + 1)?, 2, first, first + count)?;
        let old = ops::slice_axis(&into, 0, slot, slot + 1)?;
        let [_, n_kv_heads, _, width] = into.dims()?;
        let zeros = ops::zeros(&[1, n_kv_heads, before, width], into.dtype())?;
        let old = ops::slice_update_axis(&old, &zeros, 2, at - before, at)?;
        let new = ops::slice_update_axis(&old, &held, 2, at, at + count)?;
        ops::slice_update_axis(&into, &new, 0, slot, slot + 1)
    })
}
