//! Finds MLX, or gets it, and compiles mlx-c against it.
//!
//! [`provision`] is the whole of it. Build scripts call it by way of [`build_script`],
//! people by way of `cargo xtask build-mlx`; both work in the same folder, so what one
//! made the other finds.
//!
//! MLX comes prebuilt in its Python wheels, checked against pinned hashes. mlx-c comes
//! in a locked crate and is compiled with cmake; where the machine has no cmake, that
//! comes as a Python package too. So a machine needs Rust, a C++ compiler, and Python 3
//! with pip or venv.
//!
//! # The folder
//!
//! `mlx` in cargo's target folder. Each part is made under another name and moved into
//! place when it is finished, so an interrupted build leaves nothing that a later one
//! would trust. A lock file lets one process at a time work there.
//!
//! ```text
//! target/mlx/cpu-0.32.2/dist/mlx/{lib,include}   MLX; lib is complete in itself
//! target/mlx/cpu-0.32.2/mlxc/libmlxc.a           mlx-c
//! target/mlx/tools/                              cmake, ninja, libclang, where needed
//! ```
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `MLX_ROOT` | an installed MLX 0.32.2, a folder with `lib` and `include`; nothing is fetched |
//! | `MLX_VARIANT` | `metal`, `cpu` or `cuda`; by default metal on macOS and cpu on Linux |
//! | `MLX_PYTHON` | the Python 3 that gets and unpacks wheels; by default `python3` |
//! | `MLX_RELOCATABLE` | `1`: `ml` does not look for MLX where that was at build time |
//! | `CXX`, `CXXFLAGS`, `CMAKE` | the C++ compiler, its flags, and cmake, as for the crates `cc` and `cmake` |
//! | `CARGO_TARGET_DIR` | moves the folder together with the target folder |
//! | `MACOSX_DEPLOYMENT_TARGET` | the oldest macOS to serve; by default MLX is taken for this machine's, and all else is compiled for the oldest that this MLX runs on |
//!
//! pip's own variables (`PIP_INDEX_URL`, `PIP_PROXY`, …) work as always.
//!
//! # Running what was built
//!
//! Executables look for MLX beside themselves, in `../lib`, and where it was at build
//! time, in this order. So a program is installed by copying it together with the
//! contents of `dist/mlx/lib`; the CUDA build needs `dist/mlx/include` beside that
//! `lib` too, for the kernels that it compiles at run time.
//!
//! On Linux `LD_LIBRARY_PATH` comes before all of these: with the CUDA build's `lib` in
//! it, a program built against the CPU build runs on the GPU. (`cargo run` and `cargo
//! test` put the folder of the build in front of it; start the program itself.)
#![forbid(unsafe_code)]

pub mod build_script;
mod compile;
mod error;
#[cfg(test)]
mod fake;
mod fetch;
mod host;
mod installed;
mod joined;
mod linkage;
pub mod location;
mod platform;
mod provision;
mod python;
mod stamp;
mod target;
mod tools;

pub use compile::HOST;
pub use error::Error;
pub use joined::joined;
pub use linkage::Linkage;
pub use platform::{PLATFORMS, Platform};
pub use provision::{Goal, Mlx, Request, Source, libclang, provision};
pub use python::python_from_env;
pub use target::{MLX_VERSION, Target, Variant};
