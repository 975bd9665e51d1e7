//! The prebuilt MLX: downloaded, checked against its pinned hash, unpacked.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::python::Python;
use crate::{Error, Platform};

/// Downloads the wheel of `platform`, checks it and unpacks it into `dist`, an empty folder.
pub(crate) fn fetch(platform: &Platform, python: &Python, dist: &Path) -> Result<(), Error> {
    let downloads = dist.join("download");
    fs::create_dir_all(&downloads).map_err(Error::io("create", &downloads))?;
    let wheel = python.download(platform, &downloads)?;
    check_hash(&wheel, platform.sha256)?;
    python.unzip(&wheel, dist)?;
    fs::remove_dir_all(&downloads).map_err(Error::io("remove", &downloads))?;
    match platform.missing_file(dist) {
        None => Ok(()),
        Some(file) => Err(Error::MissingFile {
            file: file.into(),
            folder: dist.to_owned(),
            remedy: "the wheel is not what it was when it was pinned; run again",
        }),
    }
}

/// Deletes the wheel and says so when its hash is not `expected`.
fn check_hash(wheel: &Path, expected: &str) -> Result<(), Error> {
    let found = sha256(wheel).map_err(Error::io("read", wheel))?;
    if found == expected {
        return Ok(());
    }
    fs::remove_file(wheel).map_err(Error::io("remove", wheel))?;
    let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Err(Error::WrongHash { wheel: name, found, expected: expected.to_owned() })
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            let digest = hash.finalize();
            return Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        hash.update(&buffer[..n]);
    }
}
