//! A part of a prefix as it lies in a file: a header, then the arrays' bytes one behind the other.

use std::io::Read;

use mlx_ffi::{Array, Dtype};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::buffer::{BLOCK, Parts};
use super::rope_factors::RopeFactors;
use crate::error::{Error, Result};

/// How a file begins: what it is, and in which form.
const MAGIC: &[u8; 8] = b"mlprefx1";

/// The types that a layer can hold.
const DTYPES: [(&str, Dtype); 5] = [
    ("F32", Dtype::F32),
    ("F16", Dtype::F16),
    ("BF16", Dtype::Bf16),
    ("U32", Dtype::U32),
    ("U8", Dtype::U8),
];

/// The kind of a part of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Part {
    /// The keys and values of the last blocks, from this one on.
    Blocks { first: usize },
    /// The state behind the last id.
    State { is_passing: bool },
}

/// A part of a prefix.
pub(crate) struct Stored {
    /// From the root to the part's end.
    pub ids: Vec<u32>,
    pub(super) factors: RopeFactors,
    pub(super) part: Part,
    pub(super) layers: Vec<Parts>,
}

/// The origin of a part: the ids to its end, and the blocks before it.
pub(super) struct Origin {
    /// From the root to the part's end.
    pub ids: Vec<u32>,
    pub has_long_factors: bool,
    /// How many blocks must be there before it.
    pub first: usize,
}

impl Origin {
    /// Reads no more than the header of a file of so many `bytes`; `None` where something else is
    /// there.
    pub fn read(file: &mut dyn Read, bytes: u64) -> Option<Origin> {
        let (mut magic, mut length) = ([0; MAGIC.len()], [0; 8]);
        file.read_exact(&mut magic).ok()?;
        file.read_exact(&mut length).ok()?;
        let length = Some(u64::from_le_bytes(length)).filter(|length| *length <= bytes)?;
        let mut header = vec![0; usize::try_from(length).ok().filter(|_| magic == *MAGIC)?];
        file.read_exact(&mut header).ok()?;
        let Header { ids, has_long_factors, part, .. } = serde_json::from_slice(&header).ok()?;
        let first = match part {
            Part::Blocks { first } => first,
            Part::State { .. } => ids.len() / BLOCK,
        };
        Some(Origin { ids, has_long_factors, first })
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    ids: Vec<u32>,
    has_long_factors: bool,
    part: Part,
    /// Each layer's arrays: their types and shapes.
    layers: Vec<Vec<(String, Vec<i32>)>>,
}

impl Stored {
    /// Returns true for the state behind the last id.
    pub fn is_state(&self) -> bool {
        matches!(self.part, Part::State { .. })
    }

    /// How many layers it is of.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// A name that parts of other prefixes do not have.
    pub fn name(&self) -> String {
        let kind = match self.part {
            Part::Blocks { first } => format!("blocks {first}"),
            Part::State { .. } => "state".to_owned(),
        };
        let mut digest = Sha256::new();
        digest.update(format!("{kind} {:?} {}\n", self.factors, self.ids.len()));
        for id in &self.ids {
            digest.update(id.to_le_bytes());
        }
        hex(&digest.finalize()[..16])
    }

    /// Hands out all bytes, in order.
    ///
    /// # Errors
    /// Those of `write`; what failed as an array was computed.
    pub fn write(&self, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let described = |array: &Array| {
            let known = DTYPES.iter().find(|(_, dtype)| *dtype == array.dtype());
            let (name, _) = known.ok_or_else(|| {
                Error::model(format!("a layer holds {:?}, which is not written", array.dtype()))
            })?;
            Ok(((*name).to_owned(), array.shape().to_vec()))
        };
        let of_layer = |parts: &Parts| parts.iter().map(described).collect::<Result<_>>();
        let header = Header {
            ids: self.ids.clone(),
            has_long_factors: self.factors == RopeFactors::Long,
            part: self.part,
            layers: self.layers.iter().map(of_layer).collect::<Result<_>>()?,
        };
        let header =
            serde_json::to_vec(&header).map_err(|error| Error::model(error.to_string()))?;
        write(MAGIC)?;
        write(&(header.len() as u64).to_le_bytes())?;
        write(&header)?;
        for array in self.layers.iter().flatten() {
            array.read_bytes(|bytes| write(bytes))??;
        }
        Ok(())
    }

    /// Reads what [`write`](Self::write) wrote; `None` where something else is there.
    pub fn read(bytes: &[u8]) -> Option<Stored> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (header, mut data) = rest.split_at_checked(length)?;
        let header: Header = serde_json::from_slice(header).ok()?;
        let mut layers = Vec::new();
        for described in &header.layers {
            let mut parts = Parts::new();
            for (name, shape) in described {
                let (_, dtype) = DTYPES.iter().find(|(known, _)| known == name)?;
                let size = |all: usize, one: &i32| all.checked_mul(usize::try_from(*one).ok()?);
                let bytes = shape.iter().try_fold(dtype.size(), size)?;
                let (own, behind) = data.split_at_checked(bytes)?;
                parts.push(Array::from_bytes(own, shape, *dtype).ok()?);
                data = behind;
            }
            layers.push(parts);
        }
        let factors = if header.has_long_factors { RopeFactors::Long } else { RopeFactors::Short };
        let fits = match header.part {
            Part::Blocks { first } => first < header.ids.len() / BLOCK,
            Part::State { .. } => true,
        };
        let is_whole = data.is_empty() && header.ids.len().is_multiple_of(BLOCK) && fits;
        let Header { ids, part, .. } = header;
        is_whole.then_some(Stored { ids, factors, part, layers })
    }
}

/// Bytes as digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
