//! `cargo xtask macos`: what can be told of the program for macOS where there is none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use mlx_build::location::{cache_of_workspace, mlx_c_sources};
use mlx_build::{Goal, MLX_VERSION, Mlx, PLATFORMS, Platform, Request, Source, joined, provision};

use crate::clients::environment::{Environment, Prepared, output};
use crate::dist::needs::Needs;
use crate::repository::{make_empty, root};

/// Cargo's name of a Mac with Apple silicon.
const TRIPLE: &str = "aarch64-apple-darwin";

/// Checks the Rust of all crates for macOS, compiles the C++, and links that with each MLX that a
/// build there may choose; with `--link`, links the program, too.
pub fn run(args: &[String]) -> Result<()> {
    let links = match args {
        [] => false,
        [option] if option == "--link" => true,
        _ => bail!("usage: cargo xtask macos [--link]"),
    };
    let home = cache_of_workspace(root())?.with_file_name("macos");
    let wheels = PLATFORMS.iter().filter(|platform| platform.os == "macos");
    let wheels: Vec<&Platform> = wheels.collect();
    let oldest = wheels.first().context("no wheel is for macOS")?;
    let zig = Zig::prepare(oldest, &home)?;
    // One core compiles C++ while the other one checks.
    let mut clippy = clippy(&zig);
    let mut checks = clippy.spawn().with_context(|| format!("cannot start {clippy:?}"))?;
    let linked = link_all(&zig, &wheels, &home);
    let status = checks.wait().context("clippy is gone")?;
    let (objects, library) = linked?;
    ensure!(
        status.success(),
        "the crates fail for {TRIPLE}; its standard library comes by `rustup target add {TRIPLE}`"
    );
    eprintln!("all crates and their tests pass clippy for {TRIPLE}");
    if links {
        link_program(&zig, &objects, &library, &home)?;
    }
    Ok(())
}

/// Compiles the C++ for the oldest system, and links it with the MLX of each wheel. Returns the
/// objects, and the oldest library.
fn link_all(zig: &Zig, wheels: &[&Platform], home: &Path) -> Result<(Vec<PathBuf>, PathBuf)> {
    let mlx = wheels.iter().map(|wheel| fetch(wheel, home)).collect::<Result<Vec<Mlx>>>()?;
    let oldest = mlx.first().context("no wheel is for macOS")?;
    let objects = compile(zig, &oldest.include_dir, &home.join("objects"))?;
    let library = |mlx: &Mlx, wheel: &Platform| mlx.lib_dir.join(wheel.linkage.library);
    for (wheel, mlx) in wheels.iter().zip(&mlx) {
        zig.link(&objects, &library(mlx, wheel), &home.join(wheel.tag).join("linked"))?;
        eprintln!("the C++ is compiled, and linked with MLX {MLX_VERSION} {}", wheel.tag);
    }
    Ok((objects, library(oldest, wheels[0])))
}

/// MLX for macOS, in a folder of its own.
fn fetch(wheel: &Platform, home: &Path) -> Result<Mlx> {
    Ok(provision(&Request {
        variant: wheel.variant,
        source: Source::Wheel,
        goal: Goal::Fetched,
        platforms: PLATFORMS,
        target: wheel.target(),
        triple: TRIPLE.to_owned(),
        cache: home.join(wheel.tag),
        manifest_dir: root().join("crates/mlx-ffi"),
        python: mlx_build::python_from_env(),
        progress: |line| eprintln!("{line}"),
    })?)
}

/// Compiles the shim and mlx-c as their builds do, two files each.
fn compile(zig: &Zig, include: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    make_empty(folder)?;
    let ffi = root().join("crates/mlx-ffi");
    let shim = ffi.join("shim");
    let mlx_c = mlx_c_sources(&ffi)?;
    let error_text = root().join("crates/mlx-build/cmake/error_text.h");
    let mut started = Vec::new();
    for (sources, is_shim) in [(&shim, true), (&mlx_c.join("mlx/c"), false)] {
        for source in joined(sources, folder)? {
            let object = source.with_extension("o");
            let mut compiler = zig.compiler();
            compiler.args(["-std=c++20", "-O0", "-c"]);
            // Its own headers for macOS lack both.
            compiler.args(["-DINFINITY=(__builtin_inff())", "-DNAN=(__builtin_nanf(\"\"))"]);
            if is_shim {
                compiler.arg(format!("-DMLXRS_MLX_VERSION=\"{MLX_VERSION}\""));
            } else {
                compiler.args(["-include", "format", "-include"]).arg(&error_text);
            }
            for folder in [&shim, &mlx_c, &include.to_owned()] {
                compiler.arg("-I").arg(folder);
            }
            compiler.arg("-o").arg(&object).arg(&source).stdin(Stdio::null());
            let child = compiler.spawn().with_context(|| format!("cannot start {compiler:?}"))?;
            started.push((child, source, object));
        }
    }
    // All are waited for, so that none goes on after an error.
    let ended: Vec<_> = started
        .into_iter()
        .map(|(mut child, source, object)| (child.wait(), source, object))
        .collect();
    ended
        .into_iter()
        .map(|(status, source, object)| {
            ensure!(status?.success(), "{} does not compile for macOS", source.display());
            Ok(object)
        })
        .collect()
}

/// Clippy for all crates, their tests too. Nothing is linked.
fn clippy(zig: &Zig) -> Command {
    let mut clippy = zig.cargo();
    clippy.args(["clippy", "--workspace", "--all-targets", "--target", TRIPLE]);
    clippy.args(["--", "-D", "warnings"]);
    clippy
}

