//! Tensors as they are given out: under other names, and converted as they are read.

use std::collections::BTreeMap;
use std::thread;

use half::{bf16, f16};
use mlx_ffi::Dtype;

use super::blocks::{Form, Groups, Kind};
use super::metadata::{Change, Metadata, Tiles};
use super::names::Named;
use super::order::{Order, columns, in_turn};
use super::reader::Stored;
use super::small::{ROUTERS, is_matrix, is_small, module_of, small_shape, stays_in_f32};
use crate::error::{Error, Result};

/// How rotations are stretched, pair by pair.
pub(super) const ROTATIONS: [&str; 3] =
    ["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"];

/// A tensor as it is given out.
#[derive(Clone, Debug)]
pub(crate) struct GgufTensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<i32>,
    /// The place of its first byte, as if all tensors lay one behind the other.
    pub start: u64,
    pub bytes: u64,
}

/// A part that is given out of a stored tensor: its values, codes, scales or biases.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub stored: Stored,
    /// The module that it is a part of.
    pub module: String,
    /// How the tensor keeps its codes, where it does.
    packed: Option<Form>,
    part: Part,
    /// The type of numbers.
    dtype: Dtype,
    order: Order,
    /// Heads of columns that stand in another order.
    columns: Option<Tiles>,
    /// Computes each value from the stored one.
    value: Option<fn(f32) -> f32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Values,
    Codes,
    Scales,
    Biases,
}

/// All tensors of a file, and what they are made of, packed in `groups` where they can be, with
/// numbers of `dtype`.
///
/// # Errors
/// A tensor that is not known, by name.
pub(super) fn pieces(
    metadata: &Metadata<'_>,
    groups: Groups,
    dtype: Option<Dtype>,
) -> Result<(Vec<GgufTensor>, Vec<Piece>)> {
    let splits = (metadata.of.splits)(metadata);
    let layers = metadata.layers()?..metadata.all_layers()?;
    let mut all = All {
        dtype: dtype.unwrap_or_else(|| float_type(metadata)),
        groups,
        tensors: Vec::new(),
        pieces: Vec::new(),
        end: 0,
    };
    // By the name without the layer: metadata may have a list of all layers, which is not gone
    // through for each of them.
    let mut changes: BTreeMap<&str, Change> = BTreeMap::new();
    for (name, stored) in &metadata.header.tensors {
        if ROTATIONS.contains(&name.as_str()) {
            // Read with the config.
            continue;
        }
        if let Some((_, tensor)) = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'))
            && metadata.of.constants.contains(&tensor)
        {
            continue;
        }
        let named = Named::of(name, metadata.of, splits, &layers).ok_or_else(|| {
            Error::model(format!(
                "tensor `{name}` is not known of this architecture; use a folder of safetensors"
            ))
        })?;
        for one in named {
            let change = match changes.get(one.key) {
                Some(known) => *known,
                None => (metadata.of.change)(metadata, one.key)?,
            };
            changes.insert(one.key, change);
            all.add(name, stored, &one, change)?;
        }
    }
    Ok((all.tensors, all.pieces))
}

/// All tensors that are given out, one behind the other.
struct All {
    /// The type of numbers.
    dtype: Dtype,
    /// In which tensors may be packed.
    groups: Groups,
    tensors: Vec<GgufTensor>,
    pieces: Vec<Piece>,
    end: u64,
}

