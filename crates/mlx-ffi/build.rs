//! Links MLX and mlx-c, which `mlx-build` finds or gets, and compiles our own shim.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use mlx_build::{Error, MLX_VERSION, build_script, joined, location, provision};

fn main() -> ExitCode {
    build_script::finish(build())
}

fn build() -> Result<(), Error> {
    println!("cargo::rustc-env=MLX_VERSION={MLX_VERSION}");
    if build_script::is_for_reference() {
        return Ok(());
    }
    build_script::executables()?;
    let request = build_script::request()?;
    let mlx = provision(&request)?;

    // The shim goes before mlx-c, and mlx-c before MLX: each uses the next one's symbols.
    println!("cargo::rerun-if-changed=shim");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a build script's folder"));
    let mut shim = cc::Build::new();
    if let Some(release) = request.deployment() {
        shim.env("MACOSX_DEPLOYMENT_TARGET", release);
    }
    shim.cpp(true)
        .std("c++20")
        .warnings(false)
        .define("MLXRS_MLX_VERSION", format!("\"{MLX_VERSION}\"").as_str())
        .files(joined(&request.manifest_dir.join("shim"), &out)?)
        .include("shim")
        .include(location::mlx_c_sources(&request.manifest_dir)?)
        .include(&mlx.include_dir)
        .compile("mlxrs");
    build_script::link(&mlx, &request)
}
