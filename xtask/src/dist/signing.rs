//! Signatures of programs for macOS.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::needs::is_mach_o;

/// Signs the programs and libraries for macOS in `bin` and `lib` of a folder, if there are any,
/// without a certificate: Apple silicon starts nothing that is unsigned.
pub fn sign(folder: &Path) -> Result<()> {
    sign_by(OsStr::new("codesign"), folder)
}

fn sign_by(program: &OsStr, folder: &Path) -> Result<()> {
    let files = signed(folder)?;
    if files.is_empty() {
        return Ok(());
    }
    for args in [&["--force", "--sign", "-"][..], &["--verify", "--strict"]] {
        let output = match Command::new(program).args(args).args(&files).output() {
            // What the linker signed stays signed.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("not signed anew: there is no {}", program.display());
                return Ok(());
            }
            output => output.with_context(|| format!("cannot start {}", program.display()))?,
        };
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "codesign {}: {}", args.join(" "), said.trim());
    }
    Ok(())
}

/// The files that carry a signature, in order: libraries come before the program that loads them.
fn signed(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for part in ["lib", "bin"] {
        let place = folder.join(part);
        let entries = fs::read_dir(&place).with_context(|| format!("no {}", place.display()))?;
        let mut own = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.is_file() && is_mach_o(&fs::read(&path)?) {
                own.push(path);
            }
        }
        own.sort();
        files.extend(own);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn archive(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for part in ["bin", "lib"] {
            fs::create_dir(folder.path().join(part)).unwrap();
        }
        for (file, bytes) in files {
            fs::write(folder.path().join(file), bytes).unwrap();
        }
        folder
    }

    /// A program that notes its arguments in `told`, and then ends so.
    fn codesign(folder: &Path, end: &str) -> PathBuf {
        let program = folder.join("codesign");
        let told = folder.join("told").display().to_string();
        let text = format!("#!/bin/sh\nprintf '%s\\n' \"$*\" >>'{told}'\n{end}\n");
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    const MACH_O: &[u8] = b"\xcf\xfa\xed\xfe of a Mac";

    #[test]
    fn programs_for_macos_are_signed_after_their_libraries() {
        let folder = archive(&[
            ("bin/ml", MACH_O),
            ("lib/libmlx.dylib", MACH_O),
            ("lib/libjaccl.dylib", MACH_O),
            ("lib/mlx.metallib", b"MTLB"),
        ]);
        let program = codesign(folder.path(), "exit 0");
        sign_by(program.as_os_str(), folder.path()).unwrap();
        let told = fs::read_to_string(folder.path().join("told")).unwrap();
        let files = ["lib/libjaccl.dylib", "lib/libmlx.dylib", "bin/ml"]
            .map(|file| folder.path().join(file).display().to_string())
            .join(" ");
        assert_eq!(told, format!("--force --sign - {files}\n--verify --strict {files}\n"));

        let program = codesign(folder.path(), "echo 'no identity' >&2; exit 1");
        let text = sign_by(program.as_os_str(), folder.path()).unwrap_err().to_string();
        assert!(text.contains("codesign --force --sign -: no identity"), "{text}");
    }

    #[test]
    fn programs_for_linux_are_left_alone() {
        let folder = archive(&[("bin/ml", b"\x7fELF"), ("lib/libmlx.so", b"\x7fELF")]);
        let program = codesign(folder.path(), "exit 1");
        sign_by(program.as_os_str(), folder.path()).unwrap();
        assert!(!folder.path().join("told").exists());
    }
}
