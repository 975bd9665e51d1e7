//! Rows that take the slots of others which left, and copies of rows.

use mlx_ffi::cuda::{self, Place, Places};
use mlx_ffi::{Array, Result, on_cpu, on_cuda, ops};

use super::arrange::{Arrangement, Group};
use super::buffer::Parts;

/// The places of rows, which layers of one kind share on the device.
#[derive(Debug, Default)]
pub(super) struct Placing {
    known: Vec<(Vec<Place>, Places)>,
}

impl Placing {
    /// The buffer `into`, `[slots, n_kv_heads, capacity, …]`, with rows of `from` in slots of it. On a GPU it is
    /// written in place, by a kernel of CUDA.
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

/// What a layer holds of some positions of a row.
pub(super) struct Span<'a> {
    pub parts: &'a [Array],
    pub place: Place,
}

impl Span<'_> {
    /// That of a layer that remembers nothing of positions.
    pub const NOTHING: Span<'static> =
        Span { parts: &[], place: Place { row: 0, slot: 0, first: 0, at: 0, count: 0, before: 0 } };
}

/// Copies of what layers hold of a row.
pub(super) struct Copies {
    /// Each layer's parts.
    pub layers: Vec<Parts>,
    /// What is computed to make them: on CUDA fewer arrays, of which the parts are views.
    pub made: Vec<Array>,
}

/// Copies of what layers hold of a row. On CUDA, one kernel copies from many buffers into one: while the host makes arrays and
/// sends copies, it sends no step.
pub(super) fn copies(spans: &[Span<'_>]) -> Result<Copies> {
    if !on_cuda()? {
        let of_layer = |Span { parts, place: Place { row, first, count, .. } }: &Span<'_>| {
            let copy = Group::ending(*count, vec![*row as usize], parts, *first..*first + *count);
            Arrangement { groups: vec![copy], capacity: *count }.make()
        };
        let layers: Vec<Parts> = spans.iter().map(of_layer).collect::<Result<_>>()?;
        let made = layers.iter().flatten().map(Array::share).collect::<Result<_>>()?;
        return Ok(Copies { layers, made });
    }
    let all: Vec<(&Array, Place)> =
        spans.iter().flat_map(|span| span.parts.iter().map(|part| (part, span.place))).collect();
    let kind = |at: usize| {
        let (part, place) = all[at];
        let sizes: Option<&[i32; 4]> = part.shape().try_into().ok();
        (part.dtype(), sizes.map(|[_, heads, _, width]| (*heads, *width)), place)
    };
    let mut left: Vec<usize> = (0..all.len()).collect();
    let (mut made, mut views) = (Vec::new(), Vec::with_capacity(all.len()));
    while let Some(&first) = left.first() {
        let (alike, others): (Vec<usize>, Vec<usize>) =
            left.into_iter().partition(|at| kind(*at) == kind(first));
        let parts: Vec<&Array> = alike.iter().map(|at| all[*at].0).collect();
        let copies = cuda::copied(&parts, &Places::new(&[all[first].1])?)?;
        let mut alike = alike.into_iter();
        for copy in &copies {
            for (index, at) in alike.by_ref().take(copy.shape()[0] as usize).enumerate() {
                views.push((at, ops::slice_axis(copy, 0, index as i32, index as i32 + 1)?));
            }
        }
        made.extend(copies);
        left = others;
    }
    views.sort_by_key(|(at, _)| *at);
    let mut views = views.into_iter().map(|(_, copy)| copy);
    let layers = spans.iter().map(|span| views.by_ref().take(span.parts.len()).collect()).collect();
    Ok(Copies { layers, made })
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
