//! Tensors as they are given out: under other names, and converted as they are read.

use std::thread;

use half::{bf16, f16};
use mlx_ffi::Dtype;

use super::architecture::Architecture;
use super::blocks::{GROUP, Kind};
use super::names::named;
use super::reader::{Header, Stored};
use crate::error::{Error, Result};

/// How rotations are stretched, pair by pair.
pub(super) const ROTATIONS: [&str; 3] =
    ["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"];

/// A module that is no matrix, though its tensor has two dimensions.
const CONVOLUTION: &str = ".conv.conv";
/// Tensors with two dimensions that stay in F32 in files of other types.
const IN_F32: [&str; 2] = ["shortconv.conv.weight", "ffn_gate_inp.weight"];

/// A tensor as it is given out.
#[derive(Clone, Debug)]
pub(crate) struct GgufTensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<i32>,
    /// Where it begins, as if all tensors lay one behind the other.
    pub start: u64,
    pub bytes: u64,
}

/// What is given out of a stored tensor.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub stored: Stored,
    /// The module that it is a part of.
    pub module: String,
    part: Part,
    /// The type of numbers.
    dtype: Dtype,
    /// Values of a head whose rows stand in pairs: those of the first and of the second half alternate.
    paired: Option<usize>,
    /// What is taken off each value.
    less: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Values,
    Codes,
    Scales,
    Biases,
}

/// All tensors of a file, and what they are made of.
///
/// # Errors
/// A tensor that is not known, by name.
pub(super) fn pieces(
    header: &Header,
    architecture: Architecture,
) -> Result<(Vec<GgufTensor>, Vec<Piece>)> {
    let dtype = float_type(header, architecture);
    let (mut tensors, mut pieces) = (Vec::new(), Vec::new());
    let mut end = 0;
    for (name, stored) in &header.tensors {
        if ROTATIONS.contains(&name.as_str()) {
            // Read with the config.
            continue;
        }
        let Some((module, part)) = named(name, architecture) else {
            return Err(Error::model(format!(
                "tensor `{name}` is not known of this architecture; use a folder of safetensors"
            )));
        };
        let shape = stored.shape.iter().map(|&dim| i32::try_from(dim));
        let mut shape: Vec<i32> = shape
            .collect::<Result<_, _>>()
            .map_err(|_| Error::model(format!("tensor `{name}` has a dimension over 2³¹ - 1")))?;
        if module.ends_with(CONVOLUTION) {
            // Each channel by itself.
            shape.insert(1, 1);
        }
        let paired = paired(header, architecture, &module)?;
        // One of all experts has a matrix for each.
        let is_matrix = shape.len() > 1 && part == "weight" && !module.ends_with(CONVOLUTION);
        let less = if architecture.is_gemma() && module.ends_with("norm") { 1.0 } else { 0.0 };
        let mut add = |part: Part, name: &str, dtype: Dtype, shape: Vec<i32>| {
            let values: u64 = shape.iter().map(|&dim| dim as u64).product();
            let bytes = values * dtype.size() as u64;
            let name = format!("{module}.{name}");
            tensors.push(GgufTensor { name, dtype, shape, start: end, bytes });
            let (stored, module) = (stored.clone(), module.clone());
            pieces.push(Piece { stored, module, part, dtype, paired, less });
            // One of no bytes has a place of its own too.
            end += bytes.max(1);
        };
        match stored.kind.bits().filter(|_| is_matrix) {
            None => add(Part::Values, part, dtype, shape),
            Some(bits) => {
                let (&columns, rows) = shape.split_last().expect("it has two dimensions");
                let groups = [rows, &[columns / GROUP as i32]].concat();
                let words = [rows, &[columns / 32 * bits as i32]].concat();
                add(Part::Codes, "weight", Dtype::U32, words);
                if stored.kind.is_mxfp4() {
                    add(Part::Scales, "scales", Dtype::U8, groups);
                    continue;
                }
                add(Part::Scales, "scales", dtype, groups.clone());
                add(Part::Biases, "biases", dtype, groups);
            }
        }
    }
    Ok((tensors, pieces))
}

/// The type that numbers are given out in: that of the matrices, where all are of one that numbers have. Scales are
/// stored in f16, which keeps them; some activations need the range of bf16.
fn float_type(header: &Header, architecture: Architecture) -> Dtype {
    let is_matrix = |(name, stored): &(&String, &Stored)| {
        stored.shape.len() > 1 && !IN_F32.iter().any(|end| name.ends_with(end))
    };
    let matrices = || header.tensors.iter().filter(is_matrix).map(|(_, stored)| stored);
    let all = |kind: Kind| matrices().all(|stored| stored.kind == kind);
    if all(Kind::F32) {
        Dtype::F32
    } else if architecture.needs_range() || all(Kind::Bf16) {
        Dtype::Bf16
    } else {
        Dtype::F16
    }
}

/// Values of a head of the module, whose rows llama.cpp puts into pairs.
fn paired(header: &Header, architecture: Architecture, module: &str) -> Result<Option<usize>> {
    let heads = match module.rsplit('.').next() {
        Some("q_proj") => "attention.head_count",
        Some("k_proj") => "attention.head_count_kv",
        _ => return Ok(None),
    };
    if !architecture.has_pairs() {
        return Ok(None);
    }
    let heads = match architecture.number(header, heads)? {
        Some(heads) => heads,
        None => architecture.required(header, "attention.head_count")?,
    };
    let theirs = match module.ends_with("q_proj") {
        true => "attn_q.weight",
        false => "attn_k.weight",
    };
    let stored = header.tensors.iter().find(|(name, _)| name.ends_with(theirs));
    let rows = stored.and_then(|(_, stored)| stored.shape.first()).copied().unwrap_or(0);
    let size = rows / heads.max(1);
    if size * heads != rows || !size.is_multiple_of(2) {
        return Err(Error::model(format!("{heads} heads do not divide {rows} rows of `{theirs}`")));
    }
    Ok(Some(size as usize))
}

