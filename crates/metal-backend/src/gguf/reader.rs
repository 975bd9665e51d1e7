//! The header of a GGUF file: its metadata, and where its tensors lie.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::Path;

use super::blocks::Kind;
use crate::error::{Error, Result};

/// Bytes that tensors begin at multiples of, where the file does not say.
const ALIGNMENT: u64 = 32;

/// The most that may stand before the tensors: vocabularies take a few MiB. All texts together are
/// no longer.
const MAX_HEADER_BYTES: u64 = 100 << 20;

/// The most values that all lists of a header may have: vocabularies take a million. A value takes
/// 32 bytes, so lists take 128 MiB.
const MAX_LISTED: u64 = 1 << 22;

/// The most keys of metadata: files have a hundred. A key with its value takes some 100 bytes
/// beside its text.
const MAX_ENTRIES: u64 = 1 << 14;

/// The most tensors of a model, in all of its files together: 10,000 layers have some 20 each. What
/// is known of a tensor takes some 200 bytes, and some 200 for each of the up to three that it
/// becomes.
pub(super) const MAX_TENSORS: u64 = 1 << 18;

/// The most bytes of a tensor's name, and of a key: llama.cpp has 63 and 65,535.
const MAX_NAME_BYTES: usize = 255;
const MAX_KEY_BYTES: usize = 65_535;

/// The largest alignment: files have 32, some have a page.
const MAX_ALIGNMENT: u64 = 1 << 30;

/// Lists within lists, which no file has.
const MAX_DEPTH: usize = 4;

/// A value of the metadata. In messages it is as long as a line at most.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Flag(bool),
    Text(String),
    List(Vec<Value>),
}

impl Value {
    /// A whole number from 0 on.
    pub fn whole(&self) -> Option<u64> {
        match self {
            Value::Unsigned(number) => Some(*number),
            Value::Signed(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(number) => write!(f, "{number}"),
            Value::Signed(number) => write!(f, "{number}"),
            Value::Float(number) => write!(f, "{number}"),
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Text(text) => write!(f, "`{}`", shown(text)),
            Value::List(values) => write!(f, "a list of {} values", values.len()),
        }
    }
}

/// A file's text as messages show it: its beginning, where it is long.
pub(super) fn shown(text: &str) -> Cow<'_, str> {
    const LONGEST: usize = 80;
    if text.len() <= LONGEST {
        return Cow::Borrowed(text);
    }
    let end = (0..=LONGEST).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    Cow::Owned(format!("{}…", &text[..end]))
}

/// A tensor as the file has it.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub kind: Kind,
    /// The outermost dimension first.
    pub shape: Vec<u64>,
    /// The place of its first byte in the file.
    pub start: u64,
    pub bytes: u64,
    /// In which of the model's files it lies.
    pub part: usize,
}

/// The header of a file: its metadata, and a description of each tensor.
#[derive(Debug)]
pub(super) struct Header {
    pub metadata: BTreeMap<String, Value>,
    pub tensors: BTreeMap<String, Stored>,
}

impl Header {
    /// Reads the header of the file at `path`, and checks it against the file's size.
    ///
    /// # Errors
    /// A file that cannot be read, is none of GGUF, or is truncated; a type of tensors that is not
    /// known, by name.
    pub fn read(path: &Path) -> Result<Header> {
        let about = fs::metadata(path).map_err(|error| Error::model(error.to_string()))?;
        if !about.is_file() {
            return Err(Error::model("is no file"));
        }
        let size = about.len();
        let file = File::open(path).map_err(|error| Error::model(error.to_string()))?;
        let mut input = Input {
            file: BufReader::new(file),
            at: 0,
            size: size.min(MAX_HEADER_BYTES),
            listed: 0,
        };
        if &input.array::<4>()? != b"GGUF" {
            return Err(Error::model("does not begin with `GGUF`: it is no GGUF file"));
        }
        let version = input.u32()?;
        if matches!(version.swap_bytes(), 1..=3) {
            return Err(Error::model(
                "has its numbers in big endian; convert the model to GGUF anew, without `--bigendian`",
            ));
        }
        if !matches!(version, 2 | 3) {
            return Err(Error::model(format!(
                "has version {version} of GGUF; 2 and 3 work: convert the model to GGUF anew"
            )));
        }
        let (tensors, entries) = input.counts()?;
        let mut metadata = BTreeMap::new();
        for _ in 0..entries {
            let (name, kind) = (input.name(MAX_KEY_BYTES)?, input.u32()?);
            let value = input.value(kind, 0).map_err(|error| named("metadata", &name, error))?;
            if metadata.insert(name.clone(), value).is_some() {
                return Err(Error::model(format!("metadata `{}` is there twice", shown(&name))));
            }
        }
        let alignment = alignment(&metadata)?;
        let mut found = Vec::new();
        for _ in 0..tensors {
            let name = input.name(MAX_NAME_BYTES)?;
            let stored = input.tensor().map_err(|error| named("tensor", &name, error))?;
            found.push((name, stored));
        }
        let data = input.at.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        let mut all = BTreeMap::new();
        for (name, mut stored) in found {
            let end = data.checked_add(stored.start).and_then(|at| at.checked_add(stored.bytes));
            if !stored.start.is_multiple_of(alignment) || end.is_none_or(|end| end > size) {
                return Err(Error::model(format!(
                    "tensor `{name}` lies at {} and takes {} bytes, the file has {}: it is truncated or damaged",
                    stored.start,
                    stored.bytes,
                    size.saturating_sub(data)
                )));
            }
            stored.start += data;
            if all.insert(name.clone(), stored).is_some() {
                return Err(Error::model(format!("tensor `{name}` is there twice")));
            }
        }
        Ok(Header { metadata, tensors: all })
    }
}

