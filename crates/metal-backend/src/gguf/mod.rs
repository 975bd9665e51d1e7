//! Models in files of GGUF: what stands for their `config.json` and their tokenizer's files, and
//! their tensors under the names and in the forms that other checkpoints have.
//!
//! Weights whose blocks are affine groups of 32 keep their codes: the scale of a group stays, and
//! its bias is the value of code 0. So do those in groups of 16 where there are kernels for them.
//! Others become numbers of the model's type.

mod blocks;
mod config;
mod cuts;
mod ends;
mod families;
mod file_type;
mod metadata;
mod names;
mod order;
mod parts;
mod pieces;
mod reader;
mod small;
mod tokenizer;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use mlx_ffi::Dtype;

pub(crate) use self::blocks::Groups;
use self::metadata::{Factors, Metadata};
pub(crate) use self::pieces::GgufTensor;
use self::pieces::{Piece, ROTATIONS, pieces};
use self::reader::{Header, Stored};
use crate::error::{Error, Result, load};

/// A file whose header was read, with those of the files that follow it.
#[derive(Debug)]
pub(crate) struct Gguf {
    pub path: PathBuf,
    /// Its name for the way in which its weights are quantised, such as `Q4_K_M`.
    pub file_type: String,
    /// The files, this one first.
    parts: Vec<PathBuf>,
    /// The texts that stand for files of other checkpoints, by name.
    texts: BTreeMap<&'static str, String>,
    /// The tensors, one behind the other as if in a file of their own.
    tensors: Vec<GgufTensor>,
    /// By the place where a tensor begins there.
    pieces: BTreeMap<u64, Piece>,
}

impl Gguf {
    /// Returns true when `path` has the extension of GGUF.
    pub fn is_named(path: &Path) -> bool {
        path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"))
    }

    /// The only file of GGUF in `folder`, or the first of the only model, where it has no
    /// `config.json`; none where there is no such file.
    ///
    /// # Errors
    /// Several files, by name.
    pub fn within(folder: &Path) -> Result<Option<PathBuf>> {
        let Ok(entries) = fs::read_dir(folder) else { return Ok(None) };
        if folder.join("config.json").exists() {
            return Ok(None);
        }
        let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        let mut found: Vec<PathBuf> =
            paths.filter(|path| inference_core::is_gguf_model(path)).collect();
        found.sort();
        if found.len() > 1 {
            let names = found.iter().filter_map(|path| path.file_name()?.to_str());
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(load(
                folder,
                format!("has several files of GGUF, of which one is a model: name one of {names}"),
            ));
        }
        Ok(found.pop())
    }

    /// Reads the header of the file at `path`, and those of the files that follow it. Weights that
    /// can be packed in `groups` are. Numbers are given out as `dtype`, or in the type that suits
    /// the file: where a type is asked for, none is rounded to another one before.
    ///
    /// # Errors
    /// A file that is damaged or truncated; an architecture, a tokenizer or a kind of weights that
    /// is not known, by name.
    pub fn open(path: &Path, groups: Groups, dtype: Option<Dtype>) -> Result<Gguf> {
        let (mut file, header) = Gguf::read(path, groups, dtype)?;
        file.texts.extend(tokenizer::texts(&header).map_err(|error| error.at(path))?);
        Ok(file)
    }

    /// A file that is opened without making its tokenizer, which takes most of the time.
    ///
    /// # Errors
    /// As [`open`](Self::open), but for what is wrong with the vocabulary.
    pub fn outline(path: &Path, groups: Groups, dtype: Option<Dtype>) -> Result<Gguf> {
        Ok(Gguf::read(path, groups, dtype)?.0)
    }

    /// The file without its tokenizer, and its header.
    fn read(path: &Path, groups: Groups, dtype: Option<Dtype>) -> Result<(Gguf, Header)> {
        let read = || {
            let (parts, header) = parts::read(path)?;
            let mut factors = Factors::default();
            for name in ROTATIONS {
                if let Some(stored) = header.tensors.get(name) {
                    factors.insert(name, numbers(&parts[stored.part], stored)?);
                }
            }
            let family = families::of(&header)?;
            for name in family.constants {
                factors.insert(name, vec![constant(&parts, &header, name)?]);
            }
            let metadata = Metadata::of(&header, family, &factors)?;
            let (tensors, pieces) = pieces(&metadata, groups, dtype)?;
            let texts = BTreeMap::from([("config.json", config::text(&metadata, &pieces)?)]);
            let pieces = tensors.iter().map(|tensor: &GgufTensor| tensor.start).zip(pieces);
            let (path, pieces) = (path.to_owned(), pieces.collect());
            let file_type = file_type::file_type(&header);
            Ok((Gguf { path, file_type, parts, texts, tensors, pieces }, header))
        };
        read().map_err(|error: Error| error.at(path))
    }

    /// The files that the model lies in.
    pub fn paths(&self) -> &[PathBuf] {
        &self.parts
    }

