//! Compiling with cmake: mlx-c always, MLX itself only from a checkout.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::python::Tools;
use crate::{Error, Variant};

/// Makes up for a missing `<format>`; see the file.
const STD_FORMAT: &str = include_str!("std_format.h");

/// A compiler and a cmake that were found to work.
pub(crate) struct Build {
    /// `PATH` with the folders of `cmake` and its build program in front.
    path: OsString,
    generator: &'static str,
    triple: String,
}

impl Build {
    /// Checks the compiler and finds `cmake` and `ninja` or `make`, installing what is not there.
    pub(crate) fn prepare(triple: &str, tools: &Tools) -> Result<Self, Error> {
        check_compiler(triple)?;
        let mut folders = Vec::new();
        if !runs("cmake") {
            folders.push(tools.cmake_dir()?);
        }
        let generator = if runs("ninja") {
            "Ninja"
        } else if runs("make") {
            "Unix Makefiles"
        } else {
            folders.push(tools.ninja_dir()?);
            "Ninja"
        };
        let inherited = env::var_os("PATH").unwrap_or_default();
        folders.extend(env::split_paths(&inherited));
        let path = env::join_paths(folders).unwrap_or(inherited);
        Ok(Self { path, generator, triple: triple.to_owned() })
    }

    /// Compiles `source`, mlx-c, against the MLX in `root`; `out/lib` gets `libmlxc.a`.
    pub(crate) fn mlx_c(&self, source: &Path, root: &Path, out: &Path) -> Result<(), Error> {
        let header = out.join("std_format.h");
        fs::write(&header, STD_FORMAT).map_err(Error::io("write", &header))?;
        let mut config = self.config(source, out);
        config
            .cxxflag(format!("-include \"{}\"", header.display()))
            .define("MLX_C_USE_SYSTEM_MLX", "ON")
            .define("MLX_C_BUILD_EXAMPLES", "OFF")
            .define("MLX_ROOT", root);
        run("mlx-c", config, source, out)
    }

    /// Compiles `source`, a checkout of MLX, and installs it into `out`.
    pub(crate) fn mlx(&self, source: &Path, variant: Variant, out: &Path) -> Result<(), Error> {
        let switch = |on: bool| if on { "ON" } else { "OFF" };
        let mut config = self.config(source, out);
        config
            .define("BUILD_SHARED_LIBS", "ON")
            .define("MLX_BUILD_TESTS", "OFF")
            .define("MLX_BUILD_EXAMPLES", "OFF")
            .define("MLX_BUILD_BENCHMARKS", "OFF")
            .define("MLX_BUILD_PYTHON_BINDINGS", "OFF")
            .define("MLX_BUILD_METAL", switch(variant == Variant::Metal))
            .define("MLX_BUILD_CUDA", switch(variant == Variant::Cuda));
        run("MLX", config, source, out)
    }

    fn config(&self, source: &Path, out: &Path) -> cmake::Config {
        let mut config = cmake::Config::new(source);
        config
            .host(HOST)
            .target(&self.triple)
            .out_dir(out)
            .profile("Release")
            .generator(self.generator)
            .env("PATH", &self.path)
            .define("CMAKE_INSTALL_LIBDIR", "lib");
        config
    }
}

/// The triple of the machine that this crate was compiled for, and so runs on.
pub const HOST: &str = env!("MLX_BUILD_HOST");

/// Runs cmake; the `cmake` crate panics on failure, after cmake has printed its reasons.
fn run(
    what: &'static str,
    mut config: cmake::Config,
    source: &Path,
    out: &Path,
) -> Result<(), Error> {
    catch_unwind(AssertUnwindSafe(|| config.build())).map(drop).map_err(|_| Error::Compile {
        what,
        source_dir: source.to_owned(),
        build_dir: out.to_owned(),
    })
}

/// Compiles one line, so that a missing or old compiler is named before cmake starts.
fn check_compiler(triple: &str) -> Result<(), Error> {
    let tool = cc::Build::new()
        .cpp(true)
        .cargo_metadata(false)
        .opt_level(0)
        .host(HOST)
        .target(triple)
        .try_get_compiler();
    let program = tool.map_or_else(|_| PathBuf::from("c++"), |tool| tool.path().to_owned());
    let compiler = program.display().to_string();
    let probe = env::temp_dir().join(format!("mlx-build-probe-{}.cpp", std::process::id()));
    fs::write(&probe, "#include <concepts>\ntemplate <std::integral T> T one() { return 1; }\n")
        .map_err(Error::io("write", &probe))?;
    let output = Command::new(&program).args(["-std=c++20", "-fsyntax-only"]).arg(&probe).output();
    let _ = fs::remove_file(&probe);
    match output {
        Err(source) => Err(Error::NoCompiler { compiler, source }),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let reason = text.lines().find(|line| line.contains("error")).unwrap_or("no message");
            Err(Error::OldCompiler { compiler, reason: reason.to_owned() })
        }
    }
}

fn runs(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
