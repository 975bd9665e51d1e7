//! Compiling with cmake: mlx-c always, MLX itself only from a checkout.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::available_parallelism;

use crate::tools::Tools;
use crate::{Error, Variant};

/// The triple of the machine that this crate was compiled for, and so runs on.
pub const HOST: &str = env!("MLX_BUILD_HOST");

/// Makes up for a missing `<format>`.
const STD_FORMAT: &str = include_str!("../cmake/std_format.h");
/// Keeps `%` in MLX's messages from being read as a format.
const ERROR_TEXT: &str = include_str!("../cmake/error_text.h");
/// Counts the ways in which mlx-c was compiled so far: another one makes older builds stale.
pub(crate) const RECIPE: u32 = 2;

/// Tells mlx-c where MLX's headers are.
const MLX_CONFIG: &str = include_str!("../cmake/MLXConfig.cmake");

/// A compiler and a cmake that were found to work.
pub(crate) struct Build {
    /// `PATH` with the folders of `cmake` and its build program in front.
    path: OsString,
    generator: &'static str,
    triple: String,
    /// The oldest macOS to compile for.
    deployment: Option<String>,
    /// The compiler's library has `std::format`.
    has_format: bool,
}

impl Build {
    /// Checks the compiler and finds `cmake` and `ninja` or `make`, installing what is not there.
    pub(crate) fn prepare(
        triple: &str,
        deployment: Option<String>,
        tools: &Tools,
    ) -> Result<Self, Error> {
        let compiler = compiler_for(triple);
        check_compiler(&compiler)?;
        let mut folders = Vec::new();
        if !runs("cmake") {
            folders.push(tools.cmake()?);
        }
        let generator = if runs("ninja") {
            "Ninja"
        } else if runs("make") {
            "Unix Makefiles"
        } else {
            folders.push(tools.ninja()?);
            "Ninja"
        };
        let inherited = env::var_os("PATH").unwrap_or_default();
        folders.extend(env::split_paths(&inherited));
        let path = env::join_paths(folders).unwrap_or(inherited);
        let has_format = has_format(&compiler);
        Ok(Self { path, generator, triple: triple.to_owned(), deployment, has_format })
    }

    /// Compiles `source`, mlx-c, against MLX's headers in `include`; `out` gets `libmlxc.a`.
    pub(crate) fn mlx_c(&self, source: &Path, include: &Path, out: &Path) -> Result<(), Error> {
        // mlx-c calls std::format and leaves it to chance that some header declares it.
        let format = if self.has_format {
            "-include format".to_owned()
        } else {
            format!("-include \"{}\"", write(out, "std_format.h", STD_FORMAT)?.display())
        };
        let error_text = write(out, "error_text.h", ERROR_TEXT)?;
        write(out, "MLXConfig.cmake", MLX_CONFIG)?;
        let mut config = self.config(source, out);
        config
            .cxxflag(format)
            .cxxflag(format!("-include \"{}\"", error_text.display()))
            .define("BUILD_SHARED_LIBS", "OFF")
            // Its 26 files spend most of their time in MLX's headers, which two read as well.
            .define("CMAKE_UNITY_BUILD", "ON")
            .define("CMAKE_UNITY_BUILD_BATCH_SIZE", "13")
            .define("MLX_C_USE_SYSTEM_MLX", "ON")
            .define("MLX_C_BUILD_EXAMPLES", "OFF")
            .define("MLX_DIR", out)
            .define("MLX_INCLUDE", include)
            .build_target("mlxc");
        run("mlx-c", &mut config, source, out)?;
        let (built, build) = (out.join("build/libmlxc.a"), out.join("build"));
        fs::rename(&built, out.join("libmlxc.a")).map_err(Error::io("move", &built))?;
        fs::remove_dir_all(&build).map_err(Error::io("remove", &build))
    }

    /// Compiles `source`, a checkout of MLX, in `out/build` and installs it into `out/mlx`.
    ///
    /// Files that an earlier call left in `out/build` are used again.
    pub(crate) fn mlx(&self, source: &Path, variant: Variant, out: &Path) -> Result<(), Error> {
        let switch = |on: bool| if on { "ON" } else { "OFF" };
        let mut config = self.config(source, out);
        config
            .define("CMAKE_INSTALL_PREFIX", out.join("mlx"))
            .define("CMAKE_INSTALL_LIBDIR", "lib")
            .define("BUILD_SHARED_LIBS", "ON")
            .define("MLX_BUILD_TESTS", "OFF")
            .define("MLX_BUILD_EXAMPLES", "OFF")
            .define("MLX_BUILD_BENCHMARKS", "OFF")
            .define("MLX_BUILD_PYTHON_BINDINGS", "OFF")
            .define("MLX_BUILD_METAL", switch(variant == Variant::Metal))
            .define("MLX_BUILD_CUDA", switch(variant == Variant::Cuda));
        run("MLX", &mut config, source, out)
    }

