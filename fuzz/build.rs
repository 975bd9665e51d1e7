//! Lets the targets find MLX at run time.

fn main() -> std::process::ExitCode {
    mlx_build::build_script::finish(mlx_build::build_script::executables())
}
