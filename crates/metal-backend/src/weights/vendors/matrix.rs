//! A matrix as a vendor's packing has it, and what is given out in its place.

use std::sync::Arc;

use half::{bf16, f16};
use mlx_ffi::{Array, Dtype, QuantMode, Quantization, ops};

use super::words::{OF_AWQ, code, of_awq, turned};
use crate::error::{Error, Result};
use crate::files::ModelFiles;
use crate::weights::source::{Make, TensorHeader};

/// Columns that share a scale in matrices that MLX multiplies with, the most first.
const GROUPS: [usize; 3] = [128, 64, 32];
/// The values of floats of four bits without their sign.
const FP4: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The place of codes in the tensor that holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// `[columns, rows / 8]` words, whose codes belong to eight rows in AWQ's order.
    Awq,
    /// `[columns · bits / 32, rows]` words, as GPTQ has them.
    Turned,
    /// `[rows, columns · bits / 32]` words.
    Rows,
    /// `[rows, columns]` signed bytes.
    Signed,
    /// `[rows, columns / 2]` bytes with two floats each, the first one in the lower half.
    Fp4,
    /// `[rows, columns]` floats of 8 bits.
    Fp8,
}

/// The codes that stand for 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Zeros {
    /// That in the middle, or none where codes are floats.
    Middle,
    /// `[groups, rows / 8]` words in AWQ's order.
    Awq(TensorHeader),
    /// `[groups, rows · bits / 32]` words. The first version of GPTQ stores one less than it means.
    Turned { header: TensorHeader, is_one_less: bool },
    /// `[rows · bits / 32, groups]` words.
    Rows(TensorHeader),
    /// `[rows, groups]` signed bytes.
    Signed(TensorHeader),
}

/// A factor of all values of a matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Global {
    pub header: TensorHeader,
    /// It divides.
    pub divides: bool,
}

/// A packed matrix, `[rows, columns]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    pub layout: Layout,
    pub bits: usize,
    pub rows: usize,
    pub columns: usize,
    /// Columns that share a scale.
    pub group: usize,
    pub codes: TensorHeader,
    /// Floats, or exponents of two: `[rows, groups]`, or `[groups, rows]`.
    pub scales: TensorHeader,
    pub zeros: Zeros,
    /// The group of each column, where columns do not follow each other in groups.
    pub order: Option<TensorHeader>,
    pub global: Option<Global>,
}

/// The parts of a matrix in MLX's packing; all of it, where that has none for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Codes,
    Scales,
    Biases,
    Values,
}

/// A part of a packed matrix.
#[derive(Debug)]
struct Made {
    matrix: Arc<Packed>,
    part: Part,
}

/// The packing in which a matrix is given out.
enum Form {
    /// Codes of whole numbers in groups of so many columns.
    Affine(usize),
    /// Floats whose scales are exponents of two.
    Floats,
    /// None.
    Values,
}

impl Packed {
    fn form(&self) -> Form {
        let are_exponents = self.scales.dtype == Dtype::U8 && !self.scales.is_fp8;
        match self.layout {
            Layout::Fp4 | Layout::Fp8 if are_exponents && self.group == 32 => Form::Floats,
            Layout::Fp4 | Layout::Fp8 => Form::Values,
            _ if self.order.is_some() || !matches!(self.bits, 2 | 3 | 4 | 8) => Form::Values,
            _ => {
                let fits = |size: &usize| {
                    self.group.is_multiple_of(*size) && self.columns.is_multiple_of(*size)
                };
                GROUPS.into_iter().find(fits).map_or(Form::Values, Form::Affine)
            }
        }
    }

    /// The tensors of the module that it is given out as, each by the last part of its name. Where
    /// it is given out whole, it has no bytes yet: the model's type decides.
    pub fn parts(self) -> Vec<(&'static str, TensorHeader)> {
        let (rows, columns, bits) = (self.rows as i32, self.columns as i32, self.bits as i32);
        let scale = self.scales.dtype;
        let group = match self.form() {
            Form::Values => {
                let made = Arc::new(Made { matrix: Arc::new(self), part: Part::Values });
                return vec![("weight", TensorHeader::made(&[rows, columns], Dtype::F32, made))];
            }
            Form::Affine(group) => Some(group as i32),
            Form::Floats => None,
        };
        let matrix = Arc::new(self);
        let part = |name, part, columns, dtype| {
            let made = Arc::new(Made { matrix: Arc::clone(&matrix), part });
            (name, TensorHeader::made(&[rows, columns], dtype, made))
        };
        let codes = part("weight", Part::Codes, columns / 32 * bits, Dtype::U32);
        let Some(group) = group else {
            return vec![codes, part("scales", Part::Scales, columns / 32, Dtype::U8)];
        };
        let groups = columns / group;
        vec![
            codes,
            part("scales", Part::Scales, groups, scale),
            part("biases", Part::Biases, groups, Dtype::F32),
        ]
    }

