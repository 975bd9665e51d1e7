//! Lets the executables of this package find MLX at run time.

fn main() -> std::process::ExitCode {
    mlx_build::build_script::finish(mlx_build::build_script::program())
}
