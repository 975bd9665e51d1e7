//! Links MLX and mlx-c, which `mlx-build` finds or gets, and compiles our own shim.

use std::process::ExitCode;

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
        .file("shim/allocate.cpp")
        .file("shim/cpu_kept.cpp")
        .file("shim/cpu_operation.cpp")
        .file("shim/cuda_blas.cpp")
        .file("shim/cuda_compiler.cpp")
        .file("shim/cuda_driver.cpp")
        .file("shim/cuda_launch.cpp")
        .file("shim/cuda_kept.cpp")
        .file("shim/dense.cpp")
        .file("shim/detach.cpp")
        .file("shim/device_memory.cpp")
        .file("shim/environment.cpp")
        .file("shim/kernel_folder.cpp")
        .file("shim/map_order.cpp")
        .file("shim/mlx_internals.cpp")
        .file("shim/nccl.cpp")
        .file("shim/peers.cpp")
        .file("shim/recover.cpp")
        .file("shim/replay.cpp")
        .file("shim/upload.cpp")
        .file("shim/worker.cpp")
        .include("shim")
        .include(location::mlx_c_sources(&request.manifest_dir)?)
        .include(&mlx.include_dir)
        .compile("mlxrs");
    build_script::link(&mlx, &request)
}