    fn config(&self, source: &Path, out: &Path) -> cmake::Config {
        let mut config = cmake::Config::new(source);
        config
            .host(HOST)
            .target(&self.triple)
            .out_dir(out)
            .profile("Release")
            .generator(self.generator)
            .env("PATH", &self.path);
        if let Some(release) = &self.deployment {
            config.define("CMAKE_OSX_DEPLOYMENT_TARGET", release);
        }
        // Cargo tells build scripts how many jobs to run; elsewhere make runs one.
        if env::var_os("NUM_JOBS").is_none() {
            let jobs = available_parallelism().map_or(1, |n| n.get());
            config.env("CMAKE_BUILD_PARALLEL_LEVEL", jobs.to_string());
        }
        config
    }
}

/// Runs cmake; the `cmake` crate panics on failure, after cmake has printed its reasons.
fn run(
    what: &'static str,
    config: &mut cmake::Config,
    source: &Path,
    out: &Path,
) -> Result<(), Error> {
    catch_unwind(AssertUnwindSafe(|| config.build())).map(drop).map_err(|_| Error::Compile {
        what,
        source_dir: source.to_owned(),
        build_dir: out.to_owned(),
    })
}

fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf, Error> {
    let path = folder.join(name);
    fs::write(&path, text).map_err(Error::io("write", &path))?;
    Ok(path)
}

/// The C++ compiler that the `cc` crate, and so cmake, uses.
fn compiler_for(triple: &str) -> PathBuf {
    let tool = cc::Build::new()
        .cpp(true)
        .cargo_metadata(false)
        .opt_level(0)
        .host(HOST)
        .target(triple)
        .try_get_compiler();
    tool.map_or_else(|_| "c++".into(), |tool| tool.path().to_owned())
}

/// Tries the compiler, so that a missing or old one is named before cmake starts.
fn check_compiler(program: &Path) -> Result<(), Error> {
    let compiler = program.display().to_string();
    match accepts(program, "#include <concepts>\nstd::integral auto one = 1;\n") {
        Err(cause) => Err(Error::NoCompiler { compiler, cause }),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let reason = text.lines().find(|line| line.contains("error"));
            let reason = reason.unwrap_or("it gave no reason").to_owned();
            Err(Error::OldCompiler { compiler, reason })
        }
    }
}

fn has_format(program: &Path) -> bool {
    accepts(program, "#include <format>\nauto text = std::format(\"{}\", 1);\n")
        .is_ok_and(|output| output.status.success())
}

/// Has the compiler check `source`, a text in C++20.
fn accepts(program: &Path, source: &str) -> io::Result<Output> {
    let mut child = Command::new(program)
        .args(["-std=c++20", "-fsyntax-only", "-x", "c++", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // A compiler that refuses its arguments reads nothing; its status tells.
        let _ = input.write_all(source.as_bytes());
    }
    child.wait_with_output()
}

fn runs(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_compiler_is_named_with_the_remedy() {
        let error = check_compiler(Path::new("/nonexistent/c++")).unwrap_err();
        assert!(matches!(error, Error::NoCompiler { .. }));
        let text = error.to_string();
        assert!(text.contains("/nonexistent/c++") && text.contains("CXX"), "{text}");
    }

    #[test]
    fn a_compiler_that_refuses_c_plus_plus_20_is_named_with_its_message() {
        let dir = tempfile::tempdir().unwrap();
        let body = "echo \"error: unrecognized option '-std=c++20'\" >&2; exit 1";
        let fake = crate::fake::program(dir.path(), "old-c++", body);
        let error = check_compiler(&fake).unwrap_err();
        assert!(matches!(error, Error::OldCompiler { .. }));
        let text = error.to_string();
        assert!(text.contains("old-c++") && text.contains("unrecognized option"), "{text}");
    }

    #[test]
    fn the_stand_in_for_std_format_fills_the_holes() {
        let dir = tempfile::tempdir().unwrap();
        let header = write(dir.path(), "std_format.h", STD_FORMAT).unwrap();
        let program = dir.path().join("test");
        let main = r#"
            int main() {
              bool two = std::format("read {} of {} bytes", 3, 4u) == "read 3 of 4 bytes";
              bool text = std::format("{} in {}", "a", std::string("b")) == "a in b";
              return two && text && std::format("none") == "none" ? 0 : 1;
            }"#;
        let source = write(dir.path(), "test.cpp", main).unwrap();
        let mut compile = Command::new(compiler_for(HOST));
        compile.arg("-std=c++20").arg("-include").args([&header, &source]);
        compile.arg("-o").arg(&program);
        assert!(compile.status().unwrap().success());
        assert!(Command::new(&program).status().unwrap().success());
    }

    #[test]
    fn what_does_not_compile_is_named_with_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        // No sources at all: cmake fails, and so does a machine without cmake.
        let mut config = cmake::Config::new(dir.path());
        config.host(HOST).target(HOST).out_dir(dir.path()).profile("Release");
        let error = run("mlx-c", &mut config, dir.path(), dir.path()).unwrap_err();
        assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
    }
}