    fn groups(&self) -> usize {
        self.columns.div_ceil(self.group)
    }

    /// Its codes in rows, `[rows, columns · bits / 32]`.
    fn words(&self, files: &ModelFiles) -> Result<Vec<u32>> {
        let array = files.read_tensor(&self.codes)?;
        let (rows, columns) = (self.rows, self.columns);
        Ok(match self.layout {
            Layout::Awq => of_awq(&words(&array)?, columns, rows),
            Layout::Turned => turned(&words(&array)?, columns * self.bits / 32, rows),
            Layout::Rows => words(&array)?,
            Layout::Signed => array.read_bytes(|bytes| {
                // From -128..128 to 0..256.
                let word = |four: &[u8]| little(four) ^ 0x8080_8080;
                bytes.chunks_exact(4).map(word).collect()
            })?,
            Layout::Fp4 | Layout::Fp8 => {
                array.read_bytes(|bytes| bytes.chunks_exact(4).map(little).collect())?
            }
        })
    }

    /// Its scales, `[rows, groups]`, with the factor of all.
    fn scales(&self, files: &ModelFiles) -> Result<Vec<f32>> {
        let (rows, groups) = (self.rows, self.groups());
        let mut scales = floats(files, &self.scales)?;
        if let Layout::Awq | Layout::Turned = self.layout {
            let bits: Vec<u32> = scales.iter().map(|scale| scale.to_bits()).collect();
            scales = turned(&bits, groups, rows).into_iter().map(f32::from_bits).collect();
        }
        if scales.len() == 1 {
            scales = vec![scales[0]; rows * groups];
        }
        if let Some(global) = &self.global {
            let factor = floats(files, &global.header)?.first().copied().unwrap_or(1.0);
            for scale in &mut scales {
                *scale = if global.divides { *scale / factor } else { *scale * factor };
            }
        }
        Ok(scales)
    }

    /// The codes that stand for 0, `[rows, groups]`.
    fn zeros(&self, files: &ModelFiles) -> Result<Vec<f32>> {
        let (rows, groups) = (self.rows, self.groups());
        let middle = (1 << (self.bits - 1)) as f32;
        let header = match &self.zeros {
            Zeros::Middle => return Ok(vec![middle; rows * groups]),
            Zeros::Signed(header) => {
                let array = files.read_tensor(header)?;
                let zero = |byte: &u8| f32::from(*byte as i8) + middle;
                return Ok(array.read_bytes(|bytes| bytes.iter().map(zero).collect())?);
            }
            Zeros::Awq(header) | Zeros::Rows(header) | Zeros::Turned { header, .. } => header,
        };
        let words = words(&files.read_tensor(header)?)?;
        let at = |index: usize| self.zero(&words, index / groups, index % groups) as f32;
        Ok((0..rows * groups).map(at).collect())
    }

    /// The code that stands for 0 in the `words` of such codes.
    fn zero(&self, words: &[u32], row: usize, group: usize) -> u32 {
        let bits = self.bits;
        match &self.zeros {
            Zeros::Awq(_) => {
                let nibble = OF_AWQ.iter().position(|of| *of == row % 8).unwrap_or(0);
                words[group * (self.rows / 8) + row / 8] >> (4 * nibble) & 15
            }
            Zeros::Turned { is_one_less, .. } => {
                let words = &words[group * (self.rows * bits / 32)..];
                (code(words, row, bits) + u32::from(*is_one_less)) & (u32::MAX >> (32 - bits))
            }
            Zeros::Rows(_) => {
                let each = 32 / bits;
                code(&words[row / each * self.groups() + group..], row % each, bits)
            }
            Zeros::Middle | Zeros::Signed(_) => 0,
        }
    }