impl All {
    /// Adds what the stored tensor `name` is elsewhere.
    ///
    /// # Errors
    /// A tensor that does not fit, by name.
    fn add(
        &mut self,
        name: &str,
        stored: &Stored,
        named: &Named<'_>,
        change: Change,
    ) -> Result<()> {
        let Named { tensor, part, .. } = *named;
        let shape = stored.shape.iter().map(|&dim| i32::try_from(dim));
        let shape: Vec<i32> = shape
            .collect::<Result<_, _>>()
            .map_err(|_| Error::model(format!("tensor `{name}` has a dimension over 2³¹ - 1")))?;
        let mut shape = match tensor {
            _ if is_small(tensor) => small_shape(tensor, &shape),
            // llama.cpp's quantiser leaves out dimensions of 1.
            "ffn_gate_inp_shexp.weight" if shape.len() == 1 => vec![1, shape[0]],
            _ => shape,
        };
        let order = Order::of(name, stored, change.rows)?;
        if let (Order::Picked { size, of, .. }, Some(rows)) = (order, shape.first_mut()) {
            *rows = *rows / of as i32 * size as i32;
        }
        // One of several matrices.
        if shape.len() > 2 && shape[0] == 1 && matches!(order, Order::Picked { .. }) {
            shape.remove(0);
        }
        let packed = stored.kind.form(self.groups).filter(|_| is_matrix(tensor, stored));
        let in_order = columns(name, stored, change.columns, packed.map_or(1, |form| form.group))?;
        let change = Change { columns: in_order, ..change };
        let dtype = self.dtype;
        let (Some(form), Some((&columns, rows))) = (packed, shape.split_last()) else {
            let stays = stored.kind == Kind::F32 && stays_in_f32(tensor);
            let dtype = if stays { Dtype::F32 } else { dtype };
            let piece = Piece::of((stored, None), named, Part::Values, dtype, order, change);
            return self.push(part, shape, piece);
        };
        let groups = [rows, &[columns / form.group as i32]].concat();
        let words = [rows, &[columns / 32 * form.bits as i32]].concat();
        let mut push = |which: Part, part: &str, dtype: Dtype, shape: Vec<i32>| {
            let piece = Piece::of((stored, packed), named, which, dtype, order, change);
            self.push(part, shape, piece)
        };
        push(Part::Codes, part, Dtype::U32, words)?;
        if stored.kind.is_mxfp4() {
            return push(Part::Scales, "scales", Dtype::U8, groups);
        }
        push(Part::Scales, "scales", dtype, groups.clone())?;
        push(Part::Biases, "biases", dtype, groups)
    }

    fn push(&mut self, part: &str, shape: Vec<i32>, piece: Piece) -> Result<()> {
        let values = shape.iter().fold(1_u64, |all, &dim| all.saturating_mul(dim as u64));
        let values = if shape.contains(&0) { 0 } else { values };
        let bytes = values.saturating_mul(piece.dtype.size() as u64);
        let (name, dtype) = (format!("{}.{part}", piece.module), piece.dtype);
        let start = self.end;
        // One of no bytes has a place of its own too. Tensors may share a file's bytes, so that
        // they are more than it has.
        self.end = start.checked_add(bytes.max(1)).ok_or_else(|| {
            Error::model(format!(
                "tensor `{name}` and those before it have more bytes than any disk"
            ))
        })?;
        self.tensors.push(GgufTensor { name, dtype, shape, start, bytes });
        self.pieces.push(piece);
        Ok(())
    }
}

/// The type that numbers of matrices are given out in: that of all, where they are of one that
/// numbers have. Scales are stored in f16, which keeps them; some activations need the range of
/// bf16.
fn float_type(metadata: &Metadata<'_>) -> Dtype {
    let counts = |(name, stored): &(&String, &Stored)| {
        let tensor = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let tensor = tensor.map_or(name.as_str(), |(_, tensor)| tensor);
        is_matrix(tensor, stored) && !ROUTERS.contains(&module_of(tensor))
    };
    let matrices = || metadata.header.tensors.iter().filter(counts).map(|(_, stored)| stored);
    let all = |kind: Kind| matrices().all(|stored| stored.kind == kind);
    if all(Kind::F32) {
        Dtype::F32
    } else if metadata.of.needs_range || all(Kind::Bf16) {
        Dtype::Bf16
    } else {
        Dtype::F16
    }
}

impl Piece {
    fn of(
        (stored, packed): (&Stored, Option<Form>),
        named: &Named<'_>,
        part: Part,
        dtype: Dtype,
        order: Order,
        change: Change,
    ) -> Piece {
        let (stored, module) = (stored.clone(), named.module.clone());
        let Change { columns, value, .. } = change;
        Piece { stored, module, packed, part, dtype, order, columns, value }
    }

    /// The form of the codes, where it gives out such.
    pub fn form(&self) -> Option<Form> {
        self.packed.filter(|_| self.part == Part::Codes)
    }

    /// Bytes that are given out of a block.
    fn block_size(&self) -> usize {
        let values = self.stored.kind.block().0 as usize;
        match (self.part, self.packed) {
            (Part::Codes, Some(form)) => values / 8 * form.bits,
            (Part::Scales | Part::Biases, Some(form)) => values / form.group * self.dtype.size(),
            _ => values * self.dtype.size(),
        }
    }

    /// Stored bytes of which the first `length` that are given out are made.
    pub fn needed(&self, length: usize) -> usize {
        let blocks = length.div_ceil(self.block_size()) as u64;
        let (_, size) = self.stored.kind.block();
        let all = self.stored.bytes;
        // What is in another order comes from other places.
        let is_plain = self.order == Order::AsStored && self.columns.is_none();
        if is_plain { all.min(blocks * size) as usize } else { all as usize }
    }

