//! Tensors as they are given out: under other names, and converted as they are read.

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
        let shape: Vec<i32> = shape
            .collect::<Result<_, _>>()
            .map_err(|_| Error::model(format!("tensor `{name}` has a dimension over 2³¹ - 1")))?;
        let paired = paired(header, architecture, &module)?;
        // One of all experts has a matrix for each.
        let is_matrix = shape.len() > 1 && part == "weight";
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
                add(Part::Scales, "scales", dtype, groups.clone());
                add(Part::Biases, "biases", dtype, groups);
            }
        }
    }
    Ok((tensors, pieces))
}

/// The type that numbers are given out in: that of the matrices, where all are of one that numbers have. Scales are
/// stored in f16, which keeps them; Gemma's activations need the range of bf16.
fn float_type(header: &Header, architecture: Architecture) -> Dtype {
    let matrices = || header.tensors.values().filter(|stored| stored.shape.len() > 1);
    let all = |kind: Kind| matrices().all(|stored| stored.kind == kind);
    if all(Kind::F32) {
        Dtype::F32
    } else if architecture.is_gemma() || all(Kind::Bf16) {
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
    /// Bits of the codes, where the tensor keeps them.
    pub fn bits(&self) -> Option<usize> {
        (self.part == Part::Codes).then(|| self.stored.kind.bits()).flatten()
    }

    /// Stored bytes of which the first `length` that are given out are made.
    pub fn needed(&self, length: usize) -> usize {
        let (values, size) = self.stored.kind.block();
        let each = match self.part {
            Part::Values => values * self.dtype.size() as u64,
            Part::Codes => values / 8 * self.stored.kind.bits().unwrap_or(8) as u64,
            Part::Scales | Part::Biases => values / GROUP as u64 * self.dtype.size() as u64,
        };
        let blocks = (length as u64).div_ceil(each.max(1));
        let all = self.stored.bytes;
        // Rows in pairs come from other places.
        if self.paired.is_some() { all as usize } else { all.min(blocks * size) as usize }
    }

    /// What is given out of the stored `bytes`, about `length` bytes.
    pub fn converted(&self, bytes: &[u8], length: usize) -> Vec<u8> {
        let Stored { kind, shape, .. } = &self.stored;
        let rows = if self.paired.is_some() { shape[0] as usize } else { 1 };
        let row_size = bytes.len() / rows.max(1);
        let (_, block) = kind.block();
        let mut out = Vec::with_capacity(length);
        for row in 0..rows {
            let row = match self.paired {
                None => row,
                Some(size) => {
                    let (head, at) = (row / size, row % size);
                    head * size + at % (size / 2) * 2 + at / (size / 2)
                }
            };
            for block in bytes[row * row_size..][..row_size].chunks_exact(block as usize) {
                self.convert_block(block, &mut out);
            }
        }
        out
    }

    fn convert_block(&self, block: &[u8], out: &mut Vec<u8>) {
        let kind = self.stored.kind;
        match self.part {
            Part::Values => kind.values(block, |value| push(self.dtype, value - self.less, out)),
            Part::Scales => kind.groups(block, |group| push(self.dtype, group.scale, out)),
            Part::Biases => kind.groups(block, |group| push(self.dtype, group.bias, out)),
            Part::Codes => {
                let bits = kind.bits().unwrap_or(8);
                kind.groups(block, |group| {
                    let (mut word, mut held) = (0u32, 0);
                    for code in group.codes {
                        word |= u32::from(code) << held;
                        held += bits;
                        while held >= 8 {
                            out.push(word as u8);
                            word >>= 8;
                            held -= 8;
                        }
                    }
                });
            }
        }
    }
}

fn push(dtype: Dtype, value: f32, out: &mut Vec<u8>) {
    match dtype {
        Dtype::F16 => out.extend(f16::from_f32(value).to_le_bytes()),
        Dtype::Bf16 => out.extend(bf16::from_f32(value).to_le_bytes()),
        _ => out.extend(value.to_le_bytes()),
    }
}
