//! The prebuilt MLX: downloaded, checked against its pinned hash, unpacked.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::python::Python;
use crate::{Error, Platform};

/// Downloads a wheel, checks it and unpacks it into `dist`, an empty folder.
pub(crate) fn fetch(wheel: &Platform, python: &Python, dist: &Path) -> Result<(), Error> {
    let downloads = dist.join("download");
    fs::create_dir_all(&downloads).map_err(Error::io("create", &downloads))?;
    let file = python.download(wheel, &downloads)?;
    check_hash(&file, wheel.sha256)?;
    python.unzip(&file, dist)?;
    fs::remove_dir_all(&downloads).map_err(Error::io("remove", &downloads))?;
    if let Some(bundle) = wheel.bundle {
        gather(dist, bundle, wheel.linkage.library)?;
    }
    match wheel.missing_file(dist) {
        None => Ok(()),
        Some(file) => Err(Error::MissingFile {
            file: file.into(),
            folder: dist.to_owned(),
            remedy: "the pinned wheel must have it, so the unpacking went wrong: run again",
        }),
    }
}

/// Deletes the wheel and says so when its hash is not `expected`.
fn check_hash(file: &Path, expected: &str) -> Result<(), Error> {
    let found = sha256(file).map_err(Error::io("read", file))?;
    if found == expected {
        return Ok(());
    }
    fs::remove_file(file).map_err(Error::io("remove", file))?;
    let wheel = file.file_name().unwrap_or_default().display().to_string();
    Err(Error::WrongHash { wheel, found, expected: expected.to_owned() })
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..n]);
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Moves the libraries that the wheel keeps in `bundle` beside MLX's own, and tells it so.
///
/// MLX looks for them in `$ORIGIN/../../<bundle>`, a folder that nobody would think of
/// when copying the library beside an installed program. Afterwards `mlx/lib` is
/// complete in itself, wherever it is copied to.
fn gather(dist: &Path, bundle: &str, library: &str) -> Result<(), Error> {
    let (lib, from) = (dist.join("mlx/lib"), dist.join(bundle));
    let entries = fs::read_dir(&from).map_err(Error::io("list", &from))?;
    for entry in entries {
        let entry = entry.map_err(Error::io("list", &from))?;
        let moved = fs::rename(entry.path(), lib.join(entry.file_name()));
        moved.map_err(Error::io("move", &entry.path()))?;
    }
    fs::remove_dir(&from).map_err(Error::io("remove", &from))?;

    let library = lib.join(library);
    let mut bytes = fs::read(&library).map_err(Error::io("read", &library))?;
    if !search_beside_itself(&mut bytes, bundle) {
        return Err(Error::UnknownLayout { library, bundle: bundle.to_owned() });
    }
    fs::write(&library, bytes).map_err(Error::io("write", &library))
}

/// Rewrites the rpath entry for `bundle` to `$ORIGIN`; whether there was exactly one.
///
/// The length stays, as every offset in the file depends on it: slashes fill the rest.
fn search_beside_itself(library: &mut [u8], bundle: &str) -> bool {
    let entry = format!("$ORIGIN/../../{bundle}");
    let places = library.windows(entry.len()).enumerate();
    let found: Vec<usize> =
        places.filter(|(_, window)| *window == entry.as_bytes()).map(|(at, _)| at).collect();
    let [at] = found[..] else { return false };
    library[at + "$ORIGIN".len()..at + entry.len()].fill(b'/');
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_with_another_hash_is_refused_and_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mlx-1-py3-none-any.whl");
        fs::write(&file, "abc").unwrap();
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        check_hash(&file, known).unwrap();
        let error = check_hash(&file, &"0".repeat(64)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("mlx-1-py3-none-any.whl") && text.contains(known), "{text}");
        assert!(!file.exists());
    }

    #[test]
    fn bundled_libraries_move_beside_the_library_that_needs_them() {
        let dist = tempfile::tempdir().unwrap();
        let dist = dist.path();
        fs::create_dir_all(dist.join("mlx/lib")).unwrap();
        fs::create_dir(dist.join("mlx_cpu.libs")).unwrap();
        fs::write(dist.join("mlx_cpu.libs/libblas.so"), "blas").unwrap();
        let before = b"\0$ORIGIN/../../nvidia/lib:$ORIGIN/../../mlx_cpu.libs\0next";
        fs::write(dist.join("mlx/lib/libmlx.so"), before).unwrap();

        gather(dist, "mlx_cpu.libs", "libmlx.so").unwrap();

        assert!(dist.join("mlx/lib/libblas.so").exists());
        assert!(!dist.join("mlx_cpu.libs").exists());
        let after = fs::read(dist.join("mlx/lib/libmlx.so")).unwrap();
        let expected = b"\0$ORIGIN/../../nvidia/lib:$ORIGIN///////////////////\0next";
        assert_eq!(after, expected);
    }

    #[test]
    fn a_library_without_the_expected_rpath_is_left_alone() {
        let mut twice = *b"$ORIGIN/../../x.libs $ORIGIN/../../x.libs";
        assert!(!search_beside_itself(&mut twice, "x.libs"));
        assert!(!search_beside_itself(&mut b"$ORIGIN".to_vec(), "x.libs"));
    }
}