    /// Its values, `[rows, columns]`.
    fn values(&self, files: &ModelFiles) -> Result<Vec<f32>> {
        let (columns, groups, bits) = (self.columns, self.groups(), self.bits);
        let (words, scales) = (self.words(files)?, self.scales(files)?);
        let group_of: Vec<usize> = match &self.order {
            None => (0..columns).map(|column| column / self.group).collect(),
            Some(order) => indices(files, order, groups)?,
        };
        let is_float = matches!(self.layout, Layout::Fp4 | Layout::Fp8);
        let zeros = if is_float { Vec::new() } else { self.zeros(files)? };
        let length = words.len() / self.rows.max(1);
        let mut all = Vec::with_capacity(self.rows * columns);
        for (row, words) in words.chunks_exact(length.max(1)).enumerate() {
            all.extend(group_of.iter().enumerate().map(|(column, group)| {
                let (code, group) = (code(words, column, bits), row * groups + group);
                let value = match self.layout {
                    Layout::Fp4 => fp4(code),
                    _ => code as f32 - zeros[group],
                };
                value * scales[group]
            }));
        }
        Ok(all)
    }
}

impl Make for Made {
    fn has_any_dtype(&self) -> bool {
        self.part == Part::Values
    }

    fn quantization(&self) -> Option<Quantization> {
        let bits = self.matrix.bits as i32;
        let (mode, group_size) = match self.matrix.form() {
            _ if self.part != Part::Codes => return None,
            Form::Values => return None,
            Form::Affine(group) => (QuantMode::Affine, group as i32),
            Form::Floats if bits == 4 => (QuantMode::Mxfp4, 32),
            Form::Floats => (QuantMode::Mxfp8, 32),
        };
        Some(Quantization { mode, bits, group_size })
    }

    fn bytes(&self, files: &ModelFiles, dtype: Dtype) -> Result<Vec<u8>> {
        let matrix = &*self.matrix;
        match (self.part, matrix.form()) {
            (Part::Codes, _) => {
                let words = matrix.words(files)?.into_iter();
                Ok(words.flat_map(u32::to_le_bytes).collect())
            }
            (Part::Scales, Form::Affine(group)) => {
                Ok(bytes_of(spread(&matrix.scales(files)?, matrix, group), dtype))
            }
            (Part::Biases, Form::Affine(group)) => {
                let (scales, zeros) = (matrix.scales(files)?, matrix.zeros(files)?);
                let pairs = scales.iter().zip(&zeros);
                let biases: Vec<f32> = pairs.map(|(scale, zero)| -scale * zero).collect();
                Ok(bytes_of(spread(&biases, matrix, group), dtype))
            }
            (Part::Scales | Part::Biases, _) => {
                Ok(files.read_tensor(&matrix.scales)?.read_bytes(<[u8]>::to_vec)?)
            }
            (Part::Values, _) => Ok(bytes_of(matrix.values(files)?.into_iter(), dtype)),
        }
    }
}

/// A value for each group of so many columns, of `values` for each group of the file.
fn spread<'a>(
    values: &'a [f32],
    matrix: &Packed,
    group: usize,
) -> impl Iterator<Item = f32> + use<'a> {
    let (groups, count, size) = (matrix.groups(), matrix.columns / group, matrix.group);
    let row = move |values: &'a [f32]| (0..count).map(move |at| values[at * group / size]);
    values.chunks_exact(groups).flat_map(row)
}

fn bytes_of(values: impl Iterator<Item = f32>, dtype: Dtype) -> Vec<u8> {
    match dtype {
        Dtype::F16 => values.flat_map(|value| f16::from_f32(value).to_le_bytes()).collect(),
        Dtype::Bf16 => values.flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect(),
        _ => values.flat_map(f32::to_le_bytes).collect(),
    }
}

fn words(array: &Array) -> Result<Vec<u32>> {
    Ok(array.read_bytes(|bytes| bytes.chunks_exact(4).map(little).collect())?)
}

fn little(four: &[u8]) -> u32 {
    four.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte))
}

/// The numbers of a tensor of floats, those of 8 bits too.
fn floats(files: &ModelFiles, header: &TensorHeader) -> Result<Vec<f32>> {
    let array = files.read_tensor(header)?;
    let array = match header.is_fp8 {
        true => ops::from_fp8(&array, Dtype::F32)?,
        false => ops::astype(&array, Dtype::F32)?,
    };
    Ok(array.to_vec_f32()?)
}

/// The group of each column, each below `groups`.
///
/// # Errors
/// One that is not.
pub(super) fn indices(
    files: &ModelFiles,
    header: &TensorHeader,
    groups: usize,
) -> Result<Vec<usize>> {
    let words = words(&files.read_tensor(header)?)?;
    let group = |word: u32| Some(word as usize).filter(|group| *group < groups);
    let found: Option<Vec<usize>> = words.into_iter().map(group).collect();
    found.ok_or_else(|| {
        Error::model(format!("has columns of groups that it does not have; there are {groups}"))
    })
}

fn fp4(code: u32) -> f32 {
    let value = FP4[(code & 7) as usize];
    if code & 8 == 0 { value } else { -value }
}
