//! The side for build scripts: reads cargo's variables, prints cargo's instructions.
#![allow(clippy::print_stdout, reason = "cargo reads the stdout of build scripts")]

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::{
    Error, Goal, Linkage, Mlx, PLATFORMS, Request, Source, Target, Variant, location,
    python_from_env,
};

/// Returns true when the crate is compiled for its reference alone, as docs.rs does (`DOCS_RS`).
///
/// Nothing is linked then, so MLX is not needed. The declarations of mlx-c are committed.
pub fn is_for_reference() -> bool {
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    env::var_os("DOCS_RS").is_some_and(|value| !value.is_empty())
}

/// The request that the environment of a build script makes.
///
/// # Errors
/// [`Error::NotABuildScript`] elsewhere, [`Error::UnknownVariant`] for a wrong `MLX_VARIANT`.
pub fn request() -> Result<Request, Error> {
    for name in ["MLX_ROOT", "MLX_VARIANT", "MLX_PYTHON", "MACOSX_DEPLOYMENT_TARGET"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let triple = variable("TARGET")?;
    let os = variable("CARGO_CFG_TARGET_OS")?;
    let target = Target { os, arch: variable("CARGO_CFG_TARGET_ARCH")?, ..Target::host()? };
    Ok(Request {
        variant: variant_from_env(&target.os)?,
        source: installed_from_env()?.map_or(Source::Any, Source::Installed),
        goal: Goal::Linkable,
        platforms: PLATFORMS,
        cache: location::cache_under(&PathBuf::from(variable("OUT_DIR")?), &triple),
        manifest_dir: variable("CARGO_MANIFEST_DIR")?.into(),
        target,
        triple,
        python: python_from_env(),
        progress: |_| {},
    })
}

/// The variant in `MLX_VARIANT`, else the default of an operating system.
///
/// # Errors
/// [`Error::UnknownVariant`] for a name that is none.
pub fn variant_from_env(os: &str) -> Result<Variant, Error> {
    match env::var("MLX_VARIANT") {
        Ok(name) if !name.is_empty() => name.parse(),
        _ => Ok(Variant::default_for(os)),
    }
}

/// The absolute path of the installed MLX that `MLX_ROOT` names, if it names one.
///
/// # Errors
/// [`Error::Io`] when there is no such folder.
pub fn installed_from_env() -> Result<Option<PathBuf>, Error> {
    let Some(root) = env::var_os("MLX_ROOT").filter(|root| !root.is_empty()) else {
        return Ok(None);
    };
    let root = PathBuf::from(root);
    fs::canonicalize(&root).map(Some).map_err(Error::io("find MLX_ROOT", &root))
}

/// Prints what cargo needs to link `mlx`, and to run again when it is replaced.
///
/// Dependents with a build script find the library's folder in `DEP_MLXC_LIB`.
///
/// # Errors
/// [`Error::UnsupportedOs`] when there is no MLX for the operating system.
pub fn link(mlx: &Mlx, request: &Request) -> Result<(), Error> {
    let linkage = Linkage::of(&request.target.os)?;
    for stamp in &mlx.stamps {
        println!("cargo::rerun-if-changed={}", stamp.display());
    }
    if let Some(folder) = &mlx.mlx_c_dir {
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static=mlxc");
    }
    println!("cargo::rustc-link-search=native={}", mlx.lib_dir.display());
    println!("cargo::rustc-link-lib=dylib=mlx");
    println!("cargo::rustc-link-lib=dylib={}", linkage.cxx);
    for framework in linkage.frameworks {
        println!("cargo::rustc-link-lib=framework={framework}");
    }
    println!("cargo::metadata=lib={}", mlx.lib_dir.display());
    Ok(())
}

/// Prints the linker arguments with which the executables of the calling package
/// (programs, tests, examples, benchmarks) find MLX at run time.
///
/// Cargo does not hand linker arguments on to dependents, so each package with
/// executables that link MLX calls this in its own build script:
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     mlx_build::build_script::finish(mlx_build::build_script::executables())
/// }
/// ```
///
/// # Errors
/// Those of [`request`].
pub fn executables() -> Result<(), Error> {
    println!("cargo::rerun-if-changed=build.rs");
    let request = request()?;
    search(&request, Some(request.lib_dir()?))
}

/// Prints the linker arguments of [`executables`] for a program that is shipped.
///
/// With `MLX_RELOCATABLE=1` the program does not look for MLX in the folder of build time.
///
/// # Errors
/// Those of [`request`].
pub fn program() -> Result<(), Error> {
    println!("cargo::rerun-if-env-changed=MLX_RELOCATABLE");
    if env::var_os("MLX_RELOCATABLE").is_none_or(|value| value != "1") {
        return executables();
    }
    println!("cargo::rerun-if-changed=build.rs");
    search(&request()?, None)
}

/// Prints where executables search, beside the places that all of them do.
fn search(request: &Request, lib_dir: Option<PathBuf>) -> Result<(), Error> {
    let linkage = Linkage::of(&request.target.os)?;
    let deployment = request.deployment();
    for arg in linkage.executable_args(lib_dir.as_deref(), deployment.as_deref()) {
        println!("cargo::rustc-link-arg={arg}");
    }
    Ok(())
}

/// Ends a build script; an error is shown by cargo as the package's own.
pub fn finish(result: Result<(), Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error={}", error.to_string().replace('\n', " / "));
            ExitCode::FAILURE
        }
    }
}

fn variable(name: &'static str) -> Result<String, Error> {
    env::var(name).map_err(|_| Error::NotABuildScript { name })
}
