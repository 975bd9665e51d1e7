//! The entries of a zip file that keeps them as they are, read with bounds.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes of the list of entries, and entries, at most; torch writes one for each tensor.
const MAX_DIRECTORY: u64 = 64 << 20;
const MAX_ENTRIES: u64 = 1 << 18;
/// The record at the end of a file, and the longest comment behind it.
const END: usize = 22;
const MAX_COMMENT: u64 = 65_535;
/// The fixed parts of an entry in the list, of one before its bytes, and of the larger records.
const LISTED: usize = 46;
const LOCAL: usize = 30;
const LOCATOR: usize = 20;
const END_64: usize = 56;

/// The place of each entry's bytes in the file, by its name.
pub(super) fn entries(file: &File, size: u64) -> Result<BTreeMap<String, Range<u64>>, String> {
    let directory = directory(file, size)?;
    let listed = read(file, directory.bytes.clone(), size, "the list of entries")?;
    let mut rest = &listed[..];
    let mut places: Vec<(Range<u64>, String)> = Vec::new();
    let mut found = BTreeMap::new();
    for at in 0..directory.count {
        let entry = Entry::take(&mut rest).ok_or_else(|| {
            format!("the list of entries ends in entry {at} of {}", directory.count)
        })?;
        let name = entry.name.clone();
        if entry.is_encrypted {
            return Err(format!("the entry `{name}` is encrypted"));
        }
        if entry.method != 0 || entry.stored != entry.size {
            return Err(format!("the entry `{name}` is compressed, which torch does not do"));
        }
        let whole = bytes_of(file, &entry.name, entry.at, entry.size, directory.bytes.start)?;
        places.push((entry.at..whole.end, name.clone()));
        if found.insert(name.clone(), whole).is_some() {
            return Err(format!("the entry `{name}` is there twice"));
        }
    }
    places.sort_by_key(|(place, _)| (place.start, place.end));
    match places.windows(2).find(|pair| pair[1].0.start < pair[0].0.end) {
        Some([(_, one), (_, other)]) => Err(format!("the entries `{one}` and `{other}` overlap")),
        _ => Ok(found),
    }
}

/// The place of the list of entries, and their number.
struct Directory {
    bytes: Range<u64>,
    count: u64,
}

fn directory(file: &File, size: u64) -> Result<Directory, String> {
    let none = || "has no list of entries at its end: it is truncated, or no zip file".to_owned();
    let tail = size.min(MAX_COMMENT + END as u64);
    let bytes = read(file, size - tail..size, size, "the end")?;
    let last = bytes.len().checked_sub(END).ok_or_else(none)?;
    let at = (0..=last).rev().find(|at| {
        let comment = u16_at(&bytes, at + 20).map(usize::from);
        bytes[*at..].starts_with(b"PK\x05\x06") && comment == Some(last - at)
    });
    let at = at.ok_or_else(none)?;
    let end = size - tail + at as u64;
    let mut count = u64::from(u16_at(&bytes, at + 10).unwrap_or_default());
    let mut length = u64::from(u32_at(&bytes, at + 12).unwrap_or_default());
    let mut start = u64::from(u32_at(&bytes, at + 16).unwrap_or_default());
    if let Some(locator) = end.checked_sub(LOCATOR as u64) {
        let locator = read(file, locator..end, size, "the end")?;
        if locator.starts_with(b"PK\x06\x07") {
            let at = u64_at(&locator, 8).unwrap_or_default();
            let record = at..at.checked_add(END_64 as u64).ok_or_else(none)?;
            let record = read(file, record, size, "the record of a large file")?;
            if !record.starts_with(b"PK\x06\x06") {
                return Err("the record of a large file is not where it should be".into());
            }
            count = u64_at(&record, 32).unwrap_or_default();
            length = u64_at(&record, 40).unwrap_or_default();
            start = u64_at(&record, 48).unwrap_or_default();
        }
    }
    if length > MAX_DIRECTORY || count > MAX_ENTRIES {
        return Err(format!(
            "has {count} entries in a list of {length} bytes, at most {MAX_ENTRIES} and \
             {MAX_DIRECTORY} are read"
        ));
    }
    match start.checked_add(length).filter(|stop| *stop <= end) {
        Some(stop) => Ok(Directory { bytes: start..stop, count }),
        None => Err(format!("the list of entries reaches beyond byte {end}, where it ends")),
    }
}

