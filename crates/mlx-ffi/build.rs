//! Links MLX and mlx-c, which `mlx-build` finds or gets, and compiles our own shim.

use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), Box<dyn Error>> {
    mlx_build::build_script::rpath()?;
    let request = mlx_build::build_script::request()?;
    let mlx = mlx_build::provision(&request)?;

    // The static libraries go before the libraries whose symbols they use.
    println!("cargo:rerun-if-changed=shim");
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .warnings(false)
        .file("shim/detach.cpp")
        .include("shim")
        .include(mlx_build::location::mlx_c_sources(&request.manifest_dir)?)
        .include(mlx.root.join("include"))
        .try_compile("mlxrs")?;
    mlx_build::build_script::link(&mlx, &request)?;

    println!("cargo:metadata=lib={}", mlx.root.join("lib").display());
    Ok(())
}