impl Piece {
    /// Bits of the codes and MLX's name for their form, where the tensor keeps them.
    pub fn form(&self) -> Option<(usize, &'static str)> {
        let mode = if self.stored.kind.is_mxfp4() { "mxfp4" } else { "affine" };
        let bits = self.stored.kind.bits().filter(|_| self.part == Part::Codes);
        bits.map(|bits| (bits, mode))
    }

    /// What is given out of a block, in bytes.
    fn block_size(&self) -> usize {
        let (values, _) = self.stored.kind.block();
        let size = match self.part {
            Part::Values => values * self.dtype.size() as u64,
            Part::Codes => values / 8 * self.stored.kind.bits().unwrap_or(8) as u64,
            Part::Scales | Part::Biases => values / GROUP as u64 * self.dtype.size() as u64,
        };
        size as usize
    }

    /// Stored bytes of which the first `length` that are given out are made.
    pub fn needed(&self, length: usize) -> usize {
        let blocks = length.div_ceil(self.block_size()) as u64;
        let (_, size) = self.stored.kind.block();
        let all = self.stored.bytes;
        // Rows in pairs come from other places.
        if self.paired.is_some() { all as usize } else { all.min(blocks * size) as usize }
    }

    /// What is given out of the stored `bytes`, which are all or the first blocks; made on all cores.
    pub fn converted(&self, bytes: &[u8]) -> Vec<u8> {
        // Less is not worth a thread.
        const LEAST: usize = 1 << 18;
        let block = self.stored.kind.block().1 as usize;
        let blocks = bytes.len() / block;
        let mut out = vec![0; blocks * self.block_size()];
        let rows = if self.paired.is_some() { self.stored.shape[0] as usize } else { blocks };
        if rows == 0 || out.is_empty() {
            return out;
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let each = rows.div_ceil(cores.min(bytes.len() / LEAST + 1));
        let (row, made) = (bytes.len() / rows, out.len() / rows);
        thread::scope(|scope| {
            for (index, out) in out.chunks_mut(each * made).enumerate() {
                let first = index * each;
                let mut convert = move || {
                    for (at, mut out) in (first..).zip(out.chunks_exact_mut(made)) {
                        for block in bytes[self.place(at) * row..][..row].chunks_exact(block) {
                            self.convert_block(block, &mut out);
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

    /// Where in the file the row lies that is given out at place `row`.
    fn place(&self, row: usize) -> usize {
        let Some(size) = self.paired else { return row };
        let (head, at) = (row / size, row % size);
        head * size + at % (size / 2) * 2 + at / (size / 2)
    }

    fn convert_block(&self, block: &[u8], out: &mut &mut [u8]) {
        let (kind, dtype) = (self.stored.kind, self.dtype);
        match self.part {
            Part::Values => kind.values(block, |value| push(dtype, value - self.less, out)),
            Part::Scales if kind.is_mxfp4() => put(&block[..1], out),
            Part::Scales => kind.groups(block, |group| push(dtype, group.scale, out)),
            Part::Biases => kind.groups(block, |group| push(dtype, group.bias, out)),
            Part::Codes => {
                let bits = kind.bits().unwrap_or(8);
                kind.groups(block, |group| {
                    let (mut word, mut held, mut at) = (0u32, 0, 0);
                    let mut bytes = [0; GROUP];
                    for code in group.codes {
                        word |= u32::from(code) << held;
                        held += bits;
                        while held >= 8 {
                            bytes[at] = word as u8;
                            at += 1;
                            word >>= 8;
                            held -= 8;
                        }
                    }
                    put(&bytes[..at], out);
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
    use super::*;

    fn piece(kind: Kind, rows: u64, part: Part, paired: Option<usize>) -> Piece {
        let (values, size) = kind.block();
        let (shape, bytes) = (vec![rows, values * 4], rows * 4 * size);
        let stored = Stored { kind, shape, start: 0, bytes, part: 0 };
        Piece { stored, module: String::new(), part, dtype: Dtype::F16, paired, less: 0.0 }
    }

    #[test]
    fn what_several_cores_convert_is_what_one_does() {
        let bytes = |piece: &Piece| {
            let count = piece.stored.bytes as usize;
            (0..count).map(|at| (at * 7 % 251) as u8 & 0x3f).collect::<Vec<u8>>()
        };
        for part in [Part::Codes, Part::Scales, Part::Biases, Part::Values] {
            let piece = piece(Kind::Q5_1, 9001, part, None);
            let all = bytes(&piece);
            let parts = all.chunks(24 * 1000).flat_map(|few| piece.converted(few));
            assert!(piece.converted(&all) == parts.collect::<Vec<u8>>(), "{part:?}");
        }
        // Two heads of so many rows, whose halves alternate in the file.
        let piece = piece(Kind::F32, 70_000, Part::Values, Some(35_000));
        let all = bytes(&piece);
        let plain = Piece { paired: None, ..piece.clone() }.converted(&all);
        let (found, row) = (piece.converted(&all), plain.len() / 70_000);
        for (at, from) in [(0, 0), (1, 2), (17_500, 1), (35_000, 35_000), (69_999, 69_999)] {
            assert_eq!(found[at * row..][..row], plain[from * row..][..row], "{at}");
        }
    }
}
