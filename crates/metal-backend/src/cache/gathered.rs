//! Rows of several caches, gathered in new buffers.

use mlx_ffi::{Array, Dtype, Error, Result};

use super::buffer::RowsOf;
use super::kv::KvCache;
use super::place::Placing;
use super::slab::Slab;
use super::state::State;
use super::storage::Form;

/// The layers that have keys and values, by the form of buffers for rows of `sources`; `None` where
/// keys and values are not alike.
pub(super) fn forms(
    sources: &[RowsOf<'_, Vec<State>>],
    slots: usize,
    capacity: impl Fn(&Slab, i32) -> i32,
) -> Option<Vec<(Vec<Form>, Vec<usize>)>> {
    let mut forms: Vec<(Vec<Form>, Vec<usize>)> = Vec::new();
    for layer in 0..sources.first()?.0.len() {
        if sources[0].0[layer].kv().is_none() {
            continue;
        }
        let form = KvCache::gathered(&of_layer(sources, layer)?, slots, &capacity)?;
        match forms.iter_mut().find(|(known, _)| *known == form) {
            Some((_, layers)) => layers.push(layer),
            None => forms.push((form, vec![layer])),
        }
    }
    Some(forms)
}

/// The keys and values of a layer of `sources`, with their rows.
fn of_layer<'a>(
    sources: &[RowsOf<'a, Vec<State>>],
    layer: usize,
) -> Option<Vec<RowsOf<'a, KvCache>>> {
    sources.iter().map(|(layers, rows)| Some((layers[layer].kv()?, *rows))).collect()
}

/// The rows of `sources` in new buffers, for some layers of one [form](forms).
pub(super) fn gather(
    sources: &[RowsOf<'_, Vec<State>>],
    layers: &[usize],
    (forms, make): (&[Form], impl Fn(&[i32], Dtype, usize) -> Result<Vec<[Array; 2]>>),
    placing: &mut Placing,
) -> Result<Vec<KvCache>> {
    // For each layer the parts of keys, and those of values.
    let mut buffers: Vec<[Vec<Array>; 2]> = layers.iter().map(|_| Default::default()).collect();
    for (shape, dtype) in forms {
        let made = make(shape, *dtype, layers.len())?;
        for ([keys, values], [key, value]) in buffers.iter_mut().zip(made) {
            keys.push(key);
            values.push(value);
        }
    }
    let of = |(layer, [keys, values]): (&usize, [Vec<Array>; 2])| {
        let sources = of_layer(sources, *layer).ok_or_else(another_form)?;
        KvCache::gather(&sources, keys.into_iter().chain(values).collect(), placing)
    };
    layers.iter().zip(buffers).map(of).collect()
}

/// The error of caches whose layers are not those of others.
pub(super) fn another_form() -> Error {
    Error::new("rows of another form cannot join")
}
