//! The weight files of a model: which they are, and that their headers are sound.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use mlx_ffi::{Array, Dtype, Quantization};
use safetensors::SafeTensors;
use safetensors::tensor::Metadata;

use super::cut::Part;
use super::random;
use crate::error::{Result, load};
use crate::files::ModelFiles;
use crate::gguf::GgufTensor;

/// The header of a safetensors file; the largest released ones take a few MiB.
const MAX_HEADER_BYTES: u64 = 100 << 20;

/// Makes a tensor of others as it is read.
pub(super) trait Make: Debug + Send + Sync {
    /// The bytes of all of it, where numbers are given out as `dtype`.
    ///
    /// # Errors
    /// A file that cannot be read.
    fn bytes(&self, files: &ModelFiles, dtype: Dtype) -> Result<Vec<u8>>;

    /// Returns true for one that is given out in any type of floats.
    fn has_any_dtype(&self) -> bool;

    /// The packing of the matrix whose codes it is.
    fn quantization(&self) -> Option<Quantization>;
}

/// The maker of a tensor, which is equal to itself alone.
#[derive(Clone, Debug)]
struct Made(Arc<dyn Make>);

impl PartialEq for Made {
    fn eq(&self, other: &Made) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Made {}

/// A tensor's entry in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorHeader {
    pub dtype: Dtype,
    /// Its bytes are floats of 8 bits (e4m3), of which MLX has no type.
    pub is_fp8: bool,
    /// Its bytes are exponents of two (e8m0), of which MLX has no type.
    pub is_e8m0: bool,
    pub shape: Vec<i32>,
    /// The file that holds it; of a random tensor, its name.
    file: String,
    /// The bytes of all of it in the file.
    bytes: Range<u64>,
    /// The part that is read, where that is not all; `shape` is that of the part then.
    pub(super) part: Option<Part>,
    /// It lies in no file as it is, but is made of others.
    made: Option<Made>,
}

impl TensorHeader {
    /// One that lies in no file.
    pub fn of(shape: &[i32], dtype: Dtype) -> TensorHeader {
        TensorHeader {
            dtype,
            is_fp8: false,
            is_e8m0: false,
            shape: shape.to_vec(),
            file: String::new(),
            bytes: 0..0,
            part: None,
            made: None,
        }
    }

    /// One that is made of others as it is read.
    pub(super) fn made(shape: &[i32], dtype: Dtype, by: Arc<dyn Make>) -> TensorHeader {
        let header = TensorHeader::of(shape, dtype);
        let bytes = 0..header.bytes_as(None);
        TensorHeader { bytes, made: Some(Made(by)), ..header }
    }

    /// One that lies in a file as it is.
    pub(super) fn in_file(
        shape: &[i32],
        dtype: Dtype,
        file: &str,
        bytes: Range<u64>,
    ) -> TensorHeader {
        TensorHeader { bytes, file: file.to_owned(), ..TensorHeader::of(shape, dtype) }
    }

    /// One that is made of what lies in a file, or random under a name.
    pub(super) fn of_file(self, file: &str) -> TensorHeader {
        TensorHeader { file: file.to_owned(), ..self }
    }

    /// The packing of the matrix whose codes it is, where its maker knows.
    pub fn quantization(&self) -> Option<Quantization> {
        self.made.as_ref()?.0.quantization()
    }

    /// Returns true for one that is made in the type in which it is asked for.
    pub fn has_any_dtype(&self) -> bool {
        self.made.as_ref().is_some_and(|made| made.0.has_any_dtype())
    }

    /// The tensor in this type, where it is made in any.
    pub(super) fn in_dtype(&self, dtype: Dtype) -> TensorHeader {
        let header = self.clone();
        if !self.has_any_dtype() {
            return header;
        }
        let bytes = 0..self.whole().bytes_as(Some(dtype));
        TensorHeader { dtype, bytes, ..header }
    }

