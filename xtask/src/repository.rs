//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The largest file that the repository takes.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// A file of the repository; its path is relative to the root, with `/`.
pub struct File {
    pub path: String,
    pub bytes: u64,
    /// Empty for a file that is too large or no UTF-8.
    pub text: String,
}

impl File {
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    pub fn has_extension(&self, extensions: &[&str]) -> bool {
        self.name().rsplit_once('.').is_some_and(|(_, ext)| extensions.contains(&ext))
    }
}

/// Makes a folder, or empties it.
pub fn make_empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// The files that git tracks or would track; every file where `root` is no git checkout.
pub fn files(root: &Path) -> Result<Vec<File>> {
    let mut paths = Vec::new();
    if root.join(".git").exists() {
        let git = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git ls-files did not start")?;
        if !git.status.success() {
            bail!("git ls-files failed: {}", String::from_utf8_lossy(&git.stderr).trim());
        }
        let listed = String::from_utf8(git.stdout).context("a path is not UTF-8")?;
        paths.extend(listed.split_terminator('\0').map(str::to_owned));
    } else {
        walk(root, "", &mut paths)?;
    }
    paths.sort();
    paths.dedup();
    // A file that was deleted but is still in git's index is gone for our purposes.
    paths.retain(|path| root.join(path).is_file());
    paths.into_iter().map(|path| read(root, path)).collect()
}

fn walk(root: &Path, below: &str, paths: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(below)).with_context(|| format!("cannot list {below}"))? {
        let entry = entry?;
        let name = entry.file_name().into_string().ok().context("a path is not UTF-8")?;
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        match entry.file_type()?.is_dir() {
            true if path == "target" => {}
            true => walk(root, &path, paths)?,
            false => paths.push(path),
        }
    }
    Ok(())
}

fn read(root: &Path, path: String) -> Result<File> {
    let full = root.join(&path);
    let bytes = fs::metadata(&full).with_context(|| format!("cannot read {path}"))?.len();
    let text = match bytes > MAX_FILE_BYTES {
        true => String::new(),
        false => {
            let content = fs::read(&full).with_context(|| format!("cannot read {path}"))?;
            String::from_utf8(content).unwrap_or_default()
        }
    };
    Ok(File { path, bytes, text })
}

/// The root of the repository.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The folder that cargo builds into.
pub fn target_folder() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    // This program is `target/PROFILE/xtask`, or `target/PROFILE/deps/xtask-…` in a test.
    let target = own.ancestors().skip(1).find(|folder| folder.join("CACHEDIR.TAG").exists());
    Ok(target.map_or_else(|| root().join("target"), Path::to_owned))
}