    /// Converts the stored `bytes`, which are all or the first blocks, on all cores.
    pub fn converted(&self, bytes: &[u8]) -> Vec<u8> {
        // Less is not worth a thread.
        const LEAST: usize = 1 << 18;
        let block = self.stored.kind.block().1 as usize;
        let blocks = bytes.len() / block;
        let stored = match (self.order, self.columns) {
            (Order::AsStored, None) => blocks,
            _ => self.stored.shape[0] as usize,
        };
        let rows = match self.order {
            Order::Picked { size, of, .. } => stored / of * size,
            _ => stored,
        };
        if rows == 0 || blocks == 0 {
            return Vec::new();
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let each = rows.div_ceil(cores.min(bytes.len() / LEAST + 1));
        let (row, made) = (bytes.len() / stored, blocks / stored * self.block_size());
        let mut out = vec![0; rows * made];
        thread::scope(|scope| {
            for (index, out) in out.chunks_mut(each * made).enumerate() {
                let first = index * each;
                let mut convert = move || {
                    for (at, out) in (first..).zip(out.chunks_exact_mut(made)) {
                        let mut rest = &mut *out;
                        for block in bytes[self.order.place(at) * row..][..row].chunks_exact(block)
                        {
                            self.convert_block(block, &mut rest);
                        }
                        if let Some(tiles) = self.columns {
                            in_turn(out, tiles);
                        }
                    }
                };
                if each == rows {
                    convert();
                } else {
                    scope.spawn(convert);
                }
            }
        });
        out
    }

    fn convert_block(&self, block: &[u8], out: &mut &mut [u8]) {
        let (kind, dtype) = (self.stored.kind, self.dtype);
        match self.part {
            Part::Values => kind.values(block, |value| {
                push(dtype, self.value.map_or(value, |change| change(value)), out);
            }),
            Part::Scales if kind.is_mxfp4() => put(&block[..1], out),
            Part::Scales => kind.groups(block, |group| push(dtype, group.scale, out)),
            Part::Biases => kind.groups(block, |group| push(dtype, group.bias, out)),
            Part::Codes => {
                let bits = self.packed.map_or(8, |form| form.bits);
                kind.groups(block, |group| {
                    let (bytes, count) = group.packed(bits);
                    put(&bytes[..count], out);
                });
            }
        }
    }
}

fn push(dtype: Dtype, value: f32, out: &mut &mut [u8]) {
    match dtype {
        Dtype::F16 => put(&f16::from_f32(value).to_le_bytes(), out),
        Dtype::Bf16 => put(&bf16::from_f32(value).to_le_bytes(), out),
        _ => put(&value.to_le_bytes(), out),
    }
}

/// Writes `bytes` at the front of `out`, which goes on behind them.
fn put(bytes: &[u8], out: &mut &mut [u8]) {
    let (front, rest) = std::mem::take(out).split_at_mut(bytes.len());
    front.copy_from_slice(bytes);
    *out = rest;
}

#[cfg(test)]
mod tests {
    use super::super::metadata::Rows;
    use super::*;

    fn piece(kind: Kind, rows: u64, part: Part, order: Order) -> Piece {
        let (values, size) = kind.block();
        let (shape, bytes) = (vec![rows, values * 4], rows * 4 * size);
        let stored = Stored { kind, shape, start: 0, bytes, part: 0 };
        Piece {
            stored,
            module: String::new(),
            packed: kind.form(Groups::OfSixteen),
            part,
            dtype: Dtype::F16,
            order,
            columns: None,
            value: None,
        }
    }

    #[test]
    fn what_several_cores_convert_is_what_one_does() {
        let bytes = |piece: &Piece| {
            let count = piece.stored.bytes as usize;
            (0..count).map(|at| (at * 7 % 251) as u8 & 0x3f).collect::<Vec<u8>>()
        };
        for part in [Part::Codes, Part::Scales, Part::Biases, Part::Values] {
            let piece = piece(Kind::Q5_1, 9001, part, Order::AsStored);
            let all = bytes(&piece);
            let parts = all.chunks(24 * 1000).flat_map(|few| piece.converted(few));
            assert!(piece.converted(&all) == parts.collect::<Vec<u8>>(), "{part:?}");
        }
        // Two heads of so many rows, whose halves alternate in the file.
        let piece = piece(Kind::F32, 70_000, Part::Values, Order::Paired(35_000));
        let all = bytes(&piece);
        let plain = Piece { order: Order::AsStored, ..piece.clone() }.converted(&all);
        let (found, row) = (piece.converted(&all), plain.len() / 70_000);
        for (at, from) in [(0, 0), (1, 2), (17_500, 1), (35_000, 35_000), (69_999, 69_999)] {
            assert_eq!(found[at * row..][..row], plain[from * row..][..row], "{at}");
        }
    }