    /// The file that holds it.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// So many words of it, `at` of `all` equal distances from its beginning; those at the end of
    /// it where they would reach beyond.
    pub fn words_at(&self, words: u64, at: u64, all: u64) -> TensorHeader {
        let size = (self.bytes.end - self.bytes.start) / 4;
        let words = words.min(size);
        let first = (size / all.max(1) * at).min(size - words);
        let start = self.bytes.start + first * 4;
        let bytes = start..start + words * 4;
        TensorHeader { dtype: Dtype::U32, shape: vec![words as i32], bytes, ..self.clone() }
    }

    /// `part` of it, which is of `shape`.
    pub fn with_part(self, shape: &[i32], part: Option<Part>) -> TensorHeader {
        TensorHeader { shape: shape.to_vec(), part, ..self }
    }

    /// All of it, where only a part was to be read.
    pub fn whole(&self) -> TensorHeader {
        let shape = self.part.as_ref().map_or(&self.shape, |part| &part.whole).clone();
        TensorHeader { shape, part: None, ..self.clone() }
    }

    /// How many values it has.
    pub fn elements(&self) -> u64 {
        self.shape.iter().map(|&dim| dim as u64).product()
    }

    /// Bytes in memory, held as `dtype` where it is given.
    pub fn bytes_as(&self, dtype: Option<Dtype>) -> u64 {
        self.elements() * dtype.unwrap_or(self.dtype).size() as u64
    }
}

impl ModelFiles {
    /// The headers of the tensors in one file, by name.
    ///
    /// # Errors
    /// A missing or damaged file.
    pub fn headers_in(&self, name: &str) -> Result<BTreeMap<String, TensorHeader>> {
        let path = self.path(name);
        if !self.exists(name) {
            let is_there = matches!(self, ModelFiles::Folder(_)) && path.exists();
            return Err(load(
                &path,
                if is_there { "is not a file" } else { "the file is missing" },
            ));
        }
        let tensors = self.header(name)?.tensors(&path, name)?;
        Ok(tensors.into_iter().collect())
    }

    fn header(&self, name: &str) -> Result<Header> {
        let path = self.path(name);
        match self {
            ModelFiles::Folder(_) => read_header(&path),
            ModelFiles::Embedded(_) => {
                let (length, metadata) = SafeTensors::read_metadata(self.embedded(name))
                    .map_err(|error| load(&path, error))?;
                Ok(Header { total: None, data_start: 8 + length as u64, metadata })
            }
            ModelFiles::Gguf(_) | ModelFiles::Random(_) => {
                Err(load(&path, "no file of safetensors has these weights"))
            }
        }
    }

    /// The headers of all tensors, by name.
    ///
    /// # Errors
    /// No weight files; a damaged file; a tensor in two files.
    pub fn headers(&self) -> Result<BTreeMap<String, TensorHeader>> {
        if matches!(self, ModelFiles::Random(_)) {
            return Ok(BTreeMap::new());
        }
        if let ModelFiles::Gguf(file) = self {
            let tensors = file.tensors().iter();
            return Ok(tensors.map(|tensor| (tensor.name.clone(), of_gguf(tensor))).collect());
        }
        self.found_headers()
    }

