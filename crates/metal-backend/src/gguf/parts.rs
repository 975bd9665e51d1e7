//! Models in several files: `NAME-00001-of-00003.gguf` and those that follow.

use std::path::{Path, PathBuf};

use super::reader::{Header, MAX_TENSORS, Value};
use crate::error::{Error, Result};

/// The files of the model whose first one lies at `path`, and what they say together.
///
/// # Errors
/// A file that is not the first; another part that is missing, damaged or of another model.
pub(super) fn read(path: &Path) -> Result<(Vec<PathBuf>, Header)> {
    let mut header = Header::read(path)?;
    let count = number(&header, "split.count")?;
    if count < 2 {
        return Ok((vec![path.to_owned()], header));
    }
    let called =
        path.file_name().and_then(|name| name.to_str()).and_then(|name| called(name, count));
    let called = called.ok_or_else(|| {
        Error::model(format!(
            "is one of {count} files of a model, which are called `NAME-00001-of-{count:05}.gguf` and so on"
        ))
    })?;
    let place = |at: u64| path.with_file_name(format!("{called}-{:05}-of-{count:05}.gguf", at + 1));
    let own = number(&header, "split.no")?;
    if own != 0 {
        return Err(Error::model(format!(
            "is file {} of {count} of a model: name the first one, {}",
            own + 1,
            place(0).display()
        )));
    }
    let mut paths = vec![path.to_owned()];
    for at in 1..count {
        let path = place(at);
        let mut of_part = || -> Result<()> {
            let part = Header::read(&path)?;
            if (number(&part, "split.no")?, number(&part, "split.count")?) != (at, count) {
                return Err(Error::model(format!("is not file {} of {count} of a model", at + 1)));
            }
            let tensors = header.tensors.len() + part.tensors.len();
            if tensors as u64 > MAX_TENSORS {
                return Err(Error::model(format!(
                    "has {tensors} tensors with those before; at most {MAX_TENSORS} work"
                )));
            }
            for (name, mut stored) in part.tensors {
                stored.part = at as usize;
                if header.tensors.insert(name.clone(), stored).is_some() {
                    return Err(Error::model(format!(
                        "tensor `{name}` is in an earlier file, too"
                    )));
                }
            }
            Ok(())
        };
        of_part().map_err(|error| Error::model(format!("{}: {error}", path.display())))?;
        paths.push(path);
    }
    let (found, told) = (header.tensors.len() as u64, number(&header, "split.tensors.count")?);
    if told != 0 && told != found {
        return Err(Error::model(format!("has {found} tensors in its files, and says {told}")));
    }
    Ok((paths, header))
}

/// The name of a file that is one of `count`, without the numbers at its end.
fn called(name: &str, count: u64) -> Option<&str> {
    let before = name.strip_suffix(&format!("-of-{count:05}.gguf"))?;
    let (called, number) = before.rsplit_once('-')?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(called)
}

/// A whole number of the metadata; 0 where there is none.
fn number(header: &Header, key: &str) -> Result<u64> {
    const MOST: u64 = 99_999;
    match header.metadata.get(key) {
        None => Ok(0),
        Some(Value::Unsigned(number)) if *number <= MOST => Ok(*number),
        Some(Value::Signed(number)) if (0..=MOST as i64).contains(number) => Ok(*number as u64),
        Some(other) => {
            Err(Error::model(format!("`{key}` is {other}, expected a number up to {MOST}")))
        }
    }
}