    /// Rows of one value each, so that places can be read off.
    fn numbered(rows: u64, order: Order) -> Vec<f32> {
        let stored =
            Stored { kind: Kind::F32, shape: vec![rows, 1], start: 0, bytes: rows * 4, part: 0 };
        let piece = Piece { stored, dtype: Dtype::F32, ..piece(Kind::F32, 1, Part::Values, order) };
        let bytes: Vec<u8> = (0..rows).flat_map(|row| (row as f32).to_le_bytes()).collect();
        let found = piece.converted(&bytes);
        found.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
    }

    #[test]
    fn rows_come_in_the_order_of_other_checkpoints() {
        assert_eq!(numbered(4, Order::AsStored), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(numbered(4, Order::Paired(4)), [0.0, 2.0, 1.0, 3.0]);
        // Two groups of three heads of one row each, behind one row.
        let tiles = Tiles { groups: 2, heads: 3 };
        let found = numbered(7, Order::Tiled { first: 1, size: 1, tiles });
        assert_eq!(found, [0.0, 1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
        let found = numbered(8, Order::Picked { first: 2, size: 2, of: 4 });
        assert_eq!(found, [2.0, 3.0, 6.0, 7.0]);
    }

    #[test]
    fn heads_of_columns_are_put_into_order_in_all_parts_of_packed_weights() {
        // One row of two groups of two heads, of 32 columns each: a block is a head.
        let tiles = Tiles { groups: 2, heads: 2 };
        let stored =
            Stored { kind: Kind::Q8_0, shape: vec![1, 128], start: 0, bytes: 136, part: 0 };
        let block = |head: u8| {
            [&f16::from_f32(f32::from(head) + 1.0).to_le_bytes()[..], &[head; 32]].concat()
        };
        let bytes: Vec<u8> = (0..4).flat_map(block).collect();
        let of = |part: Part| {
            let columns = Some(tiles);
            let piece = piece(Kind::Q8_0, 1, part, Order::AsStored);
            Piece { stored: stored.clone(), columns, ..piece }.converted(&bytes)
        };
        let scales = of(Part::Scales);
        let scale = |at: usize| f16::from_le_bytes([scales[2 * at], scales[2 * at + 1]]).to_f32();
        assert_eq!([0, 1, 2, 3].map(scale), [1.0, 3.0, 2.0, 4.0]);
        let codes = of(Part::Codes);
        let heads = codes.chunks_exact(32).map(|head| head[0].wrapping_sub(128));
        assert_eq!(heads.collect::<Vec<_>>(), [0, 2, 1, 3]);
        // A head that shares a group with another one cannot move, nor one of a vector.
        let narrow = Stored { shape: vec![1, 64], ..stored.clone() };
        let vector = Stored { shape: vec![128], ..stored.clone() };
        assert!(columns("a", &narrow, Some(tiles), 32).is_err());
        assert_eq!(columns("a", &narrow, Some(tiles), 16).unwrap(), Some(tiles));
        assert!(columns("a", &vector, Some(tiles), 32).is_err());
        assert_eq!(columns("a", &stored, Some(tiles), 32).unwrap(), Some(tiles));
        let alone = Tiles { heads: 1, ..tiles };
        assert_eq!(columns("a", &narrow, Some(alone), 32).unwrap(), None);
    }

    #[test]
    fn rows_that_are_no_heads_are_refused() {
        let stored =
            |shape: Vec<u64>| Stored { kind: Kind::Q8_0, shape, start: 0, bytes: 0, part: 0 };
        let tiles = Tiles { groups: 2, heads: 2 };
        let picked = |size, of| Rows::Picked { first: 0, size, of };
        for (shape, rows) in [
            (vec![64], Rows::Paired(2)),
            (vec![64], Rows::Tiled(0, tiles)),
            (vec![10, 32], Rows::Paired(3)),
            (vec![10, 32], Rows::Tiled(0, tiles)),
            (vec![10, 32], picked(2, 4)),
            (vec![8, 32], picked(5, 4)),
            (vec![8, 32], picked(0, 0)),
        ] {
            let error = Order::of("a", &stored(shape), rows).unwrap_err().to_string();
            assert!(error.contains("`a`"), "{error}");
        }
        assert!(Order::of("a", &stored(vec![8, 32]), picked(2, 4)).is_ok());
    }
}