    /// Returns true when two tensors have one type, one shape, and the same words at many places.
    /// The last words are among them. All of them would take as long as a load.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn look_alike(&self, one: &TensorHeader, other: &TensorHeader) -> Result<bool> {
        const PLACES: u64 = 64;
        const WORDS: u64 = 512;
        if (one.dtype, &one.shape) != (other.dtype, &other.shape) {
            return Ok(false);
        }
        for at in 0..=PLACES {
            let words = |tensor: &TensorHeader| -> Result<Vec<u32>> {
                Ok(self.read_tensor(&tensor.words_at(WORDS, at, PLACES))?.to_vec_u32()?)
            };
            if words(one)? != words(other)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a tensor.
    ///
    /// It is read into the memory that MLX will use, never held twice. MLX's own reader passes over
    /// what goes wrong on disk and leaves the memory as it found it; here a file that shrank or a
    /// disk that fails is an error.
    ///
    /// # Errors
    /// A file that cannot be read, or that changed since its header was read.
    pub fn read_tensor(&self, tensor: &TensorHeader) -> Result<Array> {
        let TensorHeader { dtype, shape, file, bytes, part, .. } = tensor;
        if let Some(made) = &tensor.made {
            let all = made.0.bytes(self, *dtype)?;
            let size = tensor.elements() as usize * dtype.size();
            let segments = part.as_ref().map(|part| part.segments(bytes.start, dtype.size()));
            let segments = segments.unwrap_or_else(|| vec![(bytes.start, size)]);
            return of_segments(&all, 0, &segments, shape, *dtype);
        }
        let path = self.path(file);
        let segments = part.as_ref().map(|part| part.segments(bytes.start, dtype.size()));
        match self {
            ModelFiles::Folder(_) => {
                let file = fs::File::open(&path).map_err(|error| load(&path, error))?;
                let array = match segments {
                    None => Array::read(&file, bytes.start, shape, *dtype),
                    Some(segments) => Array::read_segments(&file, &segments, shape, *dtype),
                };
                array.map_err(|error| load(&path, error))
            }
            ModelFiles::Embedded(_) => {
                let size: usize = shape.iter().map(|&dim| dim as usize).product();
                let segments = segments.unwrap_or_else(|| vec![(bytes.start, size * dtype.size())]);
                of_segments(self.embedded(file), 0, &segments, shape, *dtype)
            }
            ModelFiles::Gguf(file) => {
                let size: usize = shape.iter().map(|&dim| dim as usize).product();
                let segments = segments.unwrap_or_else(|| vec![(bytes.start, size * dtype.size())]);
                let end = segments.iter().map(|(at, length)| at + *length as u64).max();
                let length = end.map_or(0, |end| end.saturating_sub(bytes.start));
                let made = file.bytes(bytes.start, length as usize)?;
                of_segments(&made, bytes.start, &segments, shape, *dtype)
            }
            ModelFiles::Random(_) => random::tensor(file, shape, *dtype),
        }
    }
}

/// The array of `segments` of `data`, which begins at `start`.
fn of_segments(
    data: &[u8],
    start: u64,
    segments: &[(u64, usize)],
    shape: &[i32],
    dtype: Dtype,
) -> Result<Array> {
    let part = |&(at, length): &(u64, usize)| {
        let at = (at - start) as usize;
        data.get(at..at + length).expect("the header was checked against the file's size")
    };
    let parts: Vec<&[u8]> = segments.iter().map(part).collect();
    Ok(match parts[..] {
        [whole] => Array::from_bytes(whole, shape, dtype)?,
        _ => Array::from_bytes(&parts.concat(), shape, dtype)?,
    })
}

/// The header's entry for a tensor of GGUF.
fn of_gguf(tensor: &GgufTensor) -> TensorHeader {
    TensorHeader {
        dtype: tensor.dtype,
        is_fp8: false,
        is_e8m0: false,
        shape: tensor.shape.clone(),
        file: String::new(),
        bytes: tensor.start..tensor.start + tensor.bytes,
        part: None,
        made: None,
    }
}

struct Header {
    /// The bytes that the tensors must take in the file, where that is not known already.
    total: Option<u64>,
    /// The place of the first tensor in the file.
    data_start: u64,
    metadata: Metadata,
}

impl Header {
    fn tensors(&self, path: &Path, file: &str) -> Result<Vec<(String, TensorHeader)>> {
        if let Some(total) = self.total {
            let needed = self.metadata.data_len() as u64;
            if needed != total {
                return Err(load(
                    path,
                    format!(
                        "the header describes {needed} bytes of tensors, the file has {total}: it is truncated or damaged"
                    ),
                ));
            }
        }
        let tensors = self.metadata.tensors();
        tensors
            .iter()
            .map(|(name, info)| {
                let (dtype, shape) = dtype_and_shape(name, info.dtype, &info.shape, path)?;
                let (start, end) = info.data_offsets;
                let bytes = self.data_start + start as u64..self.data_start + end as u64;
                let file = file.to_owned();
                let is_fp8 = info.dtype == safetensors::Dtype::F8_E4M3;
                let is_e8m0 = info.dtype == safetensors::Dtype::F8_E8M0;
                let (part, made) = (None, None);
                let header =
                    TensorHeader { dtype, is_fp8, is_e8m0, shape, file, bytes, part, made };
                Ok((name.clone(), header))
            })
            .collect()
    }
}

/// Reads and checks the header of a file without its tensors.
fn read_header(path: &Path) -> Result<Header> {
    let data = fs::metadata(path).map_err(|error| load(path, error))?;
    // Asked before it is opened: opening a pipe waits for its other end.
    if !data.is_file() {
        return Err(load(path, "is not a file"));
    }
    let size = data.len();
    let mut file = fs::File::open(path).map_err(|error| load(path, error))?;
    let mut length = [0; 8];
    let truncated = |_| load(path, format!("the file has only {size} bytes: it is truncated"));
    file.read_exact(&mut length).map_err(truncated)?;
    if &length == b"version " {
        return Err(load(
            path,
            "is a pointer of git-lfs, not the weights: fetch them with `git lfs pull`, or the model with `ml pull`",
        ));
    }
    let length = u64::from_le_bytes(length);
    let rest = size.saturating_sub(8);
    if length > rest.min(MAX_HEADER_BYTES) {
        return Err(load(
            path,
            format!(
                "the header takes {length} bytes, the file has {rest} after its length: it is truncated or no safetensors file"
            ),
        ));
    }
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes).map_err(|error| load(path, error))?;
    if bytes.len() as u64 != length {
        return Err(load(path, "the file ends within its header: it is truncated"));
    }
    let metadata = serde_json::from_slice(&bytes)
        .map_err(|error| load(path, format!("the header is damaged: {error}")))?;
    Ok(Header { total: Some(rest - length), data_start: 8 + length, metadata })
}

