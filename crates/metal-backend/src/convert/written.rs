//! The files of the result: shards with their headers, the index, and all that is copied.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use mlx_ffi::{Array, Dtype, saved_order};
use serde_json::{Map, Value, json};

use super::python_json::dump;
use crate::error::{Error, Result, load};

/// No shard is larger, but for one with a single tensor.
const MAX_SHARD_BYTES: u64 = 5 << 30;

/// A tensor of a file: what the header says of it.
#[derive(Clone)]
pub(super) struct Planned {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<i32>,
}

impl Planned {
    pub fn bytes(&self) -> u64 {
        let elements: u64 = self.shape.iter().map(|&size| size as u64).product();
        elements * self.dtype.size() as u64
    }
}

/// The weight files, with a place for each tensor.
pub(super) struct Shards {
    files: Vec<(String, File)>,
    /// By name: the file, where in it, and how many bytes.
    places: BTreeMap<String, (usize, u64, u64)>,
    /// Bytes of all tensors.
    pub total_bytes: u64,
}

impl Shards {
    /// Makes the files in `folder` for tensors in mlx-lm's order, with their headers.
    ///
    /// # Errors
    /// A file that cannot be made; a disk without room.
    pub fn create(folder: &Path, tensors: &[Planned]) -> Result<Shards> {
        let mut shards: Vec<Vec<&Planned>> = Vec::new();
        let mut size = 0;
        for tensor in tensors {
            if shards.is_empty() || size + tensor.bytes() > MAX_SHARD_BYTES {
                shards.push(Vec::new());
                size = 0;
            }
            size += tensor.bytes();
            if let Some(shard) = shards.last_mut() {
                shard.push(tensor);
            }
        }
        let (mut files, mut places) = (Vec::new(), BTreeMap::new());
        let count = shards.len();
        for (index, shard) in shards.into_iter().enumerate() {
            let name = match count {
                1 => "model.safetensors".to_owned(),
                _ => format!("model-{:05}-of-{count:05}.safetensors", index + 1),
            };
            let path = folder.join(&name);
            let names: Vec<&str> = shard.iter().map(|tensor| tensor.name.as_str()).collect();
            let mut header =
                BTreeMap::from([("__metadata__".to_owned(), json!({"format": "mlx"}))]);
            let mut offset = 0;
            let mut laid_out = Vec::new();
            for tensor in saved_order(&names)?.into_iter().map(|place| shard[place]) {
                let end = offset + tensor.bytes();
                let entry = json!({
                    "data_offsets": [offset, end],
                    "dtype": safetensors_name(tensor.dtype),
                    "shape": tensor.shape,
                });
                header.insert(tensor.name.clone(), entry);
                laid_out.push((tensor.name.clone(), offset, tensor.bytes()));
                offset = end;
            }
            let header = serde_json::to_vec(&header).map_err(|error| load(&path, error))?;
            let start = 8 + header.len() as u64;
            let make = || -> std::io::Result<File> {
                let file = File::create_new(&path)?;
                file.set_len(start + offset)?;
                file.write_all_at(&(header.len() as u64).to_le_bytes(), 0)?;
                file.write_all_at(&header, 8)?;
                Ok(file)
            };
            let file = make().map_err(|error| load(&path, error))?;
            for (tensor, offset, bytes) in laid_out {
                places.insert(tensor, (index, start + offset, bytes));
            }
            files.push((name, file));
        }
        let total_bytes = tensors.iter().map(Planned::bytes).sum();
        Ok(Shards { files, places, total_bytes })
    }

    /// Writes one tensor at its place.
    ///
    /// # Errors
    /// Errors from computing it; a tensor of another size than was planned; those of the disk.
    pub fn write(&self, folder: &Path, name: &str, array: &Array) -> Result<()> {
        let &(file, offset, bytes) = self
            .places
            .get(name)
            .ok_or_else(|| Error::model(format!("tensor `{name}` has no place in the files")))?;
        let (file_name, file) = &self.files[file];
        array.read_bytes(|data| {
            if data.len() as u64 != bytes {
                let reason =
                    format!("tensor `{name}` has {} bytes, planned were {bytes}", data.len());
                return Err(Error::model(reason));
            }
            file.write_all_at(data, offset).map_err(|error| load(&folder.join(file_name), error))
        })?
    }

    /// Writes the index, and waits until everything is on the disk.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn finish(self, folder: &Path, parameters: u64) -> Result<()> {
        let file_of = |(name, (file, ..)): (&String, &(usize, u64, u64))| {
            (name.clone(), Value::from(self.files[*file].0.clone()))
        };
        let map: Map<String, Value> = self.places.iter().map(file_of).collect();
        let index = json!({
            "metadata": {"total_size": self.total_bytes, "total_parameters": parameters},
            "weight_map": map,
        });
        write_text(&folder.join("model.safetensors.index.json"), &dump(&index))?;
        for (name, file) in &self.files {
            file.sync_all().map_err(|error| load(&folder.join(name), error))?;
        }
        Ok(())
    }
}

/// Writes a small file.
///
/// # Errors
/// Those of the disk.
pub(super) fn write_text(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| load(path, error))
}

/// The name of a type in a safetensors file.
fn safetensors_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bool => "BOOL",
        Dtype::U8 => "U8",
        Dtype::I8 => "I8",
        Dtype::U16 => "U16",
        Dtype::I16 => "I16",
        Dtype::U32 => "U32",
        Dtype::I32 => "I32",
        Dtype::U64 => "U64",
        Dtype::I64 => "I64",
        Dtype::F16 => "F16",
        Dtype::Bf16 => "BF16",
        Dtype::F32 => "F32",
        Dtype::F64 => "F64",
        Dtype::Complex64 => "C64",
    }
}