/// The alignment of tensors in the file, in bytes.
fn alignment(metadata: &BTreeMap<String, Value>) -> Result<u64> {
    match metadata.get("general.alignment") {
        None => Ok(ALIGNMENT),
        Some(Value::Unsigned(found)) if found.is_power_of_two() && *found <= MAX_ALIGNMENT => {
            Ok(*found)
        }
        Some(other) => Err(Error::model(format!(
            "`general.alignment` is {other}, expected a power of two up to {MAX_ALIGNMENT}"
        ))),
    }
}

fn named(what: &str, name: &str, error: Error) -> Error {
    Error::model(format!("{what} `{}`: {error}", shown(name)))
}

/// The bytes of a header.
struct Input {
    file: BufReader<File>,
    at: u64,
    /// Of the file, or the most that is read of it.
    size: u64,
    /// Values of the lists so far.
    listed: u64,
}

impl Input {
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.at += bytes.len() as u64;
        let is_read = self.at <= self.size && self.file.read_exact(bytes).is_ok();
        if !is_read {
            return Err(Error::model(format!(
                "has no end of its header within {} bytes: it is truncated or damaged",
                self.size
            )));
        }
        Ok(())
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// How many tensors and keys of metadata follow.
    fn counts(&mut self) -> Result<(u64, u64)> {
        let (tensors, entries) = (self.count(24)?, self.count(13)?);
        for (what, found, most) in
            [("tensors", tensors, MAX_TENSORS), ("keys of metadata", entries, MAX_ENTRIES)]
        {
            if found > most {
                return Err(Error::model(format!("has {found} {what}; at most {most} work")));
            }
        }
        Ok((tensors, entries))
    }

    /// How many things of at least `each` bytes follow: no more than the file has room for.
    fn count(&mut self, each: u64) -> Result<u64> {
        let count = self.u64()?;
        let rest = self.size.saturating_sub(self.at);
        if count.checked_mul(each).is_none_or(|bytes| bytes > rest) {
            return Err(Error::model(format!(
                "says that {count} entries follow, and has {rest} bytes left: it is truncated or damaged"
            )));
        }
        Ok(count)
    }

    fn text(&mut self) -> Result<String> {
        let mut bytes = vec![0; self.count(1)? as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| Error::model("has a text that is not UTF-8"))
    }

    /// A name of so many bytes at most.
    fn name(&mut self, most: usize) -> Result<String> {
        let name = self.text()?;
        if name.len() > most {
            return Err(Error::model(format!(
                "has a name of {} bytes, `{}`; at most {most} work",
                name.len(),
                shown(&name)
            )));
        }
        Ok(name)
    }

    fn value(&mut self, kind: u32, depth: usize) -> Result<Value> {
        Ok(match kind {
            0 => Value::Unsigned(self.array::<1>()?[0].into()),
            1 => Value::Signed(i8::from_le_bytes(self.array()?).into()),
            2 => Value::Unsigned(u16::from_le_bytes(self.array()?).into()),
            3 => Value::Signed(i16::from_le_bytes(self.array()?).into()),
            4 => Value::Unsigned(self.u32()?.into()),
            5 => Value::Signed(i32::from_le_bytes(self.array()?).into()),
            6 => Value::Float(f32::from_le_bytes(self.array()?).into()),
            7 => Value::Flag(self.array::<1>()?[0] != 0),
            8 => Value::Text(self.text()?),
            9 if depth < MAX_DEPTH => {
                let kind = self.u32()?;
                let count = self.count(1)?;
                self.listed = self.listed.saturating_add(count);
                if self.listed > MAX_LISTED {
                    let reason = format!("lists have more than {MAX_LISTED} values together");
                    return Err(Error::model(reason));
                }
                let values = (0..count).map(|_| self.value(kind, depth + 1));
                Value::List(values.collect::<Result<_>>()?)
            }
            10 => Value::Unsigned(self.u64()?),
            11 => Value::Signed(i64::from_le_bytes(self.array()?)),
            12 => Value::Float(f64::from_le_bytes(self.array()?)),
            9 => {
                let reason = format!("has lists within lists, more than {MAX_DEPTH} of them");
                return Err(Error::model(reason));
            }
            other => return Err(Error::model(format!("has the unknown type {other}"))),
        })
    }

    /// A tensor, whose start is counted from the first one.
    fn tensor(&mut self) -> Result<Stored> {
        let dims = self.u32()?;
        if !(1..=4).contains(&dims) {
            return Err(Error::model(format!("has {dims} dimensions; 1 to 4 work")));
        }
        let mut shape = (0..dims).map(|_| self.u64()).collect::<Result<Vec<_>>>()?;
        let kind = Kind::of(self.u32()?)?;
        let start = self.u64()?;
        let (each, size) = kind.block();
        if !shape[0].is_multiple_of(each) {
            return Err(Error::model(format!(
                "has rows of {} values in blocks of {each}",
                shape[0]
            )));
        }
        let values = shape.iter().try_fold(1u64, |all, &dim| all.checked_mul(dim));
        let bytes = values.and_then(|values| (values / each).checked_mul(size));
        let bytes = bytes.ok_or_else(|| Error::model(format!("has the shape {shape:?}")))?;
        shape.reverse();
        Ok(Stored { kind, shape, start, bytes, part: 0 })
    }
}
