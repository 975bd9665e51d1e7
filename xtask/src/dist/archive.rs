//! A folder as an archive: equal folders give equal bytes.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use tar::{Builder, HeaderMode};

/// Packs `folder` under its own name into `file`, and writes the hash beside it as `sha256sum`
/// does. Returns the hash.
pub fn write(folder: &Path, file: &Path) -> Result<String> {
    let name = folder.file_name().context("the folder has a name")?;
    let out = File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
    let mut archive = Builder::new(GzEncoder::new(out, Compression::best()));
    archive.mode(HeaderMode::Deterministic);
    let mut paths = Vec::new();
    walk(folder, &mut paths)?;
    paths.sort();
    for path in paths {
        let inside = Path::new(name).join(path.strip_prefix(folder)?);
        archive.append_path_with_name(&path, inside)?;
    }
    archive.into_inner()?.finish()?.flush()?;
    let hash = sha256(file)?;
    let name = file.file_name().unwrap_or_default().display();
    let beside = PathBuf::from(format!("{}.sha256", file.display()));
    fs::write(&beside, format!("{hash}  {name}\n"))
        .with_context(|| format!("cannot write {}", beside.display()))?;
    Ok(hash)
}

/// Unpacks an archive into a folder.
pub fn unpack(file: &Path, into: &Path) -> Result<()> {
    let file = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    tar::Archive::new(flate2::read::GzDecoder::new(file)).unpack(into)?;
    Ok(())
}

fn sha256(file: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    std::io::copy(&mut File::open(file)?, &mut hash)?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// All files below a folder.
fn walk(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { walk(&path, paths)? } else { paths.push(path) }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_folders_give_equal_archives_that_unpack_to_them() {
        let dir = tempfile::tempdir().unwrap();
        let hash = |number: u32| {
            let folder = dir.path().join(number.to_string()).join("ml-1");
            fs::create_dir_all(folder.join("bin")).unwrap();
            fs::write(folder.join("README"), "read").unwrap();
            fs::write(folder.join("bin/ml"), "program").unwrap();
            let file = folder.with_extension("tar.gz");
            let hash = write(&folder, &file).unwrap();
            let beside = fs::read_to_string(format!("{}.sha256", file.display())).unwrap();
            assert_eq!(beside, format!("{hash}  ml-1.tar.gz\n"));
            let into = dir.path().join("unpacked");
            unpack(&file, &into).unwrap();
            assert_eq!(fs::read_to_string(into.join("ml-1/bin/ml")).unwrap(), "program");
            hash
        };
        assert_eq!(hash(1), hash(2));
    }
}
