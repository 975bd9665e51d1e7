//! Links MLX and mlx-c, which `mlx-build` finds or gets, and compiles our own shim.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use mlx_build::{Error, MLX_VERSION, build_script, location, provision};

fn main() -> ExitCode {
    build_script::finish(build())
}

fn build() -> Result<(), Error> {
    if build_script::is_for_reference() {
        return Ok(());
    }
    build_script::executables()?;
    let request = build_script::request()?;
    let mlx = provision(&request)?;
    println!("cargo::rustc-env=MLX_VERSION={MLX_VERSION}");

    // The shim goes before mlx-c, and mlx-c before MLX: each uses the next one's symbols.
    println!("cargo::rerun-if-changed=shim");
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .warnings(false)
        .define("MLXRS_MLX_VERSION", format!("\"{MLX_VERSION}\"").as_str())
        .files(joined(&request.manifest_dir.join("shim"))?)
        .include("shim")
        .include(location::mlx_c_sources(&request.manifest_dir)?)
        .include(&mlx.include_dir)
        .compile("mlxrs");
    build_script::link(&mlx, &request)
}

/// Writes a file for each half of the C++ files in `shim`, which includes them.
///
/// Most of the time goes to MLX's headers, so they are read twice and not once a file. Names in
/// anonymous namespaces are therefore those of one file only.
fn joined(shim: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(shim).map_err(Error::io("read", shim))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut sources = paths.collect::<Result<Vec<_>, _>>().map_err(Error::io("read", shim))?;
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "cpp"));
    sources.sort();
    let half = sources.len().div_ceil(2);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a build script's folder"));
    let halves = sources.chunks(half).enumerate().map(|(index, files)| {
        let includes = files.iter().map(|file| format!("#include \"{}\"\n", file.display()));
        let path = out.join(format!("shim_{index}.cpp"));
        fs::write(&path, includes.collect::<String>()).map_err(Error::io("write", &path))?;
        Ok(path)
    });
    halves.collect()
}
