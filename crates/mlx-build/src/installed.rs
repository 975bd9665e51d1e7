//! An MLX that somebody installed, or that was just compiled: is it one, and which?

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::{Error, Linkage, MLX_VERSION};

/// The folder in `root` that holds the library; it need not be there yet.
///
/// Distributions differ: it is `lib`, or `lib64`.
pub(crate) fn lib_dir(root: &Path, linkage: &Linkage) -> PathBuf {
    let lib64 = root.join("lib64");
    if lib64.join(linkage.library).is_file() { lib64 } else { root.join("lib") }
}

/// Checks that `root` holds MLX in the right version; returns its library.
pub(crate) fn check(root: &Path, linkage: &Linkage) -> Result<PathBuf, Error> {
    let library = lib_dir(root, linkage).join(linkage.library);
    let header = root.join("include/mlx/version.h");
    if let Some(file) = [&library, &header].into_iter().find(|file| !file.is_file()) {
        return Err(Error::MissingFile {
            file: file.strip_prefix(root).unwrap_or(file).to_owned(),
            folder: root.to_owned(),
            remedy: "name a folder with the `lib` and `include` of an installed MLX, \
                     or have it fetched: unset MLX_ROOT, leave away --from-source",
        });
    }
    let text = fs::read_to_string(&header).map_err(Error::io("read", &header))?;
    let found = version_in(&text);
    if found == MLX_VERSION {
        Ok(library)
    } else {
        Err(Error::WrongVersion { root: root.to_owned(), found })
    }
}

/// Identity of a library's build: its size and age.
pub(crate) fn identity(library: &Path) -> Result<String, Error> {
    let metadata = fs::metadata(library).map_err(Error::io("read", library))?;
    let modified = metadata.modified().map_err(Error::io("read", library))?;
    let age = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{} bytes, {} ns", metadata.len(), age.as_nanos()))
}

/// The version that MLX's `version.h` states.
fn version_in(header: &str) -> String {
    let number = |name: &str| {
        let mut lines = header.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|words| words.len() == 3 && words[1] == name);
        line.map_or("?".to_owned(), |words| words[2].to_owned())
    };
    ["MLX_VERSION_MAJOR", "MLX_VERSION_MINOR", "MLX_VERSION_PATCH"].map(number).join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(root: &Path, lib: &str, patch: u32) {
        fs::create_dir_all(root.join(lib)).unwrap();
        fs::create_dir_all(root.join("include/mlx")).unwrap();
        fs::write(root.join(lib).join("libmlx.so"), "library").unwrap();
        let header = format!(
            "#define MLX_VERSION_MAJOR 0\n#define MLX_VERSION_MINOR 32\n\
             #define MLX_VERSION_PATCH {patch}\n#define MLX_VERSION_NUMERIC \\\n  (1 * MLX_VERSION_MAJOR)\n"
        );
        fs::write(root.join("include/mlx/version.h"), header).unwrap();
    }

    fn linux() -> &'static Linkage {
        Linkage::of("linux").unwrap()
    }

    #[test]
    fn an_installed_mlx_is_found_in_lib_or_lib64() {
        for lib in ["lib", "lib64"] {
            let root = tempfile::tempdir().unwrap();
            install(root.path(), lib, 2);
            let library = check(root.path(), linux()).unwrap();
            assert_eq!(library, root.path().join(lib).join("libmlx.so"));
        }
    }

    #[test]
    fn another_version_is_refused_with_both_versions() {
        let root = tempfile::tempdir().unwrap();
        install(root.path(), "lib", 3);
        let text = check(root.path(), linux()).unwrap_err().to_string();
        assert!(text.contains("0.32.3") && text.contains("0.32.2"), "{text}");
    }

    #[test]
    fn a_folder_that_is_no_mlx_is_refused_with_what_it_lacks() {
        let root = tempfile::tempdir().unwrap();
        let text = check(root.path(), linux()).unwrap_err().to_string();
        assert!(text.contains("lib/libmlx.so") && text.contains("MLX_ROOT"), "{text}");
    }

    #[test]
    fn a_replaced_library_has_another_identity() {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("libmlx.so");
        fs::write(&library, "one").unwrap();
        let before = identity(&library).unwrap();
        assert_eq!(identity(&library).unwrap(), before);
        fs::write(&library, "three").unwrap();
        assert_ne!(identity(&library).unwrap(), before);
    }
}
