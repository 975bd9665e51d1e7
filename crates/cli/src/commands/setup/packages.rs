//! Python packages with libraries: fetched by pip, or used where Python has them.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::bytes;
use crate::cuda;
use crate::failure::{Failure, Result, at};
use crate::output::note;
use crate::signals::Signals;

/// The packages, with versions and hashes.
const PACKAGES: &str = include_str!("cuda-packages.txt");
/// Folders of the packages that are used.
const FOLDERS: [&str; 3] = ["mlx", "mlx_cuda_13.libs", "nvidia"];
/// Bytes that packages take at most while they are fetched and unpacked.
pub const ROOM: u64 = 6 << 30;

/// Lets pip install the packages into `folder`, from `wheels` alone where that is a folder.
pub fn fetch(python: &Path, wheels: Option<&Path>, folder: &Path, signals: &Signals) -> Result<()> {
    let list = folder.join("packages.txt");
    fs::write(&list, PACKAGES).map_err(at(&list))?;
    // pip unpacks there first; the system's own folder for such files may be small.
    let unpacked = folder.join("unpacked");
    fs::create_dir(&unpacked).map_err(at(&unpacked))?;
    let mut command = Command::new(python);
    command
        .args(["-m", "pip", "install", "--no-deps", "--require-hashes", "--only-binary=:all:"])
        .args(["--no-compile", "--no-input", "--disable-pip-version-check", "--target"])
        .arg(folder)
        .arg("--requirement")
        .arg(&list)
        .env("TMPDIR", &unpacked)
        .stdin(Stdio::null())
        // What a command prints on stdout is its result, and this one has none.
        .stdout(io::stderr());
    if let Some(wheels) = wheels {
        command.arg("--no-index").arg("--find-links").arg(wheels);
    }
    note("fetching MLX for CUDA and NVIDIA's libraries, about 1.6 GB");
    let child = command.spawn().map_err(|error| {
        Failure::Other(format!(
            "{}: {error}: install Python 3 with pip, or name one with --python",
            python.display()
        ))
    })?;
    let status = signals.wait(child).map_err(at(python))?;
    if signals.came() {
        return Err(Failure::Interrupted);
    }
    if !status.success() {
        let python = python.display();
        let reason = format!("`{python} -m pip` failed, as it says above; nothing was set up");
        return Err(Failure::Other(reason));
    }
    fs::remove_dir_all(&unpacked).map_err(at(&unpacked))?;
    complete(folder)
}

/// Links the packages that are installed in `installed`.
pub fn link(installed: &Path, folder: &Path) -> Result<()> {
    let installed = fs::canonicalize(installed).map_err(at(installed))?;
    complete(&installed)?;
    for name in FOLDERS {
        symlink(installed.join(name), folder.join(name)).map_err(at(folder))?;
    }
    Ok(())
}

/// Refuses a `folder` that lacks a package, or has another release of MLX than this program needs.
fn complete(folder: &Path) -> Result<()> {
    let of_release = format!("mlx_cuda_13-{}.dist-info", cuda::MLX);
    let files = [of_release.as_str(), "mlx/lib/libmlx.so"];
    match files.into_iter().chain(FOLDERS).find(|name| !folder.join(name).exists()) {
        None => Ok(()),
        Some(missing) => Err(Failure::Other(format!(
            "{}: there is no {missing}: mlx-cuda-13=={} with what it depends on is wanted",
            folder.display(),
            cuda::MLX
        ))),
    }
}

/// Refuses a disk with fewer bytes free than `needed`.
pub fn room(folder: &Path, needed: u64) -> Result<()> {
    let Ok(disk) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free >= needed {
        return Ok(());
    }
    Err(Failure::Other(format!(
        "{}: {} are needed for a while and {} are free: free some, set XDG_DATA_HOME to another \
         disk, or try it with --force",
        folder.display(),
        bytes::human(needed),
        bytes::human(free)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_has_a_version_and_a_hash_for_both_processors() {
        let lines = PACKAGES.replace("\\\n", " ");
        let packages: Vec<&str> = lines.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(packages.len(), 7);
        for package in packages {
            assert_eq!(package.matches("--hash=sha256:").count(), 2, "{package}");
            assert!(package.contains("=="), "{package}");
        }
        assert!(PACKAGES.contains(&format!("mlx-cuda-13=={}", cuda::MLX)));
    }

    #[test]
    fn a_disk_that_is_too_full_is_told() {
        let folder = tempfile::tempdir().unwrap();
        room(folder.path(), 0).unwrap();
        let told = room(folder.path(), u64::MAX).unwrap_err().to_string();
        assert!(told.contains("XDG_DATA_HOME") && told.contains("--force"), "{told}");
    }

    #[test]
    fn packages_that_are_not_all_there_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join("from").join(name);
        for name in ["mlx/lib", "nvidia", "mlx_cuda_13-0.1.0.dist-info"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("mlx/lib/libmlx.so"), "").unwrap();
        let to = folder.path().join("to");
        fs::create_dir(&to).unwrap();
        let refused = || link(&at(""), &to).unwrap_err().to_string();
        assert!(refused().contains(&format!("mlx-cuda-13=={}", cuda::MLX)), "{}", refused());
        fs::create_dir(at(&format!("mlx_cuda_13-{}.dist-info", cuda::MLX))).unwrap();
        assert!(refused().contains("mlx_cuda_13.libs"), "{}", refused());
        fs::create_dir(at("mlx_cuda_13.libs")).unwrap();
        link(&at(""), &to).unwrap();
        assert!(cuda::library(&to).exists());
    }
}