fn dtype_and_shape(
    name: &str,
    dtype: safetensors::Dtype,
    shape: &[usize],
    path: &Path,
) -> Result<(Dtype, Vec<i32>)> {
    use safetensors::Dtype as St;
    let dtype = match dtype {
        St::BOOL => Dtype::Bool,
        St::U8 | St::F8_E4M3 | St::F8_E8M0 => Dtype::U8,
        St::I8 => Dtype::I8,
        St::I16 => Dtype::I16,
        St::U16 => Dtype::U16,
        St::F16 => Dtype::F16,
        St::BF16 => Dtype::Bf16,
        St::I32 => Dtype::I32,
        St::U32 => Dtype::U32,
        St::F32 => Dtype::F32,
        St::I64 => Dtype::I64,
        St::U64 => Dtype::U64,
        other => {
            return Err(load(
                path,
                format!("tensor `{name}` has the type {other:?}, which MLX does not read"),
            ));
        }
    };
    let shape: Option<Vec<i32>> = shape.iter().map(|&dim| i32::try_from(dim).ok()).collect();
    let shape =
        shape.ok_or_else(|| load(path, format!("tensor `{name}` has a dimension over 2³¹ - 1")))?;
    Ok((dtype, shape))
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;

    use super::*;
    use crate::error::Error;

    #[test]
    fn a_file_that_shrinks_after_its_header_was_read_is_an_error() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let path = folder.path().join("model.safetensors");
        let view = TensorView::new(safetensors::Dtype::F32, vec![2], &[0, 0, 128, 63, 0, 0, 0, 64]);
        let bytes = safetensors::serialize([("a", view.expect("eight bytes"))], None);
        let bytes = bytes.expect("a name and a tensor");
        fs::write(&path, &bytes).expect("a writable folder");
        let files = ModelFiles::Folder(folder.path().to_owned());
        let headers = files.headers().expect("a sound file");
        let values = || files.read_tensor(&headers["a"])?.to_vec_f32().map_err(Error::from);
        assert_eq!(values().expect("a sound file"), [1.0, 2.0]);
        fs::write(&path, &bytes[..bytes.len() - 1]).expect("a writable folder");
        let error = values().expect_err("the last byte is gone").to_string();
        assert!(error.contains("model.safetensors"), "{error}");
    }
}