    /// The text that stands for the file `name`.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// The names of what stands for files.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.texts.keys().copied()
    }

    /// The tensors.
    pub fn tensors(&self) -> &[GgufTensor] {
        &self.tensors
    }

    /// The bytes of the tensor that begins at `start`, the first `length` or more of them.
    ///
    /// # Errors
    /// A file that cannot be read, or that shrank.
    pub fn bytes(&self, start: u64, length: usize) -> Result<Vec<u8>> {
        let piece =
            self.pieces.get(&start).ok_or_else(|| load(&self.path, "has no such tensor"))?;
        let mut bytes = vec![0; piece.needed(length)];
        let path = &self.parts[piece.stored.part];
        let file = File::open(path).map_err(|error| load(path, error))?;
        file.read_exact_at(&mut bytes, piece.stored.start).map_err(|error| load(path, error))?;
        Ok(piece.converted(&bytes))
    }
}

/// The number that all values of the tensor `name` of all layers are.
///
/// # Errors
/// Values that differ; no such tensor.
fn constant(parts: &[PathBuf], header: &Header, name: &str) -> Result<f32> {
    let is_it = |found: &str| {
        let tensor = found.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        tensor.is_some_and(|(_, tensor)| tensor == name)
    };
    let mut found: Option<f32> = None;
    for (own, stored) in header.tensors.iter().filter(|(own, _)| is_it(own)) {
        for value in numbers(&parts[stored.part], stored)? {
            if *found.get_or_insert(value) != value {
                return Err(Error::model(format!("`{own}` has several values; one works")));
            }
        }
    }
    found.ok_or_else(|| Error::model(format!("has no tensor `blk.0.{name}`")))
}

/// The numbers of a small tensor.
fn numbers(path: &Path, stored: &Stored) -> Result<Vec<f32>> {
    const MOST: u64 = 1 << 16;
    if stored.bytes > MOST {
        return Err(Error::model(format!(
            "has {} bytes of factors; at most {MOST} work",
            stored.bytes
        )));
    }
    let mut bytes = vec![0; stored.bytes as usize];
    let file = File::open(path).map_err(|error| Error::model(error.to_string()))?;
    file.read_exact_at(&mut bytes, stored.start)
        .map_err(|error| Error::model(error.to_string()))?;
    let mut factors = Vec::new();
    for block in bytes.chunks_exact(stored.kind.block().1 as usize) {
        stored.kind.values(block, |value| factors.push(value));
    }
    Ok(factors)
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Array, QuantMode, Quantization, Quantized, dequantize, use_device};

    use super::*;

    #[test]
    fn packed_weights_are_the_numbers_that_they_become_elsewhere() {
        use_device(mlx_ffi::Device::Cpu).expect("a CPU is always there");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf/k_quants.gguf");
        let [packed, plain] = [Groups::OfSixteen, Groups::OfMlx]
            .map(|groups| Gguf::open(&path, groups, None).expect("it"));
        let array = |file: &Gguf, name: &str| {
            let found = file.tensors().iter().find(|tensor| tensor.name == name)?;
            let bytes = file.bytes(found.start, found.bytes as usize).expect("it is read");
            Some(Array::from_bytes(&bytes, &found.shape, found.dtype).expect("an array"))
        };
        let mut bits_found = Vec::new();
        for tensor in plain.tensors() {
            let Some(module) = tensor.name.strip_suffix(".weight") else { continue };
            let part = |name: &str| array(&packed, &format!("{module}.{name}"));
            let (Some(scales), None) = (part("scales"), array(&plain, &format!("{module}.scales")))
            else {
                continue;
            };
            let weight = part("weight").expect("codes");
            let last = |array: &Array| *array.shape().last().expect("a matrix");
            let (mode, group_size) = (QuantMode::Affine, 16);
            let bits = last(&weight) * 32 / (last(&scales) * group_size);
            let biases = part("biases");
            let quantization = Quantization { mode, bits, group_size };
            let packed = Quantized { weight, scales, biases, quantization };
            let found = dequantize(&packed, Dtype::F32).expect("weights");
            let expected = array(&plain, &tensor.name).expect("numbers");
            assert_eq!(found.shape(), expected.shape(), "{module}");
            let expected = mlx_ffi::ops::astype(&expected, Dtype::F32).expect("numbers");
            let [found, expected] = [found, expected].map(|a| a.to_vec_f32().expect("numbers"));
            // The scales of this file are exact, and numbers of 16 bits are not.
            let is_near =
                |(found, plain): (&f32, &f32)| (found - plain).abs() <= found.abs() / 2048.0 + 1e-7;
            assert!(found.iter().zip(&expected).all(is_near), "{module}");
            bits_found.push(bits);
        }
        bits_found.sort_unstable();
        bits_found.dedup();
        assert_eq!(bits_found, [2, 3, 6]);
    }
}
