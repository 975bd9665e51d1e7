//! How much room a disk has.

use std::path::Path;

use crate::{Error, Result};

/// Refuses what does not fit: `need` bytes into `folder`, or into the folder of those above it that
/// is there.
///
/// # Errors
/// [`Error::NoRoom`] with both numbers.
pub fn check(folder: &Path, need: u64) -> Result<()> {
    // Where the system does not tell, writing will.
    let there = folder.ancestors().find(|folder| folder.exists());
    let Some(Ok(disk)) = there.map(rustix::fs::statvfs) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if need <= free {
        return Ok(());
    }
    Err(Error::NoRoom { folder: folder.to_owned(), need, free })
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_no_disk_holds_is_refused_with_the_numbers() {
        let folder = tempfile::tempdir().unwrap();
        super::check(&folder.path().join("not/there"), 1).unwrap();
        let error = super::check(folder.path(), u64::MAX).unwrap_err().to_string();
        assert!(error.contains("18446744073709551615 bytes are to come"), "{error}");
    }
}