/// Links the program, of which nothing may be left undefined, and says what it needs of a system.
fn link_program(zig: &Zig, objects: &[PathBuf], library: &Path, home: &Path) -> Result<()> {
    let folder = home.join("program");
    let mut flags: Vec<String> = Vec::new();
    for file in objects.iter().map(PathBuf::as_path).chain([library, Path::new("-lc++")]) {
        flags.push(format!("-Clink-arg={}", file.display()));
    }
    let mut build = zig.cargo();
    build.args(["build", "--package", "ml-on-mlx", "--bin", "ml", "--target", TRIPLE]);
    build.arg("--target-dir").arg(&folder).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    build.env("CARGO_TARGET_AARCH64_APPLE_DARWIN_LINKER", compiler_of_cargo());
    build.env("MLX_RELOCATABLE", "1");
    let status = build.status().with_context(|| format!("cannot start {build:?}"))?;
    ensure!(status.success(), "the program does not link for {TRIPLE}");
    let program = folder.join(TRIPLE).join("debug/ml");
    let mut needs = Needs::default();
    needs.add_macos(&fs::read(&program)?);
    eprintln!("the program is linked: {}, which needs {needs}", program.display());
    Ok(())
}

/// The program that serves cargo as a C compiler and linker for macOS.
fn compiler_of_cargo() -> PathBuf {
    root().join("xtask/src/macos/cc.sh")
}

/// Clang and a linker for macOS, in a Python package.
struct Zig {
    python: PathBuf,
    /// The folder for what it compiles of its own, such as libc++ for one target.
    cache: PathBuf,
    /// The oldest system that a wheel runs on.
    oldest: String,
}

impl Zig {
    fn prepare(oldest: &Platform, home: &Path) -> Result<Zig> {
        let folder = root().join("xtask/src/macos");
        let list = Environment::Python(folder.join("requirements.txt"));
        match list.prepare(&folder, &home.join("compiler"))? {
            Prepared::Ready(script) => {
                let (cache, oldest) = (home.join("compiler/cache"), oldest.min_os.to_string());
                Ok(Zig { python: script.program, cache, oldest })
            }
            Prepared::Missing { what, .. } => bail!("the compiler for macOS is missing: {what}"),
        }
    }

    /// Cargo with a compiler for the C code of dependencies. The build script of `mlx-ffi` leaves
    /// MLX out.
    fn cargo(&self) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(root()).env("DOCS_RS", "1");
        cargo.env("CC_aarch64_apple_darwin", compiler_of_cargo());
        cargo.env("AR_aarch64_apple_darwin", "ar");
        cargo.env("MACOSX_DEPLOYMENT_TARGET", &self.oldest);
        cargo.env("ML_ZIG_PYTHON", &self.python).env("ML_ZIG_TARGET", self.target());
        cargo.env("ZIG_GLOBAL_CACHE_DIR", &self.cache).env("ZIG_LOCAL_CACHE_DIR", &self.cache);
        cargo
    }

    fn target(&self) -> String {
        format!("aarch64-macos.{}", self.oldest)
    }

    fn compiler(&self) -> Command {
        let mut command = Command::new(&self.python);
        command.args(["-m", "ziglang", "c++", "-target", &self.target()]);
        command.env("ZIG_GLOBAL_CACHE_DIR", &self.cache).env("ZIG_LOCAL_CACHE_DIR", &self.cache);
        command
    }

    /// Links a library of `objects`, in which nothing may be left undefined that `library` and the
    /// system lack.
    fn link(&self, objects: &[PathBuf], library: &Path, out: &Path) -> Result<()> {
        let mut linker = self.compiler();
        linker.arg("-shared").args(objects).arg(library).arg("-o").arg(out);
        let (linked, said) = output(&mut linker)?;
        ensure!(linked, "the C++ does not link with {}:\n{said}", library.display());
        fs::remove_file(out).with_context(|| format!("cannot remove {}", out.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_compiler_of_cargo_names_its_target_once() {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python");
        fs::write(&python, "#!/bin/sh\nprintf '<%s>' \"$@\"\n").unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        let mut cc = Command::new(compiler_of_cargo());
        cc.env("ML_ZIG_PYTHON", &python).env("ML_ZIG_TARGET", "aarch64-macos.14.0");
        cc.args(["-arch", "arm64", "-O2", "-mmacosx-version-min=11.0", "-liconv", "-o", "a b.o"]);
        let output = cc.args(["--target=arm64-apple-macosx", "x.c", "-arch", "arm64"]).output();
        let said = String::from_utf8(output.unwrap().stdout).unwrap();
        let expected = "<-m><ziglang><cc><-target><aarch64-macos.14.0><-O2><-o><a b.o><x.c>";
        assert_eq!(said, expected);
    }

    #[test]
    fn the_compiler_is_pinned_by_its_hash() {
        let list = fs::read_to_string(root().join("xtask/src/macos/requirements.txt")).unwrap();
        let packages = list.lines().filter(|line| line.contains("==")).count();
        assert_eq!((packages, list.matches("--hash=sha256:").count()), (1, 2), "{list}");
    }

    #[test]
    fn other_arguments_are_refused() {
        let text = run(&["--links".to_owned()]).unwrap_err().to_string();
        assert_eq!(text, "usage: cargo xtask macos [--link]");
    }
}