/// An entry of the list.
struct Entry {
    name: String,
    method: u16,
    is_encrypted: bool,
    stored: u64,
    size: u64,
    /// The place of the record before its bytes.
    at: u64,
}

impl Entry {
    /// Takes an entry off the front of the list.
    fn take(rest: &mut &[u8]) -> Option<Entry> {
        let fixed = rest.get(..LISTED).filter(|fixed| fixed.starts_with(b"PK\x01\x02"))?;
        let length = |at: usize| u16_at(fixed, at).map(usize::from);
        let (name, extra, comment) = (length(28)?, length(30)?, length(32)?);
        let mut stored = u64::from(u32_at(fixed, 20)?);
        let mut size = u64::from(u32_at(fixed, 24)?);
        let mut at = u64::from(u32_at(fixed, 42)?);
        let text = rest.get(LISTED..LISTED + name)?;
        let mut extras = rest.get(LISTED + name..LISTED + name + extra)?;
        while extras.len() >= 4 {
            let (kind, length) = (u16_at(extras, 0)?, usize::from(u16_at(extras, 2)?));
            let mut values = extras.get(4..4 + length)?;
            if kind == 1 {
                for value in [&mut size, &mut stored, &mut at] {
                    if *value == u64::from(u32::MAX) {
                        *value = u64_at(values, 0)?;
                        values = &values[8..];
                    }
                }
            }
            extras = &extras[4 + length..];
        }
        let entry = Entry {
            name: str::from_utf8(text).ok()?.to_owned(),
            method: u16_at(fixed, 10)?,
            is_encrypted: u16_at(fixed, 8)? & 1 != 0,
            stored,
            size,
            at,
        };
        *rest = rest.get(LISTED + name + extra + comment..)?;
        Some(entry)
    }
}

/// The place of an entry's bytes, which its record `at` precedes; all of it lies before `end`.
fn bytes_of(file: &File, name: &str, at: u64, size: u64, end: u64) -> Result<Range<u64>, String> {
    let beyond = || format!("the entry `{name}` reaches beyond byte {end}, where the entries end");
    let head = at.checked_add(LOCAL as u64).filter(|head| *head <= end).ok_or_else(beyond)?;
    let record = read(file, at..head, end, "a record")?;
    let (Some(name_length), Some(extra)) = (u16_at(&record, 26), u16_at(&record, 28)) else {
        return Err(beyond());
    };
    if !record.starts_with(b"PK\x03\x04") {
        return Err(format!("the entry `{name}` is not at byte {at}, where the list has it"));
    }
    let start = head + u64::from(name_length) + u64::from(extra);
    let stop = start.checked_add(size).filter(|stop| *stop <= end).ok_or_else(beyond)?;
    let named = read(file, head..head + u64::from(name_length), end, "a name")?;
    match named == name.as_bytes() {
        true => Ok(start..stop),
        false => Err(format!("the entry `{name}` has another name before its bytes")),
    }
}

/// The bytes of a part of a file of `size` bytes; a part of bounded length.
pub(super) fn read(file: &File, part: Range<u64>, size: u64, of: &str) -> Result<Vec<u8>, String> {
    if part.end > size || part.start > part.end {
        return Err(format!("{of} reaches from byte {} to {}, of {size}", part.start, part.end));
    }
    let mut bytes = vec![0; (part.end - part.start) as usize];
    file.read_exact_at(&mut bytes, part.start).map_err(|error| format!("{of}: {error}"))?;
    Ok(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
