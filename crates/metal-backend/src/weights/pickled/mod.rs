//! Weights that `torch.save` wrote: a zip file of a pickle and of the tensors' bytes.
//!
//! Nothing of a pickle is run: see [`pickle`]. Tensors that lie in the file as they are given out
//! are read from it like those of safetensors; others are gathered as they are read.

mod pickle;
mod zip;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use mlx_ffi::{Dtype, Quantization};

use self::pickle::{Kind, Tensor};
use super::source::{Make, TensorHeader};
use crate::error::{Result, load};
use crate::files::ModelFiles;

/// Bytes of a pickle, at most: a name and a few sizes for each tensor.
const MAX_PICKLE: u64 = 64 << 20;
/// The first bytes of files from before torch 1.6, and of any pickle of protocols 2 to 5.
const PICKLE: u8 = 0x80;

/// Returns true for the name of a file that may have been written by `torch.save`.
pub(super) fn is_named(name: &str) -> bool {
    [".bin", ".pth", ".pt"].iter().any(|end| name.ends_with(end))
}

/// The headers of the tensors in the file `name`, at `path`.
///
/// # Errors
/// A file that cannot be read, or that `torch.save` of a dictionary of tensors would not write.
pub(super) fn headers(path: &Path, name: &str) -> Result<BTreeMap<String, TensorHeader>> {
    let data = fs::metadata(path).map_err(|error| load(path, error))?;
    // Asked before it is opened: opening a pipe waits for its other end.
    if !data.is_file() {
        return Err(load(path, "is not a file"));
    }
    let file = File::open(path).map_err(|error| load(path, error))?;
    read(&file, data.len(), name).map_err(|reason| load(path, reason))
}

fn read(
    file: &File,
    size: u64,
    name: &str,
) -> std::result::Result<BTreeMap<String, TensorHeader>, String> {
    let mut first = [0; 8];
    let length = first.len().min(size as usize);
    file.read_exact_at(&mut first[..length], 0).map_err(|error| error.to_string())?;
    if &first == b"version " {
        return Err(
            "is a pointer of git-lfs, not the weights: fetch them with `git lfs pull`, or \
                    the model with `ml pull`"
                .into(),
        );
    }
    if first[0] == PICKLE {
        return Err(
            "is in the form of torch before 1.6, which is not read: load it with torch and \
                    save it again, best as safetensors"
                .into(),
        );
    }
    let entries = zip::entries(file, size)?;
    let mut pickles = entries.iter().filter_map(|(entry, place)| {
        let root = entry.strip_suffix("data.pkl")?;
        (root.is_empty() || root.ends_with('/')).then_some((root, place))
    });
    let (root, place) =
        pickles.next().ok_or("has no entry `data.pkl`: torch.save did not write it")?;
    if pickles.next().is_some() {
        return Err("has several entries `data.pkl`".into());
    }
    if let Some(order) = entries.get(&format!("{root}byteorder")) {
        let end = order.end.min(order.start + 16);
        let order = zip::read(file, order.start..end, size, "`byteorder`")?;
        if order.trim_ascii() != b"little" {
            return Err("its numbers are not little-endian, which is not read".into());
        }
    }
    let length = place.end - place.start;
    if length > MAX_PICKLE {
        return Err(format!("its pickle has {length} bytes, at most {MAX_PICKLE} are read"));
    }
    let pickle = zip::read(file, place.clone(), size, "`data.pkl`")?;
    let tensors = pickle::tensors(&pickle).map_err(|reason| format!("its pickle: {reason}"))?;
    let mut headers = BTreeMap::new();
    for (tensor, found) in tensors {
        let key = &found.storage.key;
        let storage = entries.get(&format!("{root}data/{key}"));
        let place = storage.ok_or_else(|| format!("its storage `{key}` is not in the file"));
        let header = place.and_then(|storage| header(&found, storage, name));
        let header = header.map_err(|reason| format!("tensor `{tensor}`: {reason}"))?;
        // As Python's dictionaries have it, the last one of a name counts.
        headers.insert(tensor, header);
    }
    Ok(headers)
}

