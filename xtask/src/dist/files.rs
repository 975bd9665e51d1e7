//! Files of an archive, copied from where they were made.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Copies one file.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = fs::copy(from, to);
    copied.with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Copies a folder's files and folders, links as what they point to.
pub fn copy_all(from: &Path, to: &Path, wanted: &dyn Fn(&Path) -> bool) -> Result<()> {
    fs::create_dir_all(to)?;
    let entries = fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))?;
    for entry in entries {
        let path = entry?.path();
        let place = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_all(&path, &place, wanted)?;
        } else if wanted(&path) {
            copy(&path, &place)?;
        }
    }
    Ok(())
}
