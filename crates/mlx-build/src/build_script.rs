//! The side for build scripts: reads cargo's variables, prints cargo's instructions.

use std::env;
use std::path::PathBuf;

use crate::{Error, Goal, Linkage, Mlx, Python, Request, Source, Target, Variant, location};

/// The request that the environment of a build script makes.
///
/// # Errors
/// [`Error::NotABuildScript`] elsewhere, [`Error::UnknownVariant`] for a wrong `MLX_VARIANT`.
pub fn request() -> Result<Request, Error> {
    for name in ["MLX_ROOT", "MLX_VARIANT", "MLX_PYTHON", "MACOSX_DEPLOYMENT_TARGET"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let triple = variable("TARGET")?;
    let os = variable("CARGO_CFG_TARGET_OS")?;
    let target = Target { arch: variable("CARGO_CFG_TARGET_ARCH")?, os, ..Target::host() };
    let variant = match env::var("MLX_VARIANT") {
        Ok(name) => name.parse()?,
        Err(_) => Variant::default_for(&target.os),
    };
    Ok(Request {
        variant,
        source: env::var_os("MLX_ROOT").map_or(Source::Any, |root| Source::Installed(root.into())),
        goal: Goal::Linkable,
        cache: location::cache_under(&PathBuf::from(variable("OUT_DIR")?), &triple),
        manifest_dir: variable("CARGO_MANIFEST_DIR")?.into(),
        target,
        triple,
        python: Python::from_env(),
        progress: |_| {},
    })
}

/// Prints what cargo needs to link `mlx`, and to run again when it is replaced.
///
/// # Errors
/// [`Error::UnsupportedOs`] when there is no MLX for the operating system.
pub fn link(mlx: &Mlx, request: &Request) -> Result<(), Error> {
    let linkage = Linkage::of(&request.target.os)?;
    for stamp in &mlx.stamps {
        println!("cargo:rerun-if-changed={}", stamp.display());
    }
    if let Some(folder) = &mlx.mlx_c_lib {
        println!("cargo:rustc-link-search=native={}", folder.display());
        println!("cargo:rustc-link-lib=static=mlxc");
    }
    println!("cargo:rustc-link-search=native={}", mlx.root.join("lib").display());
    println!("cargo:rustc-link-lib=dylib=mlx");
    println!("cargo:rustc-link-lib=dylib={}", linkage.cxx);
    for framework in linkage.frameworks {
        println!("cargo:rustc-link-lib=framework={framework}");
    }
    Ok(())
}

/// Prints the linker arguments with which the executables of the calling package
/// (programs, tests, examples, benchmarks) find MLX at run time.
///
/// Cargo does not hand linker arguments on to dependents, so each package with
/// executables calls this from its own build script.
///
/// # Errors
/// Those of [`request`].
pub fn rpath() -> Result<(), Error> {
    println!("cargo:rerun-if-changed=build.rs");
    let request = request()?;
    let linkage = Linkage::of(&request.target.os)?;
    for arg in linkage.rpath_args(&request.root().join("lib")) {
        println!("cargo:rustc-link-arg={arg}");
    }
    Ok(())
}

fn variable(name: &'static str) -> Result<String, Error> {
    env::var(name).map_err(|_| Error::NotABuildScript { name })
}
