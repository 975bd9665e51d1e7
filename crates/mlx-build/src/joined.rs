//! C++ files that are compiled as two.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// Writes a file into `out` for each half of the C++ files in `folder`, which includes them.
///
/// Most of the time goes to MLX's headers, so they are read twice and not once a file. Names in
/// anonymous namespaces are therefore those of one file only.
///
/// # Errors
/// [`Error::Io`] when the folder cannot be read, or a file cannot be written.
pub fn joined(folder: &Path, out: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::io("read", folder))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut sources = paths.collect::<Result<Vec<_>, _>>().map_err(Error::io("read", folder))?;
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "cpp"));
    sources.sort();
    let name = folder.file_name().unwrap_or_default().display();
    let half = sources.len().div_ceil(2).max(1);
    let halves = sources.chunks(half).enumerate().map(|(index, files)| {
        let includes = files.iter().map(|file| format!("#include \"{}\"\n", file.display()));
        let path = out.join(format!("{name}_{index}.cpp"));
        fs::write(&path, includes.collect::<String>()).map_err(Error::io("write", &path))?;
        Ok(path)
    });
    halves.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::joined;

    #[test]
    fn each_file_of_cpp_is_in_one_of_two_halves() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, out) = (dir.path().join("shim"), dir.path());
        fs::create_dir(&folder).unwrap();
        for name in ["b.cpp", "a.cpp", "a.h", "c.cpp"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let halves = joined(&folder, out).unwrap();
        assert_eq!(halves, [out.join("shim_0.cpp"), out.join("shim_1.cpp")]);
        let texts: Vec<String> =
            halves.iter().map(|half| fs::read_to_string(half).unwrap()).collect();
        let include = |name| format!("#include \"{}\"\n", folder.join(name).display());
        assert_eq!(texts, [include("a.cpp") + &include("b.cpp"), include("c.cpp")]);
        assert!(joined(&dir.path().join("none"), out).unwrap_err().to_string().contains("none"));
    }
}
