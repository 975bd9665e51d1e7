//! `ml --version`: this program, the libraries below it, and the device.

use crate::failure::Result;
use crate::output;

/// Prints the versions. One that cannot be told does not hide the others.
///
/// # Errors
/// A closed stdout.
pub fn run() -> Result<()> {
    let mut lines = format!("ml {}\n", env!("CARGO_PKG_VERSION"));
    match metal_backend::system() {
        Ok(system) => {
            lines += &format!("mlx-c {}\n", system.mlx_c_version);
            lines += &format!("MLX {}\n", system.mlx_version);
            lines += &format!("device {} ({})\n", system.device, system.device_name);
        }
        Err(error) => lines += &format!("mlx-c, MLX and device: not available: {error}\n"),
    }
    output::print(&lines)
}