/// The header of a tensor whose storage lies at `storage` in the file.
fn header(
    tensor: &Tensor,
    storage: &Range<u64>,
    file: &str,
) -> std::result::Result<TensorHeader, String> {
    let Tensor { storage: of, offset, shape, strides } = tensor;
    let (size, there) = (of.kind.size(), storage.end - storage.start);
    if of.elements.checked_mul(size).is_none_or(|needed| needed > there) {
        return Err(format!(
            "its storage `{}` has {there} bytes, too few for {} numbers of {size}",
            of.key, of.elements
        ));
    }
    if shape.len() != strides.len() {
        return Err(format!("has {} sizes and {} strides", shape.len(), strides.len()));
    }
    let dims: Option<Vec<i32>> = shape.iter().map(|&dim| i32::try_from(dim).ok()).collect();
    let dims = dims.ok_or("has a dimension over 2³¹ - 1")?;
    let count = shape.iter().try_fold(1_u64, |count, dim| count.checked_mul(*dim));
    let bytes = count.and_then(|count| count.checked_mul(8)).filter(|bytes| *bytes < 1 << 62);
    bytes.ok_or("is larger than any memory")?;
    let is_empty = count == Some(0);
    if count.is_some_and(|count| count > of.elements) {
        return Err(format!(
            "of shape {shape:?} has its storage's {} numbers several times, which is not read",
            of.elements
        ));
    }
    // The number behind the last one.
    let reach = shape.iter().zip(strides).try_fold(*offset, |reach, (dim, stride)| {
        reach.checked_add(dim.saturating_sub(1).checked_mul(*stride)?)
    });
    let end = match is_empty {
        true => Some(*offset),
        false => reach.and_then(|reach| reach.checked_add(1)),
    };
    let end = end.filter(|end| *end <= of.elements).ok_or_else(|| {
        format!(
            "of shape {shape:?}, strides {strides:?} and offset {offset} reaches beyond its \
             storage of {} numbers",
            of.elements
        )
    })?;
    let place = storage.start + offset * size..storage.start + end * size;
    let dtype = match of.kind {
        Kind::F64 | Kind::F32 => Dtype::F32,
        Kind::F16 => Dtype::F16,
        Kind::Bf16 => Dtype::Bf16,
        Kind::I64 => Dtype::I64,
        Kind::I32 => Dtype::I32,
        Kind::I16 => Dtype::I16,
        Kind::I8 => Dtype::I8,
        Kind::U8 => Dtype::U8,
        Kind::Bool => Dtype::Bool,
    };
    if of.kind != Kind::F64 && (is_empty || is_in_turn(shape, strides)) {
        return Ok(TensorHeader::in_file(&dims, dtype, file, place));
    }
    let gathered = Gathered {
        file: file.to_owned(),
        place,
        kind: of.kind,
        shape: shape.clone(),
        strides: strides.clone(),
    };
    Ok(TensorHeader::made(&dims, dtype, Arc::new(gathered)).of_file(file))
}

/// Returns true where numbers lie one behind the other, as in safetensors.
fn is_in_turn(shape: &[u64], strides: &[u64]) -> bool {
    let mut next = 1;
    shape.iter().zip(strides).rev().all(|(dim, stride)| {
        let fits = *dim == 1 || *stride == next;
        next *= dim;
        fits
    })
}

/// A tensor whose numbers do not lie in turn, or are given out in another type.
#[derive(Debug)]
struct Gathered {
    file: String,
    /// The bytes from its first number to its last one.
    place: Range<u64>,
    kind: Kind,
    shape: Vec<u64>,
    strides: Vec<u64>,
}

impl Make for Gathered {
    fn bytes(&self, files: &ModelFiles, _: Dtype) -> Result<Vec<u8>> {
        let path = files.path(&self.file);
        let at_fault = |error| load(&path, error);
        let file = File::open(&path).map_err(at_fault)?;
        let length = file.metadata().map_err(at_fault)?.len();
        let stored = zip::read(&file, self.place.clone(), length, "a tensor");
        let stored = stored.map_err(|reason| load(&path, reason))?;
        let size = self.kind.size() as usize;
        let count: u64 = self.shape.iter().product();
        let mut made = Vec::with_capacity(count as usize * size);
        let mut at = vec![0; self.shape.len()];
        let mut place = 0;
        for _ in 0..count {
            let number = &stored[place as usize * size..][..size];
            match self.kind {
                Kind::F64 => {
                    let number = f64::from_le_bytes(number.try_into().expect("eight bytes"));
                    made.extend((number as f32).to_le_bytes());
                }
                _ => made.extend(number),
            }
            // The next place: the last dimension first, as one counts.
            for dim in (0..at.len()).rev() {
                at[dim] += 1;
                place += self.strides[dim];
                if at[dim] < self.shape[dim] {
                    break;
                }
                place -= self.strides[dim] * self.shape[dim];
                at[dim] = 0;
            }
        }
        Ok(made)
    }

    fn has_any_dtype(&self) -> bool {
        false
    }

    fn quantization(&self) -> Option<Quantization> {
        None
    }
}

#[cfg(test)]
mod tests;
